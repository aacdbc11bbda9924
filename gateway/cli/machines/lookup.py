"""Finds what the commands of machines need: definitions, counts, machines of the user's modules."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import NotThere
from ..session import Session, imported
from .picture import Picture, picture_of

if TYPE_CHECKING:
    from ledger import Ledger
    from projections.machines import RecordedDefinition
if TYPE_CHECKING:
    from ledger.machines import Machine
if TYPE_CHECKING:
    from ledger import Ledger

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The machine's name, as `pledger machines list` shows it.")
]
Number = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="The number of the definition. Default: the last one.")
]


@dataclass(frozen=True)
class ShownMachine:
    """A machine under one of its definitions: that one, the number of the last one, and the picture."""

    name: str
    definition: RecordedDefinition
    latest: int
    picture: Picture


def shown_machine(
    session: Session, log: Ledger, name: str, number: int | None, *, counted: bool = True
) -> ShownMachine:
    """The machine of a name, from the ledger alone. Raises UnknownMachine, NotThere."""
    latest, wanted = numbered(log, name, number)
    counts = counts_of(session, log, name) if counted else None
    if not latest.number:
        session.say(
            f"no definition of {name} is recorded: this one is derived from its moves; the first move of "
            "its class records one, or --machines when adopting"
        )
    return ShownMachine(name, wanted, latest.number, picture_of(name, wanted.defined, counts))


def numbered(log: Ledger, name: str, number: int | None) -> tuple[RecordedDefinition, RecordedDefinition]:
    """The last definition of a machine, and the one of this number. Raises UnknownMachine, NotThere."""
    from ledger import UnknownMachine
    from projections.machines import definitions
    from projections.machines.info import undefined

    from ..views import with_near

    try:
        every = definitions(log, name)
        if not every and name in undefined(log):
            every = [_as_moved(log, name)]
        if not every:  # only an imported module has it, the ledger does not
            raise UnknownMachine(name, names(log))
    except UnknownMachine as error:
        raise with_near(error, name, names(log)) from None
    for one in reversed(every):
        if number in (None, one.number):
            return every[-1], one
    many = f"{every[-1].number or 'no'} definition{'s' * (every[-1].number > 1)}"
    raise NotThere(f"{name} has {many}, and none of number {number}", machine=name, number=number)


def _as_moved(log: Ledger, name: str) -> RecordedDefinition:
    """Number 0: the definition that is derived from the moves of an adopted machine."""
    from projections.machines import DefinitionChange, RecordedDefinition
    from projections.machines.info import as_moved

    return RecordedDefinition(0, None, None, 0, as_moved(log, name), DefinitionChange())


def names(log: Ledger) -> list[str]:
    """The names of the machines in the ledger."""
    from projections.machines import machines

    return [known.name for known in machines(log)]


def counts_of(session: Session, log: Ledger, name: str) -> Mapping[str, int]:
    """The number of objects in each state, by the view in_state if it is there, else by the events."""
    from projections.audit import Question
    from projections.audit import counts as counted_by_events
    from projections.feeds import filling_of
    from projections.machines import counts

    filling = filling_of(log, "in_state")
    if filling is None:
        session.say("counted from the events; `pledger views attach in_state` keeps the counts")
        _, rows = counted_by_events(log, Question(category=name))
        return {row.status: row.streams for row in rows}
    if not filling.inline and filling.position < (end := log.bound()):
        session.say(f"the counts are from the view in_state, at position {filling.position} of {end}")
    return {one.state: one.objects for one in counts(log, name)}


Modules = Annotated[
    list[str] | None,
    typer.Option(
        "--machines",
        metavar="MODULE",
        help="Import a module that declares machines, as LEDGER_MACHINES does. Repeatable.",
    ),
]


def imported_machines(modules: Sequence[str] | None) -> Mapping[str, type[Machine]]:
    """All imported machines by name, after importing these modules and those of LEDGER_MACHINES.

    Raises Misuse for a module that cannot be imported.
    """
    from ledger.domain.known import KNOWN

    named = os.environ.get("LEDGER_MACHINES", "").split(",")
    for name in filter(None, map(str.strip, (*(modules or ()), *named))):
        imported(name, "module of machines")
    return KNOWN.machines
