"""What the commands of machines ask of a ledger: a definition by its number, and how many are where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ..codes import NotThere
from ..session import Session
from .picture import Picture, picture_of

if TYPE_CHECKING:
    from ledger import Ledger
    from projections.machines import Numbered

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The machine's name, such as `machines list` has it.")
]
Number = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Its definition of this number; else the last one.")
]


@dataclass(frozen=True)
class Asked:
    """A machine under one of its definitions: that one, how many there are, and how it is drawn."""

    name: str
    definition: Numbered
    latest: int
    picture: Picture


def asked(session: Session, log: Ledger, name: str, number: int | None, *, counted: bool = True) -> Asked:
    """The machine of a name. Nothing but the ledger need know it. Raises UnknownMachine, NotThere."""
    latest, wanted = numbered(log, name, number)
    counts = counts_of(session, log, name) if counted else None
    return Asked(name, wanted, latest.number, picture_of(name, wanted.defined, counts))


def numbered(log: Ledger, name: str, number: int | None) -> tuple[Numbered, Numbered]:
    """The last definition of a machine, and the one of this number. Raises UnknownMachine, NotThere."""
    from ledger import UnknownMachine
    from projections.machines import definitions

    from ..naming_views import with_near

    try:
        every = definitions(log, name)
        if not every:  # a module that was imported knows it; the ledger does not
            raise UnknownMachine(name, names(log))
    except UnknownMachine as error:
        raise with_near(error, name, names(log)) from None
    for one in reversed(every):
        if number in (None, one.number):
            return every[-1], one
    many = f"{len(every)} definition{'s' * (len(every) > 1)}"
    raise NotThere(f"{name} has {many}, and none of number {number}", machine=name, number=number)


def names(log: Ledger) -> list[str]:
    """The names of the machines that the ledger knows."""
    from projections.machines import machines

    return [known.name for known in machines(log)]


def counts_of(session: Session, log: Ledger, name: str) -> Mapping[str, int]:
    """How many objects are in each state: by the view in_state, or by the events where it is not made."""
    from projections.audit import Question
    from projections.audit import counts as counted_by_events
    from projections.feeds import filling_of
    from projections.machines import counts

    filling = filling_of(log, "in_state")
    if filling is None:
        session.say("counted by the events; `pledger views attach in_state` keeps counts at hand")
        _, rows = counted_by_events(log, Question(category=name))
        return {row.status: row.streams for row in rows}
    if not filling.inline and filling.position < (end := log.bound()):
        session.say(f"counted up to position {filling.position} of {end}, as far as the view in_state is")
    return {one.state: one.objects for one in counts(log, name)}
