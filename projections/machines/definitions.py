"""The recorded definitions of a machine, and the changes from each to the next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ledger import BadInput, Ledger
from ledger.errors import shown
from ledger.machines.definition_stream import DefinitionState, MachineDefinition

from .info import MachineRef, machine_info, recorded_definitions

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class DefinitionChange:
    """The differences between two definitions; all empty if there are none.

    initial_state: before and after, None if unchanged. transitions: pairs of from and to; changed ones have
    another time or model. callbacks: names; changed ones have another kind, other moves or other code.
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
        """The changes as lines of text: `+ submitted → refunded`."""
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
class RecordedDefinition:
    """A recorded definition: its number, when and by whom it was recorded, and what it changed.

    Number 0, without a time, is a definition that was derived from recorded moves.
    """

    number: int
    at: datetime | None
    actor: str | None
    position: int
    defined: DefinitionState
    changed: DefinitionChange


def definitions(ledger: Ledger, machine: MachineRef) -> list[RecordedDefinition]:
    """All recorded definitions of a machine, by number. The first one adds everything.

    Empty for a class that the ledger does not know yet. Raises UnknownMachine.
    """
    name = machine_info(ledger, machine).name
    found, before = [], DefinitionState()
    for event, fact in recorded_definitions(ledger, name):
        now = MachineDefinition.evolve(before, fact, event.recorded_at)
        found.append(
            RecordedDefinition(
                event.version, event.recorded_at, event.meta.actor, event.position, now, changed(before, now)
            )
        )
        before = now
    return found


def definition(ledger: Ledger, machine: MachineRef, number: int) -> RecordedDefinition:
    """The definition of a number. Raises UnknownMachine, BadInput if there is none."""
    every = definitions(ledger, machine)
    for one in every:
        if one.number == number:
            return one
    there = f"the numbers are 1 to {len(every)}" if every else "none is recorded yet"
    name = machine_info(ledger, machine).name
    raise BadInput(f"machine {name} has no definition {shown(number)}: {there}")


def changed(one: DefinitionState, other: DefinitionState) -> DefinitionChange:
    """The changes from one definition to another."""
    edges, edges_then = _by_pair(other.transitions), _by_pair(one.transitions)
    calls, calls_then = _by_name(other.callbacks), _by_name(one.callbacks)
    initial = (one.initial_state, other.initial_state)
    return DefinitionChange(
        _less(other.states, one.states), _less(one.states, other.states),
        None if initial[0] == initial[1] else initial,
        _less(edges, edges_then), _less(edges_then, edges), _other(edges, edges_then),
        _less(calls, calls_then), _less(calls_then, calls), _other(calls, calls_then),
    )  # fmt: skip


def _by_pair(transitions: Iterable[Mapping[str, Any]]) -> dict[Pair, Any]:
    return {(one["from"], one["to"]): dict(one) for one in transitions}


def _by_name(callbacks: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The entries of each callback, by name."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in callbacks:
        found.setdefault(one["name"], []).append({**one})
    return found


def _less(names: Iterable[Any], others: Iterable[Any]) -> tuple[Any, ...]:
    there = set(others)
    return tuple(name for name in names if name not in there)


def _other(now: Mapping[Any, Any], then: Mapping[Any, Any]) -> tuple[Any, ...]:
    return tuple(name for name, said in now.items() if name in then and then[name] != said)
