"""
Locks of scopes: they make people and workers wait for each other instead of conflicting.

A scope holds shared locks of the names above its target, and an exclusive lock of the target, acquired from
the top down. So two strips of one project never wait for each other, and opening the project waits for all
scopes below it. They are the server's advisory locks on direct sessions outside the pool, and end with their
holder, whatever killed it. Correctness does not depend on them: a stale version is refused at the append.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import blake2b
from time import monotonic
from typing import Final, Protocol, Self
from uuid import UUID

import psycopg

from ..domain.canonical_json import digest
from ..errors import AlreadyOpen, BadInput, LockTimeout, ServerUnavailable, shown
from .connection import CallingConnection
from .lock_sessions import SQL, LockRequest, LockSession, LockSessions
from .pool import connect_when_ready
from .read import Row
from .server_errors import raise_ours
from .sql import run

_SCOPE_OF: Final = "pledger scope of "
"""The name of our sessions on the server; the actor's name follows."""


Path = Sequence[str]
"""The names of streams from the top of a tree down to the target."""
Opened = tuple[list[tuple[str, ...]], tuple[str, ...]]
"""A path that a thread has open: the list of its thread, and the entry to remove when it ends."""


class HeldLock(Protocol):
    """A lock that is held."""

    @property
    def lost(self) -> bool:
        """Whether the lock was lost because its session or its lease ended."""
        ...


class HeldLockAndRows(HeldLock, Protocol):
    """A lock that is held, and the streams of its path as they were when it was granted, in their order."""

    @property
    def rows(self) -> Sequence[Row]: ...


class Locks(Protocol):
    """Makes scopes wait for each other."""

    def exclusive(self, path: Path, *, timeout_seconds: float | None) -> AbstractContextManager[HeldLock]:
        """Hold the last name against all others, and those above it against their exclusive holders.

        timeout_seconds: None waits without limit, 0 does not wait.
        Raises LockTimeout, and AlreadyOpen if this thread has open the target, or a name above or below it.
        """
        ...

    def shared(self, path: Path, *, timeout_seconds: float | None) -> AbstractContextManager[HeldLock]:
        """Hold all names against their exclusive holders, to read. Raises LockTimeout."""
        ...


@dataclass(slots=True)
class NoLock:
    """No lock, so nothing that can be lost."""

    lost: bool = False


class NoLocks:
    """No locks, no waiting: if two scopes overlap, the second append is refused."""

    @contextmanager
    def exclusive(self, path: Path, *, timeout_seconds: float | None) -> Iterator[HeldLock]:
        """Acquire nothing; the versions reveal nested opens."""
        checked_timeout(timeout_seconds)
        yield NoLock()

    shared = exclusive


NO_LOCKS: Final = NoLocks()


class Nesting:
    """The paths that each thread has open. A nested open that would wait for itself is refused."""

    def __init__(self) -> None:
        self._local = threading.local()

    @property
    def paths(self) -> list[tuple[str, ...]]:
        """The paths of this thread; a fork has none open."""
        if getattr(self._local, "pid", None) != os.getpid():
            self._local.pid, self._local.paths = os.getpid(), []
        found: list[tuple[str, ...]] = self._local.paths
        return found

    def enter(self, path: Path) -> Opened:
        """Record that this thread opens the path. Raises AlreadyOpen with the name of the outer scope."""
        paths, entering = self.paths, tuple(path)
        for outer in tuple(paths):
            least = min(len(outer), len(entering))
            if outer[:least] == entering[:least]:
                raise AlreadyOpen(entering[-1], f"the scope of {outer[-1]} of this thread")
        paths.append(entering)
        return paths, entering

    @contextmanager
    def entered(self, path: Path) -> Iterator[None]:
        """This thread has the path open while the block runs. Raises AlreadyOpen, naming the outer scope."""
        paths, entering = self.enter(path)
        try:
            yield
        finally:
            paths.remove(entering)


_nesting = Nesting()
"""One for all ledgers of this process, also for two objects of the same ledger."""


