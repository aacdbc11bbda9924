"""Watching locks of scopes: threads that hold them or wait for them, and what the server says of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from ledger import LockTimeout

Connection = psycopg.Connection[Any]
PROJECT = ("lsm.project/p",)
SLICE = (*PROJECT, "lsm.slice/p/1")
STRIP = (*SLICE, "lsm.channel/p/1/1", "lsm.strip/p/1/1/1")
SIBLING = (*STRIP[:3], "lsm.strip/p/1/1/2")
SCOPES = (
    "FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'pledger scope of %'"
)


def eventually(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for a condition, or fail."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def held_by_scopes(connection: Connection, *, waiting: bool = False) -> int:
    """How many locks of scopes are held in this database; or waited for."""
    query = (
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND granted <> %s"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    row = connection.execute(query, [waiting]).fetchone()
    assert row is not None
    return int(row[0])


def sessions(connection: Connection) -> list[int]:
    """The pids of all sessions for scopes."""
    return [pid for (pid,) in connection.execute(f"SELECT pid {SCOPES} ORDER BY backend_start").fetchall()]  # type: ignore[arg-type]


STARTED: list[Other] = []
"""Every such thread, to be waited for at the end of its test."""


class Other:
    """A thread that opens a scope and stays in it until it is told to leave; keeps what it raised."""

    def __init__(self, scope: Any) -> None:
        self.scope, self.inside, self.leaving = scope, threading.Event(), threading.Event()
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        STARTED.append(self)

    def _run(self) -> None:
        try:
            with self.scope:
                self.inside.set()
                assert self.leaving.wait(60)
        except BaseException as error:
            self.error = error

    def entered(self) -> None:
        """Wait until it is inside."""
        eventually(lambda: self.inside.is_set() or self.error is not None)
        if self.error is not None:
            raise self.error

    def leave(self) -> None:
        self.leaving.set()
        self.thread.join(60)
        assert not self.thread.is_alive()


@contextmanager
def elsewhere(scope: Any) -> Iterator[None]:
    """Another thread is in the scope while the block runs."""
    other = Other(scope)
    try:
        other.entered()
        yield
    finally:
        other.leave()


def is_free(scope: Any) -> bool:
    """Whether another thread gets into a scope, which does not wait, at once."""
    other = Other(scope)
    other.leave()
    if other.error is not None and not isinstance(other.error, LockTimeout):
        raise other.error
    return other.error is None


def waits(connection: Connection, scope: Any) -> Other:
    """Another thread that waits for the scope; it will leave as soon as it is in."""
    before = held_by_scopes(connection, waiting=True)
    other = Other(scope)
    other.leaving.set()
    eventually(lambda: held_by_scopes(connection, waiting=True) > before or other.error)
    return other


def all_ended(connection: Connection) -> None:
    """All these threads have ended, and no lock is held or waited for, at once or soon."""
    while STARTED:
        STARTED.pop().leave()
    eventually(lambda: held_by_scopes(connection) + held_by_scopes(connection, waiting=True) == 0)
