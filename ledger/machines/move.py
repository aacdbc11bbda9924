"""Moves: a move that is put together, the decision about it, and its shortest way into the ledger."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError

from ..domain.event import Event
from ..domain.frozen import FrozenDict, frozen
from ..domain.names import split_name
from ..errors import (
    BadInput,
    BadMetadata,
    GuardRefused,
    LedgerBusy,
    StreamConflict,
    TransitionConflict,
    TransitionFailed,
    shown,
)
from ..log.append_from import Choices
from ..log.conflict import conflict_of
from ..log.ledger import Ledger
from .backends import Calls
from .definition import Callback, Definition, Edge, Kind
from .transition import MachineState, MachineStream, Moved, Transition

NOTHING: Final[Mapping[str, Any]] = FrozenDict()
NO_CALLS: Final = Calls()
Refusal = TransitionFailed | GuardRefused


class Movable(Protocol):
    """What a Move needs of a machine."""

    @property
    def stream(self) -> str:
        """The name of the object's stream."""

    def run(
        self, to_state: str, metadata: Mapping[str, Any], meta: dict[str, Any], expected: int | None = None
    ) -> Transition | Refusal:
        """Decide the move and record it, or return the refusal."""


class Move:
    """A move that is put together: `machine.transition_to("submitted").with_(submission_id=7).execute()`.

    Nothing happens before `execute` or `attempt`. A move that is dropped before warns.
    """

    def __init__(self, machine: Movable, to_state: str, metadata: Mapping[str, Any] = NOTHING) -> None:
        self._machine, self.to_state, self.metadata = machine, to_state, dict(metadata)
        self._done = False

    def __repr__(self) -> str:
        """As in `<Move payment/PM123 to submitted, submission_id='SB1', not executed>`."""
        with_ = "".join(f", {name}={shown(value)}" for name, value in self.metadata.items())
        done = "executed" if self._done else "not executed"
        return f"<Move {self._machine.stream} to {self.to_state}{with_}, {done}>"

    def with_(self, /, **metadata: Any) -> Move:
        """Add metadata to the move."""
        self.metadata |= metadata
        return self

    def execute(self, *, command: str | None = None, expected: int | None = None, **meta: Any) -> Transition:
        """Move. The table and the guards are checked on the state that the append then expects (W2-01).

        command: an id under which the move happens once; a repeat returns the recorded move. expected: how
        often the object has moved; otherwise TransitionConflict. meta: other fields of Meta. Raises
        TransitionFailed, GuardRefused, TransitionConflict, BadMetadata, CommandReused, and the errors of
        callbacks.
        """
        done = self._run({"command": command, **meta}, expected)
        if isinstance(done, TransitionFailed | GuardRefused):
            raise done
        return done

    def attempt(self, *, command: str | None = None, **meta: Any) -> Transition | None:
        """The same, but None if the table or a guard refuses. Other errors are raised, also a refusal by
        another machine in a callback (spec S2-36, W2-07).
        """
        done = self._run({"command": command, **meta})
        return done if isinstance(done, Transition) else None

    def _run(self, meta: dict[str, Any], expected: int | None = None) -> Transition | Refusal:
        self._done = True
        given = {name: value for name, value in meta.items() if value is not None}
        return self._machine.run(self.to_state, self.metadata, given, expected)

    def __del__(self) -> None:
        if not getattr(self, "_done", True):
            warnings.warn(
                f"the move to {self.to_state} was never executed: end it with .execute() or .attempt()",
                ResourceWarning, stacklevel=2, source=self,
            )  # fmt: skip


def decide(
    machine: str,
    definition: Definition,
    stream: MachineStream,
    about: Any,
    to_state: str,
    metadata: Mapping[str, Any],
    *,
    is_question: bool = False,
) -> tuple[Edge, Mapping[str, Any]] | Refusal:
    """The declared transition that allows a move, with the metadata to store; or the refusal.

    The table is checked first, then the metadata's model, then the guards (S2-34), which get the model's
    values with its defaults. is_question: the metadata may be incomplete; guards get what does not fit as it
    is. Raises BadMetadata unless it is a question.
    """
    old = stream.state.status or definition.initial_state
    edge = definition.edge(old, to_state)
    if edge is None or old is None:
        allowed = definition.successors.get(old or "", ())
        is_gone = old is not None and old not in definition.states
        return TransitionFailed(machine, old, to_state, allowed, is_gone=is_gone)
    made = _made_if_any(edge, metadata, is_question=is_question)
    values = FrozenDict(metadata if made is None else made.model_dump(by_alias=True, round_trip=True))
    for guard in definition.called(Kind.GUARD, old, to_state):
        if not guard.function(about, stream.last, values):
            return GuardRefused(machine, old, to_state, guard.name, _place(guard))
    if is_question:
        return edge, NOTHING
    return edge, _stored(edge, metadata) if made is None else _dumped(edge, made)


