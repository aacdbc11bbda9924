"""The machines of a ledger: names, states, transitions, and their activity."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ledger import BadInput, InvalidState, Ledger, StreamNotFound, UnknownMachine, UnreadableEvent
from ledger.domain.known import KNOWN
from ledger.domain.names import split_name
from ledger.errors import shown
from ledger.log.read import leave_out
from ledger.log.recorded import Recorded
from ledger.log.sql import Statements
from ledger.machines import Definition, Machine
from ledger.machines.definition_stream import CATEGORY, DefinitionState, MachineDefined, MachineDefinition
from ledger.machines.transition import checked_machine

from ..feeds import filling_of

SQL = Statements(__package__, "info")


@dataclass(frozen=True, slots=True)
class MachineInfo:
    """A machine, as its class in this process or the ledger's last definition describes it.

    states: in the order of declaration. pairs: which state may follow which. dropped: states of earlier
    definitions. number: of the ledger's last definition, 0 if it has none; since: when that was recorded. A
    machine that was adopted without a definition has only a name.
    """

    name: str
    states: tuple[str, ...]
    initial_state: str | None
    pairs: tuple[tuple[str, str], ...]
    dropped: tuple[str, ...] = ()
    number: int = 0
    since: datetime | None = None

    def checked(self, *states: Any) -> tuple[str, ...]:
        """The given states as texts; each may be a list, or a dropped state. Raises InvalidState (W2-13)."""
        every = (*self.states, *self.dropped)
        found = Definition(states=every).known(*states)
        if not found:
            raise InvalidState(f"name one or more states of {self.name}: {', '.join(every) or 'it has none'}")
        return found


MachineRef = type[Machine] | str | MachineInfo
"""A machine, by its class, by its name, or as `machine_info` returned it."""
Past = Sequence[tuple[Recorded, MachineDefined]]


def machine_info(ledger: Ledger, machine: MachineRef) -> MachineInfo:
    """A machine by its class, or by its name: then as the ledger's last definition describes it.

    A name without a definition in the ledger is looked up among the imported classes. Raises UnknownMachine,
    and UnreadableEvent if no definition of the name can be read.
    """
    if isinstance(machine, MachineInfo):
        return machine
    if isinstance(machine, type) and issubclass(machine, Machine):
        machine.streams()  # refuses one without a name
        return _of_class(machine, recorded_definitions(ledger, machine.name))
    if not isinstance(machine, str):
        raise BadInput(f"a machine must be a class or a name, not {shown(machine)}")
    past = recorded_definitions(ledger, machine)
    if past:
        return _of_ledger(machine, past)
    if machine in KNOWN.machines:
        return _of_class(KNOWN.machines[machine], [])
    if machine in (adopted := undefined(ledger)):
        return MachineInfo(machine, (), None, ())
    for event in definition_events(ledger, machine):
        _ = event.event  # raises, because none of them can be read
    raise UnknownMachine(machine, sorted({*names(ledger), *adopted, *KNOWN.machines}))


def of_class(machine: type[Machine] | MachineInfo) -> MachineInfo:
    """The same without a ledger, so without dropped states."""
    if isinstance(machine, MachineInfo):
        return machine
    given: Any = machine
    if not (isinstance(given, type) and issubclass(given, Machine)):
        raise BadInput(
            f"a machine must be a class, or a result of `machine_info(log, name)`, not {shown(machine)}"
        )
    machine.streams()
    return _of_class(machine, [])


def machines(ledger: Ledger) -> list[MachineInfo]:
    """Every machine in the ledger, by name, also adopted ones without a definition.

    A machine without a readable definition is left out.
    """
    every = ((name, recorded_definitions(ledger, name)) for name in names(ledger))
    defined = [_of_ledger(name, past) for name, past in every if past]
    adopted = [MachineInfo(name, (), None, ()) for name in undefined(ledger)]
    return sorted([*defined, *adopted], key=lambda known: known.name)


def undefined(ledger: Ledger) -> list[str]:
    """The names of the machines that were adopted and have no recorded definition."""
    return [name for (name,) in ledger.query(SQL.undefined)]


def as_moved(ledger: Ledger, machine: str) -> DefinitionState:
    """A definition that is derived from the recorded moves: their states, and which followed which."""
    name = checked_machine(machine)
    span: dict[str, Any] = {"low": f"{name}/", "high": f"{name}0", "topic": f"{name}.moved"}
    pairs = ledger.query(SQL.pairs_moved, **span)
    states = dict.fromkeys(state for pair in pairs for state in pair if state is not None)
    followed = tuple({"from": old, "to": new} for old, new in pairs if old is not None)
    return DefinitionState(states=tuple(states), transitions=followed)


def names(ledger: Ledger) -> list[str]:
    """The names of the machines with a recorded definition."""
    found: list[str] = []
    last = ""
    while page := ledger.streams(f"{CATEGORY}/", after=last):
        last = page[-1].stream
        keys = [split_name(info.stream)[1] for info in page]
        found += [key[0] for key in keys if len(key) == 1 and key[0]]
    return found


def definition_events(ledger: Ledger, machine: str) -> list[Recorded]:
    """The recorded definitions of a machine; the version of each is its number."""
    try:
        return ledger.read(MachineDefinition.name_of(machine))
    except StreamNotFound:
        return []


def recorded_definitions(ledger: Ledger, machine: str) -> list[tuple[Recorded, MachineDefined]]:
    """The readable definitions of a machine; others are left out and logged."""
    found = []
    for event in definition_events(ledger, machine):
        try:
            fact = event.event
        except UnreadableEvent as error:
            leave_out(error)
        else:
            if isinstance(fact, MachineDefined):
                found.append((event, fact))
    return found


def _of_ledger(name: str, past: Past) -> MachineInfo:
    last = past[-1][1]
    return _info(
        name, last.states, last.initial_state, [(one["from"], one["to"]) for one in last.transitions], past
    )


def _of_class(machine: type[Machine], past: Past) -> MachineInfo:
    pairs = [(edge.from_state, edge.to_state) for edge in machine.definition.edges]
    return _info(machine.name, tuple(map(str, machine.states)), machine.initial_state, pairs, past)


def _info(
    name: str, states: tuple[str, ...], initial: str | None, pairs: Iterable[tuple[str, str]], past: Past
) -> MachineInfo:
    dropped = dict.fromkeys(state for _, fact in past for state in fact.states if state not in states)
    number, since = (past[-1][0].version, past[-1][0].recorded_at) if past else (0, None)
    return MachineInfo(name, states, initial, tuple(pairs), tuple(dropped), number, since)


class Activity(NamedTuple):
    """The activity of a machine: how many objects and moves. last_move: None if nothing moved."""

    objects: int = 0
    moves: int = 0
    last_move: datetime | None = None


def activity(ledger: Ledger, machines: Sequence[str]) -> dict[str, Activity]:
    """The activity of machines by name, from the view in_state if it is there, else from the events."""
    made = filling_of(ledger, "in_state") is not None
    statement = SQL.activity if made else SQL.activity_of_events
    rows = ledger.query(statement, machines=list(machines))
    found = {name: Activity(objects, moves, at.astimezone(UTC)) for name, objects, moves, at in rows}
    return {name: found.get(name, Activity()) for name in machines}
