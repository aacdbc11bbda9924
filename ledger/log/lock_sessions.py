"""
The sessions on the server that hold the locks of scopes: one for each thread that has scopes open.

Nested scopes of a thread share its session, so they never wait for each other, not even behind another
session in the queue; and the server detects a deadlock of two threads.

A scope may end in another thread (a generator that was passed on), or during another use of the same session
(the garbage collector, a signal's handler). So the end is only noted in `ended`. The thread that has the
session then releases its locks: the one that ends the scope, or the one that uses the session at that moment.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from functools import cache
from typing import Final, NamedTuple

import psycopg
from psycopg.pq import TransactionStatus

from ..domain import canonical_json
from . import at_exit
from .connection import CallingConnection
from .read import Row
from .sql import Statements

SQL = Statements(__package__, "scope_locks")
IDLE: Final = 8
"""Maximum number of idle sessions that stay open for the next scope."""


@cache
def _call(name: str, schema: str) -> tuple[bytes, bytes]:
    return SQL[name].prepared(schema)


class LockRequest(NamedTuple):
    """The locks of a scope: keys as an array's text, whether the last is exclusive, how many were granted."""

    keys: bytes
    exclusive: bool
    granted: int = 0


class ThreadSession:
    """The session of a thread, None without open scopes."""

    session: LockSession | None = None


class LockSession:
    """A session on the server. The thread that has locked `busy` uses it; any may add to `ended`."""

    def __init__(self, connection: CallingConnection, schema: str, opened: int) -> None:
        self.connection, self.schema, self.opened = connection, schema, opened
        self.place = ThreadSession()
        self.busy = threading.Lock()
        self.user: int | None = None  # the thread that has, or last had, locked `busy`
        self.scopes = 0
        self.ended: deque[LockRequest] = deque()  # scopes that ended and whose locks are not released yet
        self._unread = False
        self.forked = False

    def acquire(self, wanted: LockRequest, milliseconds: int | None) -> int:
        """Acquire the locks; returns the number of acquire_scope. Raises psycopg's errors."""
        limit = None if milliseconds is None else b"%d" % milliseconds
        said = self._ask("acquire_scope", [wanted.keys, b"t" if wanted.exclusive else b"f", limit])
        return int.from_bytes(said, "big", signed=True)

    def open(
        self, wanted: LockRequest, milliseconds: int | None, names: bytes, schemas: bytes
    ) -> list[Row] | int:
        """Acquire the locks of a scope, and return the streams of its path.

        Returns the number of locks, as `acquire`, if one is missing; no rows if Python cannot parse a state.
        """
        limit = None if milliseconds is None else b"%d" % milliseconds
        said = self._ask("open_scope", [wanted.keys, limit, names, schemas])
        found = canonical_json.parsed(said)
        return [] if isinstance(found, str) else found

    def _ask(self, name: str, values: list[bytes | None]) -> bytes:
        self._read()
        try:
            self._send(name, values)
            return self.connection.answer()
        except BaseException:  # also what a signal's handler raises
            self._recover()
            raise

    def release(self, request: LockRequest) -> None:
        """Release the locks of one scope, without waiting for the server's answer."""
        if self.scopes == 0:  # also a lock that was granted just at a time-out
            self._tell("release_scopes", [])
        elif request.granted:
            self._tell(
                "release_scope", [request.keys, b"t" if request.exclusive else b"f", b"%d" % request.granted]
            )

    def is_alive(self) -> bool:
        """Whether the session is open, as far as this client knows."""
        self._read()
        if (
            not self.connection.closed and self.connection.is_dead()
        ):  # there is data: a changed setting, or the end
            self._tell("release_scope", [b"{}", b"f", b"0"])
            self._read()
        return not self.connection.closed

    def close(self) -> None:
        self.connection.close()

    def forget(self) -> None:
        """In a fork: leave the parent's socket alone, and do not keep it open after the parent has ended."""
        self.forked = True
        if not self.connection.closed:
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, self.connection.pgconn.socket, inheritable=False)
            os.close(nothing)
            self.connection._pool = None  # so that psycopg does not warn that nobody closed it

    def _send(self, name: str, values: list[bytes | None]) -> None:
        self.connection.send(*_call(name, self.schema), values, (0,) * len(values))

    def _tell(self, name: str, values: list[bytes | None]) -> None:
        """Send, and leave the answer unread until the next use."""
        self._read()
        if self.connection.closed:
            return
        try:
            self._send(name, values)
            self._unread = True
        except psycopg.Error:
            self.close()
        except BaseException:
            self.close()
            raise

    def _read(self) -> None:
        """Read the unread answer. An error is ignored: the end of the last scope releases all locks."""
        if self._unread:
            self._unread = False
            try:
                self.connection.answer()
            except psycopg.Error:
                self._recover()
            except BaseException:
                self._recover()
                raise

    def _recover(self) -> None:
        """After an error or an interruption: cancel the statement; close the session if that fails."""
        try:
            if not self._is_idle():
                with contextlib.suppress(psycopg.Error):
                    self.connection.cancel_safe(timeout=2.0)
                with contextlib.suppress(psycopg.Error):
                    self.connection.answer()
        finally:
            if not self._is_idle():
                self.close()

    def _is_idle(self) -> bool:
        return self.connection.closed or self.connection.pgconn.transaction_status == TransactionStatus.IDLE


