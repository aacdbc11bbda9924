"""The tail of the log: where followers of one process read, on one connection and under one bound."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from ..recorded import Recorded
from . import leaving, reading
from .faults import ledger_errors

Connection = psycopg.Connection[Any]
_TOPIC = 3
"""The column of a row that holds the topic."""


class Tail:
    """Reads the log in order without skipping (functions/1_order.sql), for all followers of this process.

    The bound is kept between reads, so that the marks of open appends are not looked at while nothing was
    handed out. That is only right while the server lives: after a crash the sequence can fall back and hand
    out the same positions again. So the bound belongs to the connection, and goes with it.
    """

    def __init__(self, conninfo: str, schema: str) -> None:
        self._conninfo, self._schema = conninfo, schema
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._pid = 0
        self._bound = -1

    def read(self, after: int, limit: int, topics: Collection[str] | None = None) -> list[Recorded]:
        """Up to `limit` events after a position, in order; none if nothing new is safe to read.

        topics: of those events, only these, and the last one whatever it is: so far it was read.
        Raises ServerUnavailable where the connection broke; the next call opens another.
        """
        with self._lock, ledger_errors(), self._open() as connection:
            rows = self._rows(connection, after, limit)
            if not rows:  # also where the kept bound is beyond `after`: between them may be only gaps
                self._bound = reading.query(connection, self._schema, "bound", known=self._bound)[0][0]
                rows = self._rows(connection, after, limit)
        if topics is not None:  # an envelope takes longer to make than to leave out
            rows = [row for row in rows[:-1] if row[_TOPIC] in topics] + rows[-1:]
        return [reading.recorded(row) for row in rows]

    def _rows(self, connection: Connection, after: int, limit: int) -> list[tuple[Any, ...]]:
        if self._bound <= after:
            return []
        return reading.query(
            connection, self._schema, "read_log", after=after, bound=self._bound, limit=limit
        )

    def close(self) -> None:
        """Close the connection; the next read opens another."""
        leaving.closed(self)
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None and self._pid == os.getpid():
                connection.close()

    @contextmanager
    def _open(self) -> Iterator[Connection]:
        if self._connection is None or self._connection.closed or self._pid != os.getpid():
            self._bound, self._pid = -1, os.getpid()
            leaving.opened(self)
            self._connection = psycopg.connect(
                self._conninfo, autocommit=True, application_name="pledger tail", connect_timeout=10
            )
        try:
            yield self._connection
        except psycopg.Error:
            self._connection.close()
            raise


class Wakeup:
    """Lets an append of this process wake the followers of this process, instead of their pause ending."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._waiting = 0
        self._count = 0

    def appended(self) -> None:
        """Something was recorded. Costs nothing where nobody waits."""
        self._count += 1
        if self._waiting:
            with self._condition:
                self._condition.notify_all()

    def seen(self) -> int:
        """How many appends this process has recorded; to be handed to `wait`."""
        return self._count

    def wait(self, seen: int, seconds: float, stop: threading.Event | None = None) -> None:
        """Until something is recorded here after `seen`, `stop` is set, or the time is over."""
        deadline = time.monotonic() + seconds
        with self._condition:
            self._waiting += 1
            try:
                while self._count == seen and not (stop and stop.is_set()):
                    left = deadline - time.monotonic()
                    if left <= 0:
                        return
                    self._condition.wait(min(left, 0.05))  # and look whether `stop` is set
            finally:
                self._waiting -= 1
