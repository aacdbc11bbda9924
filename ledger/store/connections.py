"""The connections of one process: a pool that survives fork, a restarted server and a broken connection."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg_pool import ConnectionPool

from .faults import ledger_errors

Connection = psycopg.Connection[Any]


class Connections:
    """Connections to one database in autocommit, opened when they are first wanted.

    A process that was forked gets its own; sharing a socket with its parent would mix their answers.
    """

    def __init__(self, conninfo: str, *, most: int = 10, patience: float = 30.0) -> None:
        """`most` connections at once; a caller waits up to `patience` seconds for one of them."""
        self.conninfo, self.most, self.patience = conninfo, most, patience
        self._pool: ConnectionPool[Connection] | None = None
        self._pid = 0

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """A connection for as long as the block runs. Raises LedgerBusy or ServerUnavailable within `patience`."""
        pool = self._opened()
        with ledger_errors():
            connection = self._live(pool)
        try:
            yield connection
        finally:
            pool.putconn(connection)

    def close(self) -> None:
        """Close them all; the next use opens them again."""
        pool, self._pool = self._pool, None
        if pool is not None and self._pid == os.getpid():
            pool.close()

    def _opened(self) -> ConnectionPool[Connection]:
        if self._pool is None or self._pid != os.getpid():
            self._pid = os.getpid()
            self._pool = ConnectionPool(
                self.conninfo,
                kwargs={"autocommit": True, "application_name": "pledger"},
                min_size=0,
                max_size=self.most,
                timeout=self.patience,
                reconnect_timeout=self.patience,
                max_idle=60.0,
                open=True,
                name="ledger",
            )
        return self._pool

    def _live(self, pool: ConnectionPool[Connection]) -> Connection:
        """A connection that the server has not closed meanwhile: its socket would have something to read."""
        while True:
            connection = pool.getconn()
            if not _readable(connection):
                return connection
            connection.close()
            pool.putconn(connection)


def _readable(connection: Connection) -> bool:
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