class LockSessions:
    """The sessions of one process, opened by `connect` when needed."""

    def __init__(self, connect: Callable[[float | None], CallingConnection], schema: str) -> None:
        """connect: opens a connection for scopes within the given seconds."""
        self._connect, self._schema = connect, schema
        self._local = threading.local()
        self._idle: list[LockSession] = []
        self._live: set[LockSession] = set()
        self._closed = 0  # how often
        _in_this_process.add(self)

    def acquire(self, seconds: float | None) -> LockSession:
        """The session of this thread for one more scope, with `busy` locked. Raises psycopg's errors."""
        place = self._place()
        while (session := place.session) is not None and not _in_use_here(session):
            _occupy(session)
            if place.session is session and session.is_alive():
                session.scopes += 1
                return session
            if place.session is session:  # the session was lost with its scopes
                place.session = None
            self.release(session)
        session = self._reused() or self._open(seconds)
        _occupy(session)
        # If a signal interrupts a use of this thread's session, the handler's scopes get another one.
        session.place = ThreadSession() if place.session is not None else place
        session.place.session, session.scopes = session, session.scopes + 1
        return session

    def release(self, session: LockSession) -> None:
        """Unlock `busy`; release the locks of scopes that ended meanwhile."""
        session.user = None
        session.busy.release()
        self.release_ended(session)

    def end(self, session: LockSession, request: LockRequest) -> None:
        """One scope of the session has ended."""
        session.ended.append(request)
        self.release_ended(session)

    def is_lost(self, session: LockSession) -> bool:
        """Whether the session ended, so that others may have its locks."""
        if not (session.forked or session.connection.closed) and session.busy.acquire(blocking=False):
            session.user = threading.get_ident()
            try:
                session.is_alive()
            finally:
                self.release(session)
        return session.forked or session.connection.closed

    def release_ended(self, session: LockSession) -> None:
        """Release the locks of scopes that ended. If the session is in use, its user does this later."""
        while session.ended and not session.forked and session.busy.acquire(blocking=False):
            session.user = threading.get_ident()
            try:
                self._release_ended(session)
            except BaseException:  # after a signal: lose the locks rather than never release one
                session.close()
                raise
            finally:
                session.user = None
                session.busy.release()

    def close(self) -> None:
        """Close idle sessions now, the others when their scopes end; the next scope opens a new one."""
        at_exit.forget(self)
        self._closed += 1
        while (session := self._pop()) is not None:
            self._close(session)

    def forget(self) -> None:
        """In a fork: the sessions are the parent's."""
        for session in self._live:
            session.forget()
        self._local = threading.local()
        self._idle, self._live = [], set()

    def _release_ended(self, session: LockSession) -> None:
        while session.ended:
            request = session.ended.popleft()
            session.scopes -= 1
            session.release(request)
        if session.scopes == 0:
            self._put_back(session)

    def _place(self) -> ThreadSession:
        place: ThreadSession | None = getattr(self._local, "place", None)
        if place is None:
            place = self._local.place = ThreadSession()
        return place

    def _put_back(self, session: LockSession) -> None:
        if session.place.session is session:
            session.place.session = None
        if session.connection.closed or session.opened != self._closed or len(self._idle) >= IDLE:
            self._close(session)
        else:
            self._idle.append(session)

    def _reused(self) -> LockSession | None:
        while (session := self._pop()) is not None:
            with session.busy:
                if session.is_alive():
                    return session
            self._close(session)
        return None

    def _pop(self) -> LockSession | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _open(self, seconds: float | None) -> LockSession:
        session = LockSession(self._connect(seconds), self._schema, self._closed)
        self._live.add(session)
        at_exit.close_at_exit(self)
        return session

    def _close(self, session: LockSession) -> None:
        session.close()
        self._live.discard(session)


def _occupy(session: LockSession) -> None:
    session.busy.acquire()
    session.user = threading.get_ident()


def _in_use_here(session: LockSession) -> bool:
    """Whether this thread itself is using the session."""
    return session.user == threading.get_ident()


_in_this_process: weakref.WeakSet[LockSessions] = weakref.WeakSet()


def _forked() -> None:
    for sessions in list(_in_this_process):
        sessions.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
