"""Cursors: how far a reader has come, with a mark that identifies the history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg

from ..domain import canonical_json
from ..errors import BadInput, CursorMismatch
from . import read
from .recorded import Recorded
from .sql import run


@dataclass(frozen=True, slots=True)
class Cursor:
    """The last event delivered to a reader: never a bound, because a sequence can fall back after a crash.

    It also contains the ids of the ledger and of that event, so that a reader that keeps it outside the
    database notices a restore to an earlier point. Store its `str()`; `Cursor.parse` reads it again.
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
            raise BadInput(f"{text!r} is not a cursor: a cursor has the form LEDGER:POSITION:MARK") from None

    def __str__(self) -> str:
        return f"{self.ledger}:{self.position}:{self.mark}"

    def check(self, ledger: UUID, found: Recorded | None) -> None:
        """Refuse to continue from another history. `found` is the ledger's event at `position`."""
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
    """A short digest of an event's position, stream, version, topic and time."""
    time = event.recorded_at.isoformat()
    return canonical_json.digest(event.position, event.stream, event.version, event.topic, time).hex()[:16]


Connection = psycopg.Connection[Any]


class Checkpoint:
    """The last event that a reader has read. Every reader that keeps a position continues from a checkpoint.

    A restore or a fail-over takes the log back, and positions that a reader has passed are handed out again;
    reading from a bare position would skip them silently. So events read after a checkpoint are valid only if
    the same connection finds the event at the checkpoint at the same time or later: `check`, `confirm`,
    `advance`. Each reader must do this itself, even on a connection that another reader checked before.

    A plain position is settled at the first read: it becomes the last event at or before it. A gap cannot be
    a checkpoint, because after a crash it can be filled.
    """

    def __init__(self, ledger: UUID, after: int | Cursor = 0) -> None:
        self.ledger = ledger
        self.position: int
        self._cursor: Cursor | None = None
        self.looked: object = None
        """Where the event was found last; a reader compares it to notice a new connection."""
        if isinstance(after, Cursor):
            self._stand(Cursor(after.ledger, after.position, after.mark))
        elif after <= 0:
            self._stand(Cursor(ledger))
        else:
            self.position = after

    @property
    def cursor(self) -> Cursor | None:
        """The cursor to store; None while a plain position is not settled."""
        return self._cursor

    def advance(self, event: Recorded) -> None:
        """Move to an event that was read after the checkpoint, once the checkpoint is confirmed."""
        self._stand(Cursor.after(self.ledger, event))

    def check(self, ledger: UUID, found: Recorded | None) -> None:
        """Raise CursorMismatch unless this is the ledger, and the event at the position is the one.

        found: the ledger's event at the position. A position that is not settled is not checked.
        """
        if self._cursor is not None:
            self._cursor.check(ledger, found)

    # On a connection

    def settle(self, connection: Connection, schema: str, bound: int) -> bool:
        """Replace a plain position by the last event at or before it; False while the bound is before it."""
        if self._cursor is None and self.position <= bound:
            self._stand(self.last_event(connection, schema))
        return self._cursor is not None

    def last_event(self, connection: Connection, schema: str) -> Cursor:
        """The cursor of the last event at or before the position."""
        rows = run(connection, schema, read.SQL.last_event_upto, position=self.position)
        return Cursor.after(self.ledger, read.recorded(rows[0])) if rows else Cursor(self.ledger)

    def confirm(self, connection: Connection, schema: str, upto: int | None = None) -> None:
        """Check that the event is still there, after the events behind it were read on this connection.

        upto: then move to the event at this position, the last one read. Raises CursorMismatch.
        """
        wanted = [self.position] if upto is None else [self.position, upto]
        rows = run(connection, schema, read.SQL.events_at, positions=wanted)
        found = {row[1]: read.recorded(row[1:]) for row in rows if row[1] is not None}
        self.check(rows[0][0], found.get(self.position))
        if upto is None or upto == self.position:
            return
        if upto not in found:  # it was read a moment ago
            Cursor(self.ledger, upto).check(self.ledger, None)
        self.advance(found[upto])

    def _stand(self, cursor: Cursor) -> None:
        self._cursor, self.position = cursor, cursor.position
