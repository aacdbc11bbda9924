"""One move on its way: what is said with it, what is asked, what is called, and then it is recorded."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from ..errors import BadMetadata, GuardRefused, TransitionFailed, shown
from ..frozen import FrozenDict, frozen
from .definition import Callback, Definition, Edge, Kind
from .keeping import Calls
from .transition import MachineStream, Moved, Transition

if TYPE_CHECKING:
    from .machine import Machine

NOTHING: Final[Mapping[str, Any]] = FrozenDict()
NO_CALLS: Final = Calls()
Refusal = TransitionFailed | GuardRefused


class Move:
    """A move that is put together: `machine.transition_to("submitted").with_(submission_id=7).execute()`.

    Nothing happens before `execute` or `attempt`; a move that is dropped before says so.
    """

    def __init__(self, machine: Machine, to_state: str, metadata: Mapping[str, Any] = NOTHING) -> None:
        self._machine, self.to_state, self.metadata = machine, to_state, dict(metadata)
        self._done = False

    def with_(self, /, **metadata: Any) -> Move:
        """Say more with the move."""
        self.metadata |= metadata
        return self

    def execute(self, *, command: str | None = None, expected: int | None = None, **meta: Any) -> Transition:
        """Move. The successor check and the guards look at what the move is then checked against (W2-01).

        command: an id under which the move happens once; a repeat returns what it did. expected: how often
        the object has moved; a TransitionConflict where it has not, or more often. meta: other fields of
        Meta. Raises TransitionFailed, GuardRefused, TransitionConflict, BadMetadata, CommandReused, and what
        a callback raises.
        """
        done = self._run({"command": command, **meta}, expected)
        if isinstance(done, TransitionFailed | GuardRefused):
            raise done
        return done

    def attempt(self, *, command: str | None = None, **meta: Any) -> Transition | None:
        """The same; None where the state is no successor or a guard refuses. All other errors are raised,
        those of another machine in a callback too (spec S2-36, W2-07)."""
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


def decided(
    machine: str,
    definition: Definition,
    stream: MachineStream,
    about: Any,
    to_state: str,
    said: Mapping[str, Any],
) -> Edge | Refusal:
    """The declared transition that allows a move, or why none does. Table first, guards second (S2-34)."""
    old = stream.state.status or definition.initial_state
    edge = definition.edge(old, to_state)
    if edge is None or old is None:
        allowed = definition.successors.get(old or "", ())
        return TransitionFailed(machine, old, to_state, allowed)
    for guard in definition.called(Kind.GUARD, old, to_state):
        if not guard.function(about, stream.state.last, FrozenDict(said)):
            return GuardRefused(machine, old, to_state, guard.name, _place(guard))
    return edge


def fitting(edge: Edge, metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is said with a move, as it is stored. Raises BadMetadata where it does not fit the model."""
    if edge.metadata is None:
        return _stored(edge, metadata)
    try:
        made = edge.metadata.model_validate(dict(metadata))
    except ValidationError as error:
        wrong = [
            f"{'.'.join(map(str, one['loc'])) or 'all of it'}: {one['msg']}, given {shown(one['input'])}"
            for one in error.errors()
        ]
        raise BadMetadata(edge.from_state, edge.to_state, edge.metadata.__name__, wrong) from None
    return _stored(edge, made.model_dump(mode="json", by_alias=True, round_trip=True))


def _stored(edge: Edge, said: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same as it will be read back. Raises BadBody, and BadMetadata for what JSON has no way to say."""
    if not said:
        return NOTHING
    try:
        text = Moved(to_state=edge.to_state, metadata=said).body()
    except (PydanticSerializationError, UnicodeDecodeError) as error:
        raise BadMetadata(edge.from_state, edge.to_state, "JSON", [str(error)]) from None
    return FrozenDict(frozen(json.loads(text)["metadata"]))


def calls_for(definition: Definition, about: Any, from_state: str | None, to_state: str) -> Calls:
    """What is called around a move."""
    if not definition.callbacks:
        return NO_CALLS
    before, after, after_commit = (
        [partial(one.function, about) for one in definition.called(kind, from_state, to_state)]
        for kind in (Kind.BEFORE, Kind.AFTER, Kind.AFTER_COMMIT)
    )
    return Calls(before, after, after_commit)


def news(stream: MachineStream, edge: Edge, metadata: Mapping[str, Any], number: int) -> None:
    """Let a stream move along an edge."""
    stream.record(
        stream.MOVED(
            from_state=edge.from_state or None, to_state=edge.to_state, metadata=metadata, definition=number
        )
    )


def _place(guard: Callback) -> str:
    """Where a guard is written."""
    code = getattr(guard.function, "__code__", None)
    return "" if code is None else f"{code.co_filename}:{code.co_firstlineno}"


__all__ = ["Moved", "Move", "calls_for", "decided", "fitting", "news"]
