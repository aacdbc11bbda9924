"""Cursors: how far a reader has come, with proof of which history it was."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from .. import canon
from ..errors import BadInput, CursorMismatch
from ..recorded import Recorded


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last event delivered to a reader: never a bound, because a sequence can fall back after a crash.

    Kept outside the ledger's database it also says which ledger and which event that was, so that a reader
    notices a restore to an earlier point. `str()` of it is what to store, `Cursor.parse` reads it again.
    """

    ledger: UUID
    position: int = 0
    mark: str = ""

    @classmethod
    def after(cls, ledger: UUID, event: Recorded) -> Cursor:
        """The cursor of a reader that has just handled `event`."""
        return cls(ledger, event.position, mark_of(event))

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """The cursor that `str()` wrote. Raises BadInput."""
        try:
            ledger, position, mark = text.split(":")
            return cls(UUID(ledger), int(position), mark)
        except ValueError:
            raise BadInput(f"{text!r} is not a cursor: it reads LEDGER:POSITION:MARK") from None

    def __str__(self) -> str:
        return f"{self.ledger}:{self.position}:{self.mark}"

    def check(self, ledger: UUID, found: Recorded | None) -> None:
        """Refuse to go on from another history. `found` is the event that the ledger has at `position`."""
        if self.ledger != ledger:
            raise CursorMismatch(f"the cursor is of ledger {self.ledger}, this is {ledger}")
        if self.position and found is None:
            raise CursorMismatch(
                f"the ledger has no event at position {self.position}, where this cursor stopped"
            )
        if found is not None and mark_of(found) != self.mark:
            raise CursorMismatch(
                f"the event at position {self.position} is not the one where this cursor stopped"
            )


def mark_of(event: Recorded) -> str:
    """The identity of an event in short: its stream, version, topic and time."""
    time = event.recorded_at.isoformat()
    return canon.digest(event.position, event.stream, event.version, event.topic, time).hex()[:16]
