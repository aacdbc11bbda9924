"""What a machine is to the questions of this package: its name, its states, which may follow which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ledger import BadInput, InvalidState, Ledger, StreamNotFound, UnknownMachine
from ledger.errors import shown
from ledger.machines import MACHINES, Definition, Machine, MachineDefined, MachineDefinition
from ledger.machines.defining import CATEGORY
from ledger.names import split_name
from ledger.recorded import Recorded


@dataclass(frozen=True, slots=True)
class Known:
    """A machine, as a class of this process says, or as the ledger's last definition of it does.

    states: in the order of declaration. pairs: which state may follow which. dropped: states that an earlier
    definition had. number: of the ledger's last definition, 0 where it has none; since: when it was recorded.
    """

    name: str
    states: tuple[str, ...]
    initial_state: str | None
    pairs: tuple[tuple[str, str], ...]
    dropped: tuple[str, ...] = ()
    number: int = 0
    since: datetime | None = None

    def checked(self, *states: Any) -> tuple[str, ...]:
        """The states that are meant: texts, or lists; dropped ones too. Raises InvalidState (W2-13)."""
        every = (*self.states, *self.dropped)
        found = Definition(states=every).known(*states)
        if not found:
            raise InvalidState(
                f"say which states of {self.name} are meant: {', '.join(every) or 'it has none'}"
            )
        return found


Which = type[Machine] | str | Known
"""A machine, by its class, by its name, or as `known_machine` gave it."""


def known_machine(ledger: Ledger, machine: Which) -> Known:
    """What a class says, or what the ledger's last definition of this name says. Raises UnknownMachine.

    A name that the ledger does not know is that of a class which this process has imported.
    """
    if isinstance(machine, Known):
        return machine
    if isinstance(machine, type) and issubclass(machine, Machine):
        machine.streams()  # refuses one without a name
        return _of_class(machine, _recorded(ledger, machine.name))
    if not isinstance(machine, str):
        raise BadInput(f"a machine is asked for by its class or its name, not by {shown(machine)}")
    past = _recorded(ledger, machine)
    if past:
        return _of_ledger(machine, past)
    if machine in MACHINES:
        return _of_class(MACHINES[machine], [])
    raise UnknownMachine(machine, sorted({*names(ledger), *MACHINES}))


def of_class(machine: type[Machine] | Known) -> Known:
    """The same without a ledger, so without dropped states."""
    if isinstance(machine, Known):
        return machine
    given: Any = machine
    if not (isinstance(given, type) and issubclass(given, Machine)):
        raise BadInput(
            "a machine is given by its class, or as `known_machine(log, name)` gives it, "
            f"not by {shown(machine)}"
        )
    machine.streams()
    return _of_class(machine, [])


def machines(ledger: Ledger) -> list[Known]:
    """Every machine that the ledger knows, by name."""
    return [_of_ledger(name, _recorded(ledger, name)) for name in names(ledger)]


def names(ledger: Ledger) -> list[str]:
    """The names of the machines that the ledger knows."""
    found: list[str] = []
    last = ""
    while page := ledger.streams(f"{CATEGORY}/", after=last):
        last = page[-1].stream
        found += [split_name(info.stream)[1][0] for info in page]
    return found


def definition_events(ledger: Ledger, machine: str) -> list[Recorded]:
    """The definitions of a machine as they are recorded; the version of each is its number."""
    try:
        return ledger.read(MachineDefinition.name_of(machine))
    except StreamNotFound:
        return []


def _recorded(ledger: Ledger, machine: str) -> Sequence[tuple[Recorded, MachineDefined]]:
    pairs = ((event, event.event) for event in definition_events(ledger, machine))
    return [(event, fact) for event, fact in pairs if isinstance(fact, MachineDefined)]


def _of_ledger(name: str, past: Sequence[tuple[Recorded, MachineDefined]]) -> Known:
    last, fact = past[-1]
    pairs = tuple((one["from"], one["to"]) for one in fact.transitions)
    return Known(
        name,
        fact.states,
        fact.initial_state,
        pairs,
        _dropped(fact.states, past),
        last.version,
        last.recorded_at,
    )


def _of_class(machine: type[Machine], past: Sequence[tuple[Recorded, MachineDefined]]) -> Known:
    pairs = tuple((edge.from_state, edge.to_state) for edge in machine.definition.edges)
    states = tuple(map(str, machine.states))
    number, since = (past[-1][0].version, past[-1][0].recorded_at) if past else (0, None)
    return Known(machine.name, states, machine.initial_state, pairs, _dropped(states, past), number, since)


def _dropped(states: Sequence[str], past: Sequence[tuple[Recorded, MachineDefined]]) -> tuple[str, ...]:
    every = dict.fromkeys(state for _, fact in past for state in fact.states)
    return tuple(state for state in every if state not in states)
