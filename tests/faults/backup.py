"""A database put back to where it was before, as a restore leaves it: every connection to it is a new one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import psycopg
from eventsourcing.persistence import PersistenceError
from psycopg import sql

from ledger import CursorMismatch, Ledger, ServerUnavailable
from ledger.embedded import Embedded
from tests.lamp import LampRead

T = TypeVar("T")
OLD, LOST, NEW = 30, 20, 50
"""Events before the backup, those that the restore takes away, those that are appended afterwards."""


class Backup:
    """What a database was when this was made; `put_back` makes it that again, under the same name."""

    def __init__(self, postgres: Embedded, database: str) -> None:
        self._server, self._database, self._saved = postgres, database, f"{database}_saved"
        with self._admin() as connection:
            self._alone(connection)
            self._run(connection, "CREATE DATABASE {} TEMPLATE {}", self._saved, database)

    def put_back(self) -> None:
        """Drop what came since, with all connections to it."""
        with self._admin() as connection:
            self._run(connection, "DROP DATABASE {} WITH (FORCE)", self._database)
            self._run(connection, "CREATE DATABASE {} TEMPLATE {}", self._database, self._saved)

    def drop(self) -> None:
        with self._admin() as connection:
            self._run(connection, "DROP DATABASE IF EXISTS {} WITH (FORCE)", self._saved)

    def _alone(self, connection: psycopg.Connection) -> None:
        """End all sessions, which a database that is copied must not have."""
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [self._database]
        )
        count = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
        while connection.execute(count, [self._database]).fetchone() != (0,):
            time.sleep(0.01)

    def _admin(self) -> psycopg.Connection:
        return psycopg.connect(self._server.admin_dsn(), autocommit=True)

    def _run(self, connection: psycopg.Connection, statement: str, *names: str) -> None:
        connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))  # type: ignore[arg-type]


def append(log: Ledger, count: int) -> int:
    """Append one by one; the position of the last."""
    for _ in range(count):
        last = patiently(lambda: log.append("lamp/a", LampRead()).last_position)
    return last


def patiently(act: Callable[[], T]) -> T:
    """What `act` returns as soon as the server can be reached again."""
    while True:
        try:
            return act()
        except (ServerUnavailable, PersistenceError) as error:
            if isinstance(error.__cause__, CursorMismatch):
                raise
