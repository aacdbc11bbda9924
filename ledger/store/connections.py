"""The connections of one process: a pool that survives fork, a restarted server and a broken connection."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo
from psycopg_pool import ConnectionPool, PoolTimeout

from . import leaving
from .faults import ledger_errors
from .line import Line

Connection = psycopg.Connection[Any]
TEXT: Final[dict[str, Any]] = {"client_encoding": "UTF8"}
"""What a Line sends is UTF-8, whatever PGCLIENTENCODING or the role says."""


class Connections:
    """Connections to one database in autocommit, opened when they are first wanted.

    A process that was forked gets its own; sharing a socket with its parent would mix their answers.
    """

    def __init__(self, conninfo: str, *, most: int = 10, patience: float = 30.0) -> None:
        """`most` connections at once; a caller waits up to `patience` seconds for one of them."""
        self.conninfo, self.most, self.patience = conninfo, most, patience
        self._pool: ConnectionPool[Line] | None = None
        self._pid = os.getpid()
        self._opening = threading.Lock()
        self._at_hand: list[Line] = []
        self._waiting: set[int] = set()  # threads; adding and discarding are atomic, counting is not

    @contextlib.contextmanager
    def connection(self) -> Iterator[Line]:
        """A connection while the block runs. Raises LedgerBusy, ServerUnavailable within `patience`."""
        with ledger_errors():
            connection = self.take()
        try:
            yield connection
        finally:
            self.give_back(connection)

    def take(self) -> Line:
        """A connection that is alive, to be given back. Raises psycopg's errors; else use `connection`."""
        while self._at_hand and self._pid == os.getpid():
            try:
                line = self._at_hand.pop()
            except IndexError:  # another thread was faster
                break
            if not line.is_dead():
                return line
            self._discard(line)
        return self._take_from_pool()

    def give_back(self, line: Line) -> None:
        """Return what `take` gave.

        One connection is kept at hand, because the pool's bookkeeping costs a tenth of an append; not while
        somebody waits for the pool. Both sides write first and look then, so that one of them sees the other.
        """
        if not self._is_wanted() and not self._at_hand and not line.closed and self._pid == os.getpid():
            self._at_hand.append(line)
            if self._is_wanted():
                self._put_away()
            return
        self._return(line)

    def _take_from_pool(self) -> Line:
        pool = self._pool if self._pool is not None and self._pid == os.getpid() else self._open()
        self._waiting.add(threading.get_ident())
        self._put_away()
        try:
            while (line := self._get(pool)).is_dead():
                self._discard(line)
            return line
        finally:
            self._waiting.discard(threading.get_ident())

    def _is_wanted(self) -> bool:
        return bool(self._waiting)

    def _put_away(self) -> None:
        """Give the connection at hand to the pool, where a waiting thread gets it."""
        with contextlib.suppress(IndexError):
            self._return(self._at_hand.pop())

    def _get(self, pool: ConnectionPool[Line]) -> Line:
        try:
            return pool.getconn()
        except PoolTimeout:
            self._reach()  # raises what is wrong with the server; if nothing is, the pool is too small
            raise

    def _discard(self, line: Line) -> None:
        line.close()
        self._return(line)

    def _return(self, line: Line) -> None:
        try:
            if self._pool is not None and self._pid == os.getpid():
                self._pool.putconn(line)
                return
        except ValueError:  # it is of a pool that was closed meanwhile
            pass
        line.close()

    def close(self) -> None:
        """Close them all; the next use opens them again."""
        leaving.closed(self)
        pool, self._pool = self._pool, None
        while self._at_hand and self._pid == os.getpid():
            self._at_hand.pop().close()
        if pool is not None and self._pid == os.getpid():
            pool.close()

    def _open(self) -> ConnectionPool[Line]:
        if self._pid != os.getpid():  # what another thread of the parent held is held for ever
            self._pid, self._pool, self._opening = os.getpid(), None, threading.Lock()
            self._at_hand, self._waiting = [], set()
        with self._opening:
            if self._pool is None:
                self._reach()
                self._pool = self._new_pool()
                leaving.opened(self)
            return self._pool

    def _reach(self) -> None:
        """Connect once: a wrong password, name or address is told now, where the pool would only wait."""
        reach(self.conninfo, self.patience).close()

    def _new_pool(self) -> ConnectionPool[Line]:
        return ConnectionPool(
            self.conninfo,
            connection_class=Line,
            kwargs={"autocommit": True, "application_name": "pledger", **TEXT},
            min_size=0,
            max_size=self.most,
            timeout=self.patience,
            reconnect_timeout=self.patience,
            max_idle=60.0,
            open=True,
            name="ledger",
        )


def reach(conninfo: str, patience: float, **settings: Any) -> Line:
    """A connection of its own, in autocommit. A server that is just starting or stopping is waited for."""
    limits: dict[str, Any] = (
        {} if "connect_timeout" in conninfo else {"connect_timeout": max(2, int(patience))}
    )
    deadline = time.monotonic() + patience
    while True:
        try:
            return Line.connect(conninfo, autocommit=True, **limits, **TEXT, **settings)
        except psycopg.OperationalError:
            if (
                pq.PGconn.ping(make_conninfo(conninfo, **limits).encode()) != pq.Ping.REJECT
                or time.monotonic() > deadline
            ):
                raise
        time.sleep(0.05)
