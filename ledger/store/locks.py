"""
Locks of scopes: a courtesy, so that people and workers wait for each other instead of conflicting.

A scope holds the names above its target shared, and the target exclusive; they are taken from the top down.
So two strips of one project never wait for each other, and who opens the project waits for all below it. The
locks are the server's advisory locks on direct sessions outside the pool: they end with their holder,
whatever killed it. What is right never rests on them: a stale version is refused at the append.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from hashlib import blake2b
from time import monotonic
from typing import Final, Protocol, Self
from uuid import UUID

import psycopg

from ..errors import BadInput, LockTimeout, ServerUnavailable, shown
from . import reading
from . import sql as statements
from .connections import reach
from .faults import raise_ours
from .line import Line
from .lock_sessions import Locked, Session, Sessions
from .nesting import Nesting, Opened, Path
from .reading import Row

_SCOPE_OF: Final = "pledger scope of "
"""How a session of ours is called on the server, before the actor's name."""


class Held(Protocol):
    """A lock that is held."""

    @property
    def lost(self) -> bool:
        """Whether it was lost meanwhile: its session ended, or its lease."""
        ...


class HeldAndRead(Held, Protocol):
    """A lock that is held, and what the streams of its path were at when it was granted, in their order."""

    @property
    def rows(self) -> Sequence[Row]: ...


class Locks(Protocol):
    """Makes scopes wait for each other."""

    def exclusive(self, path: Path, *, timeout_seconds: float | None) -> AbstractContextManager[Held]:
        """Hold the last name against all others, and those above it against their exclusive holders.

        timeout_seconds: None waits without bound, 0 not at all.
        Raises LockTimeout, and AlreadyOpen where this thread has the target open, or what is above or below.
        """
        ...

    def shared(self, path: Path, *, timeout_seconds: float | None) -> AbstractContextManager[Held]:
        """Hold all names against their exclusive holders, to read. Raises LockTimeout."""
        ...


@dataclass(slots=True)
class Free:
    """A lock that was never taken, and so is never lost."""

    lost: bool = False


class NoLocks:
    """No waiting: of scopes that meet, the second is refused at its append."""

    @contextmanager
    def exclusive(self, path: Path, *, timeout_seconds: float | None) -> Iterator[Held]:
        """Nothing is held; nested opens are seen by the versions."""
        checked_timeout(timeout_seconds)
        yield Free()

    shared = exclusive


NO_LOCKS: Final = NoLocks()


_nesting = Nesting()  # of all ledgers of this process, also of two objects for the same one


