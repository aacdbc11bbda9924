"""Positions of readers: how far each named reader of the log has come, kept in the ledger itself."""

from __future__ import annotations

from . import reading
from .cursor import Cursor
from .ledger import Ledger


class Positions:
    """Where the named readers of a ledger stand. Keeping it needs the writer's role, asking the reader's.

    A position is that of a reader whose effects are events of the same ledger: it goes through dump and
    restore with them. Effects elsewhere keep their cursor beside them (see Follower).
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def kept(self, reader: str) -> Cursor | None:
        """Where the reader stands; None where it never stood anywhere."""
        with self._ledger.reader() as connection:
            rows = reading.query(connection, self._ledger.schema, "kept_position", reader=reader)
        return Cursor.parse(rows[0][0]) if rows else None

    def keep(self, reader: str, cursor: Cursor) -> None:
        """Keep where the reader stands; it never goes back in one history."""
        with self._ledger.reader() as connection:
            reading.query(connection, self._ledger.schema, "keep_position", reader=reader, cursor=str(cursor))

    def forget(self, reader: str) -> bool:
        """Let the reader begin anew; False where it never stood anywhere."""
        with self._ledger.reader() as connection:
            rows = reading.query(connection, self._ledger.schema, "forget_position", reader=reader)
        return bool(rows[0][0])
