"""
Unique names, each a stream of its own: which record or run has it now.

    (nothing) | free ──taken──▶ held ──freed──▶ free

The stream `run_name/KIND/PART…` is appended together with the stream of the record, each at the version that
was read, so that of two creators of one name only one succeeds (spec S3, the UQ of 4.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from ..domain.event import Event
from ..domain.frozen import changed
from ..domain.moves import Moves
from ..domain.names import split_name
from ..domain.stream import Stream
from ..log.ledger import Ledger


class NameStatus(StrEnum):
    """Whether something has the name."""

    HELD = "held"
    FREE = "free"


HELD, FREE = NameStatus.HELD, NameStatus.FREE
MOVES: Final = Moves({None: {HELD}, FREE: {HELD}, HELD: {FREE}})

# Facts: what happened, and the status it leads to.


class NameTaken(Event, topic="run_name.taken", to=HELD):
    """A record or run took the name. holder: its id."""

    holder: str


class NameFreed(Event, topic="run_name.freed", to=FREE):
    """The record was deleted or renamed. holder: the id of the one that had it."""

    holder: str


# State: what is true now.


@dataclass(frozen=True, slots=True)
class HeldName:
    """The state of a name. holder: the id of what has it; None if nothing has."""

    status: str | None = None
    holder: str | None = None


def evolve(name: HeldName, event: Event, at: datetime, /) -> HeldName:
    """Apply a fact. It applies no rules."""
    match event:
        case NameTaken():
            return changed(name, status=event.to, holder=event.holder)
        case NameFreed():
            return changed(name, status=event.to, holder=None)
        case _:
            return name


# Decisions: what may happen next.


class OpenName(Stream[HeldName, Event]):
    """A name open for change; its key is the kind and the parts of the name."""

    CATEGORY, MOVES, STATE = "run_name", MOVES, HeldName
    evolve = staticmethod(evolve)

    @property
    def holder(self) -> str | None:
        """The id of what has the name; None if nothing has."""
        return self.state.holder

    def take(self, holder: str) -> None:
        """Give the name to this id. Raises MoveNotAllowed where something has it."""
        self.record(NameTaken(holder=holder))

    def free(self) -> None:
        """Free the name. Raises MoveNotAllowed where nothing has it."""
        self.record(NameFreed(holder=self.state.holder or ""))


class Names:
    """The unique names of a ledger: of records, and the keys of idempotent runs."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def open(self, kind: str, *parts: str) -> OpenName:
        """The name as it is now, to take or free in an append with others."""
        return self.ledger.load(OpenName, kind, *parts)

    def holder(self, kind: str, *parts: str) -> str | None:
        """The id of what has this name; None if nothing has."""
        return self.open(kind, *parts).holder

    def below(self, kind: str, *parts: str) -> dict[tuple[str, ...], str]:
        """The holders of all names of a kind that begin with these parts, by the whole parts."""
        prefix = OpenName.name_of(kind, *parts) + "/"
        found = self.ledger.states((prefix, OpenName))[OpenName]
        return {split_name(name)[1][1:]: state.holder for name, _, state in found if state.holder is not None}
