"""What can be read of a ledger: streams opened, heads, histories, the log up to its bound."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from ..errors import StreamNotFound
from ..names import checked
from ..recorded import Recorded
from ..stream import Stream
from . import install, reading
from .connections import Connection, Connections
from .cursor import Cursor
from .faults import ledger_errors

O = TypeVar("O", bound=Stream[Any, Any])  # noqa: E741
PAGE: Final = 1000
"""Events a page when reading; 500 to 1,000 read fastest."""


class Reads:
    """The half of `Ledger` that reads."""

    connections: Connections
    identity: install.Identity
    schema: str

    def load(self, kind: type[O], *key: str | int, version: int | None = None) -> O:
        """The stream of this key as it is now, or was at a version; version 0 where nothing is recorded."""
        with self.reader() as connection:
            return reading.open_one(connection, self.schema, kind, key, version)

    def load_each(self, streams: Iterable[O]) -> list[O]:
        """Fresh stream objects, each filled with what is recorded, in one snapshot, by name."""
        with self.reader() as connection:
            return reading.open_each(connection, self.schema, streams)

    def load_below(self, *prefixes: tuple[str, type[O]], upto: int | None = None) -> list[O]:
        """Every stream under the prefixes (`lsm.strip/project/`; without its last `/`, one), one snapshot.

        upto: as of this position, up to which the log was read before.
        """
        with self.reader() as connection:
            return [stream for _, stream in reading.open_below(connection, self.schema, prefixes, upto)]

    def states(self, *prefixes: tuple[str, type[O]]) -> dict[type[O], list[tuple[str, int, Any]]]:
        """Name, version and state of every stream under the prefixes, by class; one snapshot, to look at."""
        with self.reader() as connection:
            return reading.states(connection, self.schema, prefixes)

    def head(self, stream: str) -> reading.Head | None:
        """The head of a stream, as its last append left it."""
        with self.reader() as connection:
            rows = reading.query(connection, self.schema, "head", stream=checked(stream))
        return reading.Head(*rows[0]) if rows else None

    def read(
        self,
        stream: str,
        *,
        after: int = 0,
        upto: int | None = None,
        limit: int | None = None,
        backwards: bool = False,
    ) -> list[Recorded]:
        """Events of one stream by version, `after` exclusive, `upto` inclusive. Raises StreamNotFound."""
        name = "read_stream_backwards" if backwards else "read_stream"
        parameters = {
            "stream": checked(stream),
            "after": after,
            "upto": 2**62 if upto is None else upto,
            "limit": limit,
        }
        with self.reader() as connection:
            rows = reading.query(connection, self.schema, name, **parameters)
            if not rows and not reading.query(connection, self.schema, "has_stream", stream=stream):
                raise StreamNotFound(stream)
        return [reading.recorded(row) for row in rows]

    def streams(self, prefix: str = "", *, after: str = "", limit: int = PAGE) -> list[reading.StreamInfo]:
        """Streams by name, those that start with `prefix`, after a name; at most `limit`."""
        with self.reader() as connection:
            rows = reading.query(connection, self.schema, "streams", prefix=prefix, after=after, limit=limit)
        return [reading.StreamInfo(*(*row[:-1], row[-1].astimezone(UTC))) for row in rows]

    def bound(self) -> int:
        """How far the log may be read now without skipping anything; ask it before `log`, never after."""
        with self.reader() as connection:
            return int(reading.query(connection, self.schema, "bound", known=-1)[0][0])

    def log(self, after: int, bound: int, limit: int = PAGE) -> list[Recorded]:
        """Events of all streams by position: `after` exclusive, up to a bound that was asked for before."""
        with self.reader() as connection:
            rows = reading.query(connection, self.schema, "read_log", after=after, bound=bound, limit=limit)
        return [reading.recorded(row) for row in rows]

    def position_at(self, at: datetime) -> int:
        """The position of *as of time T*: the last before anything that was recorded after T."""
        with self.reader() as connection:
            return int(reading.query(connection, self.schema, "position_at", at=at)[0][0])

    def version_at(self, stream: str, position: int) -> int:
        """The last version of a stream at or before a position; 0 where it had none."""
        with self.reader() as connection:
            parameters = {"stream": checked(stream), "position": position}
            return int(reading.query(connection, self.schema, "version_at", **parameters)[0][0])

    def event_at(self, position: int) -> Recorded | None:
        """The event at a position, None in a gap."""
        with self.reader() as connection:
            rows = reading.query(connection, self.schema, "event_at", position=position)
        return reading.recorded(rows[0]) if rows else None

    def check_cursor(self, cursor: Cursor) -> int:
        """The position to go on from. Raises CursorMismatch where the cursor is of another history."""
        cursor.check(self.identity.ledger, self.event_at(cursor.position) if cursor.position else None)
        return cursor.position

    @contextmanager
    def reader(self) -> Iterator[Connection]:
        """A connection for reading, with the ledger's errors."""
        with self.connections.connection() as connection, ledger_errors():
            yield connection