def _made_if_any(edge: Edge, metadata: Mapping[str, Any], *, is_question: bool) -> BaseModel | None:
    """The model of a move's metadata; None without a model, or for a question that does not fit it."""
    if edge.metadata is None:
        return None
    try:
        return _made(edge, edge.metadata, metadata)
    except BadMetadata:
        if not is_question:
            raise
        return None


def checked_metadata(edge: Edge, metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """The metadata of a move as it is stored. Raises BadMetadata if it does not fit the model."""
    if edge.metadata is None:
        return _stored(edge, metadata)
    return _dumped(edge, _made(edge, edge.metadata, metadata))


def _made(edge: Edge, model: type[BaseModel], metadata: Mapping[str, Any]) -> BaseModel:
    try:
        return model.model_validate(dict(metadata))
    except ValidationError as error:
        wrong = [
            f"{'.'.join(map(str, one['loc'])) or 'all of it'}: {one['msg']}, given {shown(one['input'])}"
            for one in error.errors()
        ]
        raise BadMetadata(edge.from_state, edge.to_state, model.__name__, wrong) from None


def _dumped(edge: Edge, made: BaseModel) -> Mapping[str, Any]:
    return _stored(edge, made.model_dump(mode="json", by_alias=True, round_trip=True))


def _stored(edge: Edge, metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """The metadata as it will be read back. Raises BadBody, and BadMetadata for what is not JSON."""
    if not metadata:
        return NOTHING
    try:
        text = Moved(to_state=edge.to_state, metadata=metadata).body()
    except (PydanticSerializationError, UnicodeDecodeError) as error:
        raise BadMetadata(edge.from_state, edge.to_state, "JSON", [str(error)]) from None
    return FrozenDict(frozen(json.loads(text)["metadata"]))


def callbacks_of(definition: Definition, about: Any, from_state: str | None, to_state: str) -> Calls:
    """The callbacks around a move."""
    if not definition.callbacks:
        return NO_CALLS
    before, after, after_commit = (
        [partial(one.function, about) for one in definition.called(kind, from_state, to_state)]
        for kind in (Kind.BEFORE, Kind.AFTER, Kind.AFTER_COMMIT)
    )
    return Calls(before, after, after_commit)


def record_move(stream: MachineStream, edge: Edge, metadata: Mapping[str, Any], number: int) -> None:
    """Record a move along a transition in the stream's news."""
    stream.record(
        stream.MOVED(
            from_state=edge.from_state or None, to_state=edge.to_state, metadata=metadata, definition=number
        )
    )


def _place(guard: Callback) -> str:
    """The file and line of a guard."""
    code = getattr(guard.function, "__code__", None)
    return "" if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def fast_move(
    ledger: Ledger,
    kind: type[MachineStream],
    definition: Definition,
    stream: str,
    to_state: str,
    metadata: Mapping[str, Any],
    meta: Mapping[str, Any],
) -> Transition | None:
    """The move in one round trip, if the table alone decides it; None if the object must be opened first.

    It records what opening the object, deciding and appending would record, with the same conflicts. The
    object must be opened if guards or callbacks are to be called, if its head does not hold its state, and if
    the table does not allow the move. Raises TransitionConflict, LedgerBusy, AppendUncertain,
    ServerUnavailable.
    """
    number = definition.numbers.get(ledger, {}).get(kind.CATEGORY)
    edges = definition.decided_by_table.get(to_state)
    if not edges or not number:  # the first move of a process records the definition, if it is allowed
        return None
    place, stored = (kind.CATEGORY, number, to_state), NOTHING
    choices = None if metadata else definition.choices.get(place)
    try:
        if choices is None:
            stored = checked_metadata(edges[0], metadata)
            choices = _choices(kind, edges, number, stored, definition.initial_state)
            if not metadata and edges[0].metadata is None:  # mostly; then they are the same each time
                definition.choices[place] = choices
        chosen = ledger.append_from(stream, choices, **meta)
    except (BadMetadata, BadInput):
        return None
    except StreamConflict as error:
        raise TransitionConflict(error.stream, error.expected, error.found, to_state) from error
    except LedgerBusy as error:
        streams = [kind(*split_name(stream)[1])]
        raise conflict_of(ledger, streams, error.__cause__, inside=False) or error from error.__cause__
    if chosen is None:
        return None
    at, claimed = chosen.recorded_at, meta.get("claimed_at")
    return Transition(to_state, chosen.before, chosen.version, at, stored, number, claimed)


def _choices(
    kind: type[MachineStream],
    edges: Sequence[Edge],
    number: int,
    metadata: Mapping[str, Any],
    initial: str | None,
) -> Choices:
    """The move and the state after it, by the state that the object is in."""
    by_state: dict[MachineState, Event] = {}
    for edge in edges:
        moved = kind.MOVED(
            from_state=edge.from_state, to_state=edge.to_state, metadata=metadata, definition=number
        )
        by_state[MachineState(edge.from_state)] = moved
    is_allowed_first = any(edge.from_state == initial for edge in edges)
    return Choices.of(kind, by_state, initial if is_allowed_first else None)
