"""The tail of the log: the followers of one process read it on one connection; its own appends wake them."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from . import at_exit, install, read
from .connection import opened, refuse_proxy
from .cursor import Checkpoint
from .recorded import Recorded
from .server_errors import ledger_errors
from .sql import run

Connection = psycopg.Connection[Any]
_TOPIC = 3
"""The column of a row that holds the topic."""


class Tail:
    """Reads the log in order without skipping (functions/1_order.sql), for all followers of this process.

    The bound is kept between reads, so that the marks of open appends are not read while no position was
    handed out. That is only valid until the server restarts: after a crash the sequence can fall back and
    hand out the same positions again. So the bound is kept per connection, and dropped with it.

    Each page is read together with the event at the checkpoint of its reader, in one statement.
    """

    def __init__(self, conninfo: str, schema: str) -> None:
        self._conninfo, self._schema = conninfo, schema
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._who: install.Identity
        self._pid = 0
        self._bound = -1
        self._end: int | None = None  # known: nothing is recorded between it and the bound

    def read(
        self, checkpoint: Checkpoint, limit: int, topics: Collection[str] | None = None
    ) -> list[Recorded]:
        """Up to `limit` events after a checkpoint, which moves behind them; none if nothing new is safe.

        topics: return only these, and always the last event, which shows how far was read.
        Raises CursorMismatch where the checkpoint is of another history; ServerUnavailable where the
        connection broke: the next call opens another.
        """
        with self._lock, ledger_errors(), self._open() as connection:
            rows = self._rows(connection, checkpoint, limit)
        if rows:
            checkpoint.advance(read.recorded(rows[-1]))
        if topics is not None:  # leaving out a row is faster than making an envelope
            rows = [row for row in rows[:-1] if row[_TOPIC] in topics] + rows[-1:]
        return [read.recorded(row) for row in rows]

    def _rows(self, connection: Connection, checkpoint: Checkpoint, limit: int) -> list[tuple[Any, ...]]:
        """The next page up to the kept bound; if that is empty, up to a new bound."""
        if not self._is_at_the_end(checkpoint) and (rows := self._page(connection, checkpoint, limit)):
            return rows
        bound: int = run(connection, self._schema, read.SQL.bound, known=self._bound)[0][0]
        if bound != self._bound:
            self._bound, self._end = bound, None
        if not checkpoint.settle(connection, self._schema, bound):
            return []
        if self._is_at_the_end(checkpoint) and checkpoint.looked is connection:
            return []
        return self._page(connection, checkpoint, limit)

    def _is_at_the_end(self, checkpoint: Checkpoint) -> bool:
        """Whether there is no event between a checkpoint and the kept bound."""
        if checkpoint.cursor is None:
            return True
        end = self._bound if self._end is None else self._end
        return checkpoint.position >= end

    def _page(self, connection: Connection, checkpoint: Checkpoint, limit: int) -> list[tuple[Any, ...]]:
        """The events after a settled checkpoint up to the kept bound; checks that the checkpoint is there."""
        at, bound = checkpoint.position, max(self._bound, checkpoint.position)
        rows = run(
            connection, self._schema, read.SQL.read_log_from, position=at, bound=bound, limit=limit + (at > 0)
        )
        found = read.recorded(rows.pop(0)) if rows and rows[0][0] == at else None
        checkpoint.check(self._who.ledger, found)
        checkpoint.looked = connection
        if len(rows) < limit:
            self._end = rows[-1][0] if rows else at
        return rows

    def close(self) -> None:
        """Close the connection; the next read opens another."""
        at_exit.forget(self)
        with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None and self._pid == os.getpid():
                connection.close()

    @contextmanager
    def _open(self) -> Iterator[Connection]:
        if self._connection is None or self._connection.closed or self._pid != os.getpid():
            self._bound, self._end, self._pid = -1, None, os.getpid()
            at_exit.close_at_exit(self)
            self._connection = opened(self._conninfo, application_name="pledger tail")
            refuse_proxy(self._connection, "to follow the log")
            try:
                self._who = install.identify(self._connection, self._schema)
                install.check(self._who)
            except BaseException:
                self._connection.close()
                raise
        try:
            yield self._connection
        except psycopg.Error:
            self._connection.close()
            raise


class Wakeup:
    """Wakes the followers of this process when this process appends, before their pause ends.

    count: the appends of this process. waiting: the followers that wait.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self.waiting = 0
        self.count = 0

    def appended(self) -> None:
        """Wake the followers after an append; costs almost nothing where none waits."""
        self.count += 1
        if self.waiting:
            self.wake()

    def wake(self) -> None:
        """Wake them."""
        with self._condition:
            self._condition.notify_all()

    def seen(self) -> int:
        """How many appends this process has recorded; pass it to `wait`."""
        return self.count

    def wait(self, seen: int, seconds: float, stop: threading.Event | None = None) -> None:
        """Wait until this process records more than `seen` appends, `stop` is set, or the time is over."""
        deadline = time.monotonic() + seconds
        with self._condition:
            self.waiting += 1
            try:
                while self.count == seen and not (stop and stop.is_set()):
                    left = deadline - time.monotonic()
                    if left <= 0:
                        return
                    self._condition.wait(min(left, 0.05))  # wake up to check `stop`
            finally:
                self.waiting -= 1
