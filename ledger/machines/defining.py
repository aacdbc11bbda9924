"""Definitions as facts: what a machine allowed, from when on, under a number that each move names.

A machine's table and what it asks are recorded in the stream `machine/NAME` when an object first moves by
them; a changed table or a changed function is the next number (spec W2-15). Old histories stay what they
were.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from tokenize import TokenError
from typing import Any, Final
from weakref import WeakKeyDictionary

from .. import canon
from ..errors import StreamConflict
from ..event import Event
from ..frozen import FrozenDict
from ..moves import Moves
from ..store.declaring import Move, declare_moves
from ..store.ledger import Ledger
from ..stream import Stream
from .definition import Callback, Definition, Edge

CATEGORY: Final = "machine"
"""The category of the streams of definitions."""


class MachineDefined(Event, topic="machine.defined"):
    """What a machine allows from now on.

    transitions: of each `from`, `to`, `after` in seconds where it is due by itself, `metadata` the name of a
    model. callbacks: of each `kind`, `name`, `from`, `to` and `code`, a digest of its source.
    """

    initial_state: str | None
    states: tuple[str, ...]
    transitions: tuple[Mapping[str, Any], ...]
    callbacks: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Defined:
    """The present definition of a machine: its `number`, and what the last MachineDefined says."""

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


class MachineDefinition(Stream[Defined, MachineDefined]):
    """The definitions of one machine, one after the other: `machine/payment`."""

    CATEGORY = CATEGORY
    MOVES = Moves({})
    STATE = Defined

    @staticmethod
    def evolve(state: Defined, event: MachineDefined, at: datetime, /) -> Defined:
        """The last one holds."""
        return Defined(
            None, state.number + 1, event.initial_state, event.states, event.transitions, event.callbacks, at
        )


def recorded_as(definition: Definition) -> MachineDefined:
    """The fact that a definition is."""
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


def declare(ledger: Ledger, name: str, topic: str, definition: Definition) -> int:
    """The number of a definition in a ledger; recorded there where it is not the last one. Once a process.

    Needs the writer's role. Raises NoPermission, ServerUnavailable.
    """
    known = _DECLARED.setdefault(ledger, {})
    place = name, id(definition)  # not by value: what is called need not be hashable
    if place not in known:
        declare_moves(ledger, {topic: Move(field="to_state")})
        known[place] = definition, _declare(ledger, name, definition)
    return known[place][1]


def number_of(ledger: Ledger, name: str, definition: Definition) -> int:
    """The number of a definition that this process has declared in the ledger; 0 where it has not."""
    known = _DECLARED.get(ledger, {}).get((name, id(definition)))
    return 0 if known is None else known[1]


def _declare(ledger: Ledger, name: str, definition: Definition) -> int:
    fact = recorded_as(definition)
    while True:
        stream = ledger.load(MachineDefinition, name)
        now = stream.state
        same = (now.initial_state, now.states, now.transitions, now.callbacks) == (
            fact.initial_state, fact.states, fact.transitions, fact.callbacks,
        )  # fmt: skip
        if same and now.number:
            return now.number
        stream.record(fact)
        try:
            ledger.commit(stream)
        except StreamConflict:  # another process defines it just now
            continue
        return stream.state.number


# The definitions are kept, so that no other takes the id of one that is gone.
_DECLARED: WeakKeyDictionary[Ledger, dict[tuple[str, int], tuple[Definition, int]]] = WeakKeyDictionary()


def _plain(parts: Mapping[str, Any]) -> Mapping[str, Any]:
    return FrozenDict({name: value for name, value in parts.items() if value is not None})


def _code(callback: Callback) -> str:
    """A digest of a callback's source, so that a change of what it asks is seen; of its name without one."""
    function: Any = callback.function
    while isinstance(function, partial):
        function = function.func
    try:
        text = inspect.getsource(function if hasattr(function, "__code__") else type(function))
    except (OSError, TypeError, SyntaxError, TokenError):  # the last two: the file was changed since
        text = callback.name
    return canon.digest(text).hex()[:16]
