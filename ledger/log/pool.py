"""The connections of one process: a pool that survives fork, a restarted server and a broken connection."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from typing import Any, Self

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo
from psycopg.types.json import set_json_loads
from psycopg_pool import ConnectionPool, PoolTimeout

from ..domain import canonical_json
from . import at_exit
from .connection import TEXT, CallingConnection, limits, opened, prepare_nothing_behind_a_proxy
from .dsn import awake
from .server_errors import ledger_errors

Connection = psycopg.Connection[Any]
NAME = "pledger"
"""What the server shows as the name of the program."""


class Process:
    """The number of this process. To ask the system each time would cost a twentieth of an append."""

    pid = os.getpid()


def _became_a_fork() -> None:
    Process.pid = os.getpid()


os.register_at_fork(after_in_child=_became_a_fork)


class RestartingConnection(CallingConnection):
    """A connection that first restarts an embedded server that was killed."""

    @classmethod
    def connect(cls, conninfo: str = "", **settings: Any) -> Self:
        """Take one that is `ready`, else open and configure one. Raises psycopg's errors.

        ready: connections, of which one is taken.
        """
        ready: list[Self] = settings.pop("ready", [])
        if ready:
            with contextlib.suppress(IndexError):  # another thread was faster
                return ready.pop()
        connection = super().connect(awake(conninfo), **settings)
        try:
            _configure(connection)
        except BaseException:
            connection.close()
            raise
        return connection


class Pool:
    """A pool of connections to one database in autocommit, opened when they are first needed.

    A forked process gets its own connections; sharing a socket with its parent would mix their answers.
    """

    def __init__(self, conninfo: str, *, max_size: int = 10, timeout: float = 30.0) -> None:
        """`max_size` connections at once; a caller waits up to `timeout` seconds for one of them."""
        self.conninfo, self.max_size, self.timeout = conninfo, max_size, timeout
        self._pool: ConnectionPool[CallingConnection] | None = None
        self._pid = Process.pid
        self._opening = threading.Lock()
        self._at_hand: list[CallingConnection] = []
        self._ready: list[RestartingConnection] = []  # connections that the pool takes instead of new ones
        self._waiting: set[int] = set()  # threads; adding and discarding are atomic, counting is not

    @contextlib.contextmanager
    def connection(self) -> Iterator[CallingConnection]:
        """A connection while the block runs. Raises LedgerBusy, ServerUnavailable within `timeout`."""
        with ledger_errors():
            connection = self.take()
        try:
            yield connection
        finally:
            self.give_back(connection)

    def take(self) -> CallingConnection:
        """A connection that is alive, to be given back. Raises psycopg's errors; else use `connection`."""
        while self._at_hand and self._pid == Process.pid:
            try:
                connection = self._at_hand.pop()
            except IndexError:  # another thread was faster
                break
            if not connection.is_dead():
                return connection
            self._discard(connection)
        return self._take_from_pool()

    def give_back(self, connection: CallingConnection) -> None:
        """Return what `take` gave.

        One connection is kept outside the pool, because the pool's bookkeeping costs a tenth of an append;
        but not while a thread waits for the pool. Both sides write first and then check, so that one of them
        sees the other.
        """
        if not self._waiting and not self._at_hand and not connection.closed and self._pid == Process.pid:
            self._at_hand.append(connection)
            if self._waiting:
                self._put_away()
            return
        self._return(connection)

    def _take_from_pool(self) -> CallingConnection:
        pool = self._pool if self._pool is not None and self._pid == Process.pid else self._open()
        self._waiting.add(threading.get_ident())
        self._put_away()
        try:
            while (connection := self._get(pool)).is_dead():
                self._discard(connection)
            return connection
        finally:
            self._waiting.discard(threading.get_ident())

    def _put_away(self) -> None:
        """Give the kept connection to the pool, where a waiting thread gets it."""
        with contextlib.suppress(IndexError):
            self._return(self._at_hand.pop())

    def _get(self, pool: ConnectionPool[CallingConnection]) -> CallingConnection:
        try:
            return pool.getconn(self.timeout)
        except PoolTimeout:
            self._reach().close()  # raises the server's error; without one, the pool is too small
            raise

    def _discard(self, connection: CallingConnection) -> None:
        connection.close()
        self._return(connection)

    def _return(self, connection: CallingConnection) -> None:
        try:
            if self._pool is not None and self._pid == Process.pid:
                self._pool.putconn(connection)
                return
        except ValueError:  # it is of a pool that was closed meanwhile
            pass
        connection.close()

    def close(self) -> None:
        """Close them all; the next use opens them again."""
        at_exit.forget(self)
        pool, self._pool = self._pool, None
        for kept in (self._at_hand, self._ready):
            while kept and self._pid == Process.pid:
                kept.pop().close()
        if pool is not None and self._pid == Process.pid:
            pool.close()

    def _open(self) -> ConnectionPool[CallingConnection]:
        if self._pid != Process.pid:  # locks that another thread of the parent held stay locked
            self._pid, self._pool, self._opening = Process.pid, None, threading.Lock()
            self._at_hand, self._ready, self._waiting = [], [], set()
        with self._opening:
            if self._pool is None:
                self._ready.append(self._reach())
                self._pool = self._new_pool()
                at_exit.close_at_exit(self)
            return self._pool

    def _reach(self) -> RestartingConnection:
        """Connect, to raise the error of a wrong password, name or address; the pool only waits."""
        return connect_when_ready(self.conninfo, self.timeout, application_name=NAME)

    def _new_pool(self) -> ConnectionPool[CallingConnection]:
        return ConnectionPool(
            self.conninfo,
            connection_class=RestartingConnection,
            kwargs={"autocommit": True, "application_name": NAME, "ready": self._ready, **TEXT},
            min_size=0,
            max_size=self.max_size,
            timeout=self.timeout,
            reconnect_timeout=self.timeout,
            max_idle=60.0,
            open=True,
            name="ledger",
        )


def _configure(connection: CallingConnection) -> None:
    """Configure a new connection of ours."""
    prepare_nothing_behind_a_proxy(connection)
    # JSONB can hold more than Python can read, and a writer may record it: no such column may fail.
    set_json_loads(canonical_json.parsed, connection)


def connect_when_ready(conninfo: str, timeout: float, **settings: Any) -> RestartingConnection:
    """A separate connection in autocommit; waits for a server that is starting or stopping."""
    seconds = max(2, int(timeout))
    deadline = time.monotonic() + timeout
    while True:
        try:
            return opened(conninfo, RestartingConnection, timeout=seconds, **settings)
        except psycopg.OperationalError:
            if (
                pq.PGconn.ping(make_conninfo(conninfo, **limits(conninfo, seconds)).encode())
                != pq.Ping.REJECT
                or time.monotonic() > deadline
            ):
                raise
        time.sleep(0.05)
