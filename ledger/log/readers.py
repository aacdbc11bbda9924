"""Positions of readers: how far each named reader of the log has come, kept in the ledger itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from .cursor import Checkpoint, Cursor
from .ledger import Ledger
from .sql import Statements, run

SQL = Statements(__package__, "readers")


class Positions:
    """The positions of the named readers of a ledger.

    Storing a position needs the writer's and the reader's role, reading it the reader's.

    A position is that of a reader whose effects are events of the same ledger: it goes through dump and
    restore with them. Effects elsewhere keep their cursor beside them (see Follower).
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def kept(self, reader: str) -> Cursor | None:
        """The reader's cursor; None where none was stored."""
        rows = self._ledger.query(SQL.kept_position, reader=reader)
        return Cursor.parse(rows[0][0]) if rows else None

    def keep(self, reader: str, cursor: Cursor) -> None:
        """Store the reader's cursor; it never goes back within one history.

        Raises CursorMismatch for a cursor of another history, such as one from before a restore.
        """
        with self._ledger.reader() as connection:
            Checkpoint(self._ledger.identity.ledger, cursor).confirm(connection, self._ledger.schema)
            run(connection, self._ledger.schema, SQL.keep_position, reader=reader, cursor=str(cursor))

    def forget(self, reader: str) -> bool:
        """Delete the reader's position, so that it starts again; False where none was stored."""
        rows = self._ledger.query(SQL.forget_position, reader=reader)
        return bool(rows[0][0])


LONGEST_ERROR: Final = 1000
"""Characters of an error that are kept."""


@dataclass(frozen=True, slots=True)
class ParkedByReader:
    """A stream that a reactor has parked, from the event at `position` on.

    topic: the topic of that event. error: the error of the last failure, at `parked_at`; tries: how often it
    failed. again: another try was requested and not made yet.
    """

    reactor: str
    stream: str
    position: int
    topic: str | None
    error: str
    tries: int
    parked_at: datetime
    again: bool


@dataclass(frozen=True, slots=True)
class ReaderState:
    """A named reader of the log: its position, the log's last position, and when it stored its position.

    parked: how many streams it has parked. updated_at: None where it has stored no position yet.
    """

    reactor: str
    position: int
    updated_at: datetime | None
    last: int
    parked: int


class ParkedStreams:
    """The streams that named readers have parked. Reading needs the reader's role, the rest the writer's."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def all(self, reader: str | None = None) -> list[ParkedByReader]:
        """The parked streams of one reader or of all; those of a reader by position."""
        rows = self._ledger.query(SQL.parked_by_readers, reader=reader)
        return [
            ParkedByReader(name, stream, position, topic, error, tries, at.astimezone(UTC), again)
            for name, stream, position, topic, error, tries, at, again in rows
        ]

    def readers(self) -> list[ReaderState]:
        """The named readers that ever stored a position or parked a stream, by name."""
        rows = self._ledger.query(SQL.known_readers)
        return [
            ReaderState(name, position, at and at.astimezone(UTC), last, parked)
            for name, position, at, last, parked in rows
        ]

    def park(self, reader: str, stream: str, position: int, error: str) -> None:
        """Park a stream from an event on; if it is parked already, count the try."""
        said = error.encode(errors="backslashreplace").decode().replace("\0", "\\x00")[:LONGEST_ERROR]
        self._ledger.query(SQL.park_stream, reader=reader, stream=stream, position=position, error=said)

    def retry(self, reader: str, stream: str | None = None) -> int:
        """Request that the reader retries a stream, or all that it parked; returns how many.

        A running reader retries within about a second, another one when it is started.
        """
        return int(self._ledger.query(SQL.retry_parked, reader=reader, stream=stream)[0][0] or 0)

    def release(self, reader: str, stream: str, position: int) -> None:
        """Release a stream after a requested try that did not fail."""
        self._ledger.query(SQL.release_parked, reader=reader, stream=stream, position=position)