class AdvisoryLocks:
    """Locks on the server of the ledger itself: session-level advisory locks, freed when their holder ends.

    conninfo must lead directly to the server: a proxy that pools by transaction would give a session's locks
    to another client. Such a proxy is refused if it is detected by its invented pid. LEDGER_LOCK_DSN is a
    direct DSN for the case that the ledger's own leads through a proxy.
    """

    def __init__(self, conninfo: str, schema: str, ledger: UUID, *, actor: str, timeout: float) -> None:
        self._conninfo, self._schema, self._ledger = conninfo, schema, ledger
        self._actor, self._timeout = actor, timeout
        self.sessions = LockSessions(self._connected, schema)
        self.key = lru_cache(maxsize=4096)(partial(key_of, ledger))
        self.keys = lru_cache(maxsize=4096)(self._keys)
        self._where = digest(conninfo, str(ledger)).hex()  # not the DSN: tracebacks show what a path holds

    def exclusive(self, path: Path, *, timeout_seconds: float | None) -> AbstractContextManager[HeldLock]:
        """As in Locks. Raises ServerUnavailable too."""
        return _Scope(self, path, True, timeout_seconds)

    def shared(self, path: Path, *, timeout_seconds: float | None) -> AbstractContextManager[HeldLock]:
        """As in Locks. Raises ServerUnavailable too."""
        return _Scope(self, path, False, timeout_seconds)

    def opening(
        self, path: Path, schemas: Sequence[int], *, timeout_seconds: float | None
    ) -> AbstractContextManager[HeldLockAndRows]:
        """As `exclusive`, and read the streams of the path in the same call, once all locks are held.

        schemas: the marks of the code that folds their states.
        """
        return _Scope(self, path, True, timeout_seconds, schemas)

    def close(self) -> None:
        """Close the sessions that hold nothing, and the others when their scopes end."""
        self.sessions.close()

    def nested(self, path: Path) -> Opened:
        """Record that this thread opens the path, as in Nesting."""
        return _nesting.enter((self._where, *path))

    def _keys(self, *path: str) -> tuple[bytes, bytes]:
        """The keys of a path's locks, and its names, as arrays."""
        return b"{%s}" % b",".join(map(self.key, path)), array_of(map(_quoted, path))

    def holder(self, session: LockSession, name: str) -> str | None:
        """A text that names the holder of a lock; None if no holder is found."""
        high, _, low = self.key(name).partition(b",")
        try:
            rows = run(session.connection, self._schema, SQL.scope_holder, high=int(high), low=int(low))
        except psycopg.Error:
            return None
        for application, pid, address, others in rows:
            where = f" at {address}" if address else ""
            more = f" and {others - 1} more" if others > 1 else ""
            return f"{application.removeprefix(_SCOPE_OF)}{where} (server process {pid}){more}"
        return None

    def _connected(self, seconds: float | None) -> CallingConnection:
        """A session for scopes, opened within so many seconds. Raises psycopg.Error, ServerUnavailable."""
        given = os.environ.get("LEDGER_LOCK_DSN")
        timeout = self._timeout if seconds is None else min(seconds, self._timeout)
        name = f"{_SCOPE_OF}{self._actor}"[:63]
        connection = connect_when_ready(given or self._conninfo, timeout, application_name=name)
        try:
            # Not prepared: a proxy would keep the statement for another client.
            server = connection.execute(SQL.scope_server.text(self._schema), prepare=False).fetchone()
            self._check(given, connection.pgconn.backend_pid, server or (0, None, True))
            run(connection, self._schema, SQL.scope_session)
        except BaseException:
            connection.close()
            raise
        return connection

    def _check(self, given: str | None, pid: int, server: tuple[int, UUID | None, bool]) -> None:
        """Raise ServerUnavailable if other clients would not see the locks, or a proxy could move them."""
        answered, ledger, standby = server
        if given and (ledger != self._ledger or standby):
            what = "a standby of the server" if ledger == self._ledger else f"another ledger, {ledger}"
            raise ServerUnavailable(
                f"LEDGER_LOCK_DSN leads to {what}: set it to the primary server of ledger {self._ledger}"
            )
        if not given and answered != pid:
            raise ServerUnavailable(
                "the connection goes through a proxy, which may give the lock of a scope to another client: "
                "set LEDGER_LOCK_DSN to the server itself, or to a proxy that pools by session"
            )