class AdvisoryLocks:
    """Locks on the server of the ledger itself: session-level advisory locks, freed when their holder ends.

    conninfo must lead to the server directly: a proxy that pools by transaction would give a session's locks
    to another client. Such a proxy is refused where it can be seen, by the pid that it makes up.
    LEDGER_LOCK_DSN names the way to the server, where the ledger's own leads through a proxy.
    """

    def __init__(self, conninfo: str, schema: str, ledger: UUID, *, actor: str, patience: float) -> None:
        self._conninfo, self._schema, self._ledger = conninfo, schema, ledger
        self._actor, self._patience = actor, patience
        self.sessions = Sessions(self._connected, schema)
        self.key = lru_cache(maxsize=4096)(partial(key_of, ledger))
        self.keys = lru_cache(maxsize=4096)(self._keys)
        self._where = f"{conninfo} {ledger}"

    def exclusive(self, path: Path, *, timeout_seconds: float | None) -> AbstractContextManager[Held]:
        """As in Locks. Raises ServerUnavailable too."""
        return _Scope(self, path, True, timeout_seconds)

    def shared(self, path: Path, *, timeout_seconds: float | None) -> AbstractContextManager[Held]:
        """As in Locks. Raises ServerUnavailable too."""
        return _Scope(self, path, False, timeout_seconds)

    def opening(
        self, path: Path, schemas: Sequence[int], *, timeout_seconds: float | None
    ) -> AbstractContextManager[HeldAndRead]:
        """As `exclusive`, and the streams of the path are read in the same call, once all locks are held.

        schemas: the marks of the code that folds their states.
        """
        return _Scope(self, path, True, timeout_seconds, schemas)

    def close(self) -> None:
        """Close the sessions that hold nothing, and the others when their scopes end."""
        self.sessions.close()

    def nested(self, path: Path) -> Opened:
        """Note that this thread opens the path, as in Nesting."""
        return _nesting.enter((self._where, *path))

    def _keys(self, *path: str) -> tuple[bytes, bytes]:
        """The keys of a path's locks, and its names, as arrays."""
        return b"{%s}" % b",".join(map(self.key, path)), array_of(map(_quoted, path))

    def holder(self, session: Session, name: str) -> str | None:
        """Who holds a name, in words; None where nobody is seen to."""
        high, _, low = self.key(name).partition(b",")
        try:
            rows = reading.query(session.line, self._schema, "scope_holder", high=int(high), low=int(low))
        except psycopg.Error:
            return None
        for application, pid, address, others in rows:
            where = f" at {address}" if address else ""
            more = f" and {others - 1} more" if others > 1 else ""
            return f"{application.removeprefix(_SCOPE_OF)}{where} (server process {pid}){more}"
        return None

    def _connected(self, seconds: float | None) -> Line:
        """A session fit to hold scopes, within so many seconds. Raises as psycopg, and ServerUnavailable."""
        given = os.environ.get("LEDGER_LOCK_DSN")
        patience = self._patience if seconds is None else min(seconds, self._patience)
        name = f"{_SCOPE_OF}{self._actor}"[:63]
        line = reach(given or self._conninfo, patience, application_name=name)
        try:
            # Not prepared: a proxy would keep the statement for somebody else.
            server = line.execute(statements.text("scope_server", self._schema), prepare=False).fetchone()
            self._check(given, line.pgconn.backend_pid, server or (0, None, True))
            reading.query(line, self._schema, "scope_session")
        except BaseException:
            line.close()
            raise
        return line

    def _check(self, given: str | None, pid: int, server: tuple[int, UUID | None, bool]) -> None:
        """Raise ServerUnavailable where locks would not be seen by others, or not stay with the session."""
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
    """One scope of AdvisoryLocks: its locks from the beginning of a block to its end, in whichever thread."""

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
        self._session: Session | None = None
        self._nested: Opened | None = None

    def __enter__(self) -> Self:
        limit = checked_timeout(self._seconds)
        try:
            if self._exclusive:
                self._nested = self._locks.nested(self._path)
            self._hold(limit)
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
            self._locks.sessions.end(session, self._held)

    @property
    def lost(self) -> bool:
        return self._session is None or self._locks.sessions.is_lost(self._session)

    def _hold(self, limit: int | None) -> None:
        """Take the locks. Raises LockTimeout, and psycopg's errors."""
        sessions, path, begin = self._locks.sessions, self._path, monotonic()
        self._held = Locked(b"", self._exclusive)
        session = self._session = sessions.enter(self._seconds)
        try:
            if limit:
                limit = max(0, limit - round((monotonic() - begin) * 1000))
            keys, names = self._locks.keys(*path)
            taken = self._ask(session, Locked(keys, self._exclusive), limit, names)
            deadlock, taken = taken < 0, taken if taken >= 0 else -1 - taken
            self._held = Locked(keys, self._exclusive, taken)
            if taken < len(path):
                holder = self._locks.holder(session, path[taken])
                raise LockTimeout(path[taken], None if deadlock else self._seconds, holder)
        finally:
            sessions.leave(session)

    def _ask(self, session: Session, wanted: Locked, limit: int | None, names: bytes) -> int:
        if self._schemas is None:
            return session.hold(wanted, limit)
        found = session.open(wanted, limit, names, array_of(map(str, self._schemas)))
        if isinstance(found, int):
            return found
        self.rows = found
        return len(self._path)


def array_of(items: Iterable[str]) -> bytes:
    """An array as the text that PostgreSQL reads."""
    return f"{{{','.join(items)}}}".encode()


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
