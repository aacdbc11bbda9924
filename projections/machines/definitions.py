"""The definitions of a machine, one after the other, and what changed from each to the next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ledger import BadInput, Ledger
from ledger.errors import shown
from ledger.machines import Defined, MachineDefined, MachineDefinition
from ledger.recorded import Recorded

from .known import Which, definition_events, known_machine

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Changed:
    """What one definition has and another has not; all empty where nothing changed.

    initial_state: before and after, None where it stayed. transitions: pairs of from and to; of the changed
    ones the time limit or the model is another. callbacks: names; of the changed ones the kind, the moves or
    the code are another.
    """

    states_added: tuple[str, ...] = ()
    states_removed: tuple[str, ...] = ()
    initial_state: tuple[str | None, str | None] | None = None
    transitions_added: tuple[Pair, ...] = ()
    transitions_removed: tuple[Pair, ...] = ()
    transitions_changed: tuple[Pair, ...] = ()
    callbacks_added: tuple[str, ...] = ()
    callbacks_removed: tuple[str, ...] = ()
    callbacks_changed: tuple[str, ...] = ()

    @property
    def lines(self) -> list[str]:
        """The same for people, a line each: `+ submitted → refunded`."""
        marks = (("+", "added"), ("-", "removed"), ("~", "changed"))
        said = [
            f"{mark} state {name}" for mark, what in marks[:2] for name in getattr(self, f"states_{what}")
        ]
        if self.initial_state is not None:
            old, new = (state or "none" for state in self.initial_state)
            said.append(f"~ initial state {old} → {new}")
        for mark, what in marks:
            said += [f"{mark} {old} → {new}" for old, new in getattr(self, f"transitions_{what}")]
        return said + [
            f"{mark} calls {name}" for mark, what in marks for name in getattr(self, f"callbacks_{what}")
        ]


@dataclass(frozen=True, slots=True)
class Numbered:
    """A recorded definition: its number, when and by whom it was recorded, and what it changed."""

    number: int
    at: datetime
    actor: str | None
    position: int
    defined: Defined
    changed: Changed


def definitions(ledger: Ledger, machine: Which) -> list[Numbered]:
    """All recorded definitions of a machine, by number; what the first one brings is all added.

    Empty for a class of which the ledger knows nothing yet. Raises UnknownMachine.
    """
    name = known_machine(ledger, machine).name
    found, before = [], Defined()
    for event in definition_events(ledger, name):
        if isinstance(event.event, MachineDefined):
            now = MachineDefinition.evolve(before, event.event, event.recorded_at)
            found.append(_numbered(event, now, changed(before, now)))
            before = now
    return found


def definition(ledger: Ledger, machine: Which, number: int) -> Numbered:
    """The definition of a number. Raises UnknownMachine, BadInput where there is none."""
    every = definitions(ledger, machine)
    for one in every:
        if one.number == number:
            return one
    there = f"the numbers are 1 to {len(every)}" if every else "none is recorded yet"
    name = known_machine(ledger, machine).name
    raise BadInput(f"machine {name} has no definition {shown(number)}; {there}")


def changed(one: Defined, other: Defined) -> Changed:
    """What leads from one definition to another."""
    edges, edges_then = _by_pair(other.transitions), _by_pair(one.transitions)
    calls, calls_then = _by_name(other.callbacks), _by_name(one.callbacks)
    initial = (one.initial_state, other.initial_state)
    return Changed(
        _less(other.states, one.states), _less(one.states, other.states),
        None if initial[0] == initial[1] else initial,
        _less(edges, edges_then), _less(edges_then, edges), _other(edges, edges_then),
        _less(calls, calls_then), _less(calls_then, calls), _other(calls, calls_then),
    )  # fmt: skip


def _numbered(event: Recorded, now: Defined, what: Changed) -> Numbered:
    return Numbered(event.version, event.recorded_at, event.meta.actor, event.position, now, what)


def _by_pair(transitions: Iterable[Mapping[str, Any]]) -> dict[Pair, Any]:
    return {(one["from"], one["to"]): dict(one) for one in transitions}


def _by_name(callbacks: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """All that is said of a function, which may stand there several times."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in callbacks:
        found.setdefault(one["name"], []).append({**one})
    return found


def _less(names: Iterable[Any], others: Iterable[Any]) -> tuple[Any, ...]:
    there = set(others)
    return tuple(name for name in names if name not in there)


def _other(now: Mapping[Any, Any], then: Mapping[Any, Any]) -> tuple[Any, ...]:
    return tuple(name for name, said in now.items() if name in then and then[name] != said)