class _Scope:
    """One scope of AdvisoryLocks: holds its locks from the beginning of a block to its end, in any thread."""

    def __init__(
        self,
        locks: AdvisoryLocks,
        path: Path,
        exclusive: bool,
        seconds: float | None,
        schemas: Sequence[int] | None = None,
    ) -> None:
        self._locks, self._path, self._exclusive, self._seconds = locks, path, exclusive, seconds
        self._schemas = schemas
        self.rows: Sequence[Row] = ()
        self._session: LockSession | None = None
        self._nested: Opened | None = None

    def __enter__(self) -> Self:
        limit = checked_timeout(self._seconds)
        try:
            if self._exclusive:
                self._nested = self._locks.nested(self._path)
            self._acquire(limit)
        except BaseException as error:
            self.__exit__()
            if isinstance(error, psycopg.Error):
                raise_ours(error)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        session, self._session = self._session, None
        nested, self._nested = self._nested, None
        if nested is not None:
            paths, path = nested
            paths.remove(path)
        if session is not None:
            self._locks.sessions.end(session, self._request)

    @property
    def lost(self) -> bool:
        return self._session is None or self._locks.sessions.is_lost(self._session)

    def _acquire(self, limit: int | None) -> None:
        """Acquire the locks. Raises LockTimeout, and psycopg's errors."""
        sessions, path, begin = self._locks.sessions, self._path, monotonic()
        self._request = LockRequest(b"", self._exclusive)
        session = self._session = sessions.acquire(self._seconds)
        try:
            if limit:
                limit = max(0, limit - round((monotonic() - begin) * 1000))
            keys, names = self._locks.keys(*path)
            granted = self._ask(session, LockRequest(keys, self._exclusive), limit, names)
            deadlock, granted = granted < 0, granted if granted >= 0 else -1 - granted
            self._request = LockRequest(keys, self._exclusive, granted)
            if granted < len(path):
                holder = self._locks.holder(session, path[granted])
                raise LockTimeout(path[granted], None if deadlock else self._seconds, holder)
        finally:
            sessions.release(session)

    def _ask(self, session: LockSession, wanted: LockRequest, limit: int | None, names: bytes) -> int:
        if self._schemas is None:
            return session.acquire(wanted, limit)
        found = session.open(wanted, limit, names, array_of(map(str, self._schemas)))
        if isinstance(found, int):
            return found
        self.rows = found
        return len(self._path)


def array_of(parts: Iterable[str]) -> bytes:
    """An array as the text that PostgreSQL reads."""
    return f"{{{','.join(parts)}}}".encode()


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def key_of(ledger: UUID, name: str) -> bytes:
    """The two parts of a name's lock, as text: 63 bits, so that two names hardly ever share one."""
    digest = blake2b(name.encode(), digest_size=8, key=ledger.bytes).digest()
    high, low = int.from_bytes(digest[:4], "big") | 0x80000000, int.from_bytes(digest[4:], "big", signed=True)
    return b"%d,%d" % (high - 0x100000000, low)


def checked_timeout(seconds: float | None) -> int | None:
    """A time limit in whole milliseconds, None without one. Raises BadInput."""
    if seconds is None:
        return None
    if not _is_number(seconds) or math.isnan(seconds) or seconds < 0:
        raise BadInput(
            f"timeout_seconds {shown(seconds)} must be a number of seconds, 0 or more, or None to wait"
        )
    return min(math.ceil(seconds * 1000), 2**31 - 1) if seconds < 2**31 else 2**31 - 1


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
