"""Definitions as events: the stream `machine/NAME` records each definition of a machine; each move names its
number.

A definition is recorded before the first move that it allows. A changed table, or a changed function, is the
next definition (spec W2-15). Old histories stay as they are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from tokenize import TokenError
from typing import Any, Final

from pydantic import ValidationInfo, field_validator

from ..domain import canonical_json
from ..domain.event import Event
from ..domain.frozen import FrozenDict
from ..domain.moves import Moves
from ..domain.stream import Stream
from ..domain.topics import TopicStatus
from ..log import read
from ..log.announce import announce_statuses_on
from ..log.append import append_of
from ..log.appender import send
from ..log.ledger import Ledger
from ..log.pool import Connection
from ..log.retry import retry_conflicts
from .definition import Callback, Definition, Edge

CATEGORY: Final = "machine"
"""The category of the streams of definitions."""


class MachineDefined(Event, topic="machine.defined"):
    """A machine was defined anew.

    transitions: each with `from`, `to`, `after` (seconds, if it is due by itself) and `metadata` (name of its
    model). callbacks: each with `kind`, `name`, `from`, `to` and `code`, a digest of its source.
    """

    initial_state: str | None
    states: tuple[str, ...]
    transitions: tuple[Mapping[str, Any], ...]
    callbacks: tuple[Mapping[str, Any], ...] = ()

    @field_validator("transitions", "callbacks")
    @classmethod
    def _check_named(cls, given: tuple[Mapping[str, Any], ...], info: ValidationInfo) -> Any:
        """Refuse a transition without its two states, or a callback without a name."""
        needed = ("from", "to") if info.field_name == "transitions" else ("name",)
        for one in given:
            if wrong := [name for name in needed if not isinstance(one.get(name), str)]:
                raise ValueError(f"each of the {info.field_name} needs the text {wrong[0]!r}")
        return given


@dataclass(frozen=True)
class DefinitionState:
    """The present definition of a machine: its `number`, and the fields of the last MachineDefined."""

    status: None = None
    number: int = 0
    initial_state: str | None = None
    states: tuple[str, ...] = ()
    transitions: tuple[Mapping[str, Any], ...] = ()
    callbacks: tuple[Mapping[str, Any], ...] = ()
    since: datetime | None = None

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Which state may follow which."""
        return [(one["from"], one["to"]) for one in self.transitions]


class MachineDefinition(Stream[DefinitionState, MachineDefined]):
    """The definitions of one machine: `machine/payment`."""

    CATEGORY = CATEGORY
    MOVES = Moves({})
    STATE = DefinitionState

    @staticmethod
    def evolve(state: DefinitionState, event: MachineDefined, at: datetime, /) -> DefinitionState:
        """The last definition applies."""
        return DefinitionState(
            None, state.number + 1, event.initial_state, event.states, event.transitions, event.callbacks, at
        )


def recorded_as(definition: Definition) -> MachineDefined:
    """The event that records a definition."""
    return MachineDefined(
        initial_state=definition.initial_state,
        states=definition.states,
        transitions=tuple(map(_transition, definition.edges)),
        callbacks=tuple(map(_callback, definition.callbacks)),
    )


def _transition(edge: Edge) -> Mapping[str, Any]:
    return _plain(
        {
            "from": edge.from_state,
            "to": edge.to_state,
            "after": edge.after and edge.after.total_seconds(),
            "metadata": edge.metadata and edge.metadata.__name__,
        }
    )


def _callback(callback: Callback) -> Mapping[str, Any]:
    return _plain(
        {
            "kind": callback.kind.value,
            "name": callback.name,
            "from": callback.from_state,
            "to": list(callback.to_states) or None,
            "code": _code(callback),
        }
    )


def declare(ledger: Ledger, name: str, definition: Definition) -> int:
    """The number of a definition in a ledger. It is recorded unless it is the last one; once a process.

    Needs the writer's role. Raises NoPermission, ServerUnavailable.
    """
    numbers = definition.numbers.setdefault(ledger, {})
    if name not in numbers:
        load = partial(ledger.load, MachineDefinition, name)
        numbers[name] = _numbered(recorded_as(definition), load, ledger.commit)
    return numbers[name]


def declare_inside(
    connection: Connection, ledger: Ledger, name: str, topic: str, definition: Definition
) -> int:
    """The same in an open transaction. The number holds once it is committed."""
    announce_statuses_on(connection, ledger.schema, {topic: TopicStatus(field="to_state")})

    def load() -> MachineDefinition:
        return read.open_one(connection, ledger.schema, MachineDefinition, (name,))

    def commit(stream: MachineDefinition) -> None:
        send(connection, ledger.schema, [append_of(stream)], ledger.meta().body(), None)

    return _numbered(recorded_as(definition), load, commit)


def _numbered(
    fact: MachineDefined, load: Callable[[], MachineDefinition], commit: Callable[[MachineDefinition], object]
) -> int:
    """The number of a definition; it is recorded unless it is the last one."""

    def decide() -> int:
        stream = load()
        if not _is_last(stream.state, fact):
            stream.record(fact)
            commit(stream)
        return stream.state.number

    return retry_conflicts(decide)


def _is_last(now: DefinitionState, fact: MachineDefined) -> bool:
    """Whether the recorded definition is this one."""
    return now.number > 0 and (now.initial_state, now.states, now.transitions, now.callbacks) == (
        fact.initial_state, fact.states, fact.transitions, fact.callbacks,
    )  # fmt: skip


def _plain(parts: Mapping[str, Any]) -> Mapping[str, Any]:
    return FrozenDict({name: value for name, value in parts.items() if value is not None})


def _code(callback: Callback) -> str:
    """A digest of a callback's source, or of its name if there is no source."""
    function: Any = callback.function
    while isinstance(function, partial):
        function = function.func
    try:
        text = inspect.getsource(function if hasattr(function, "__code__") else type(function))
    except (OSError, TypeError, SyntaxError, TokenError):  # the last two: the file was changed since
        text = callback.name
    return canonical_json.digest(text).hex()[:16]
