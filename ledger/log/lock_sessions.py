"""
The sessions on the server that hold the locks of scopes: one for each thread that has scopes open.

Nested scopes of a thread share its session, so they never wait for each other, also not behind somebody who
queues between them; and the server sees when two threads wait for each other.

A scope may end in another thread (a generator that was handed on), or in the midst of another use of the same
session (the garbage collector, a signal's handler). So an end is only noted, and whoever holds the session
settles it: the one that ends the scope, or else the one that uses the session just then.
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
"""LockSessions at most that are kept for the next scope."""


@cache
def _call(name: str, schema: str) -> tuple[bytes, bytes]:
    return SQL[name].prepared(schema)


class LockRequest(NamedTuple):
    """What a scope asked for: its keys as an array's text, whether the last is exclusive; how many it got."""

    keys: bytes
    exclusive: bool
    taken: int = 0


class ThreadSession:
    """Where a thread keeps its session; who settles the session's last scope empties it."""

    session: LockSession | None = None


class LockSession:
    """A session on the server. Only for who holds `busy`, but for `ended`, to which anybody may add."""

    def __init__(self, line: CallingConnection, schema: str, opened: int) -> None:
        self.line, self.schema, self.opened = line, schema, opened
        self.place = ThreadSession()
        self.busy = threading.Lock()
        self.user: int | None = None  # the thread that holds `busy`, or did last
        self.scopes = 0
        self.ended: deque[LockRequest] = deque()  # scopes that ended, and are not settled yet
        self._unread = False
        self.forked = False

    def hold(self, wanted: LockRequest, milliseconds: int | None) -> int:
        """Take the locks, and say how many were got, as hold_scope does. Raises psycopg's errors."""
        limit = None if milliseconds is None else b"%d" % milliseconds
        said = self._ask("hold_scope", [wanted.keys, b"t" if wanted.exclusive else b"f", limit])
        return int.from_bytes(said, "big", signed=True)

    def open(
        self, wanted: LockRequest, milliseconds: int | None, names: bytes, schemas: bytes
    ) -> list[Row] | int:
        """Take the locks of a scope, and say what the streams of its path are at; else as `hold`."""
        limit = None if milliseconds is None else b"%d" % milliseconds
        said = self._ask("open_scope", [wanted.keys, limit, names, schemas])
        found = canonical_json.parsed(
            said
        )  # text: a state that Python cannot hold, and no rows: read otherwise
        return [] if isinstance(found, str) else found

    def _ask(self, name: str, values: list[bytes | None]) -> bytes:
        self._read()
        try:
            self._send(name, values)
            return self.line.answer()
        except BaseException:  # also what a signal's handler raises
            self._recover()
            raise

    def release(self, held: LockRequest) -> None:
        """Give back the locks of one scope; the server does it, nobody waits for the answer."""
        if self.scopes == 0:  # whatever else it holds: what was granted in the moment of a time-out
            self._tell("release_scopes", [])
        elif held.taken:
            self._tell("release_scope", [held.keys, b"t" if held.exclusive else b"f", b"%d" % held.taken])

    def is_alive(self) -> bool:
        """Whether the server still knows it, as far as this computer was told."""
        self._read()
        if not self.line.closed and self.line.is_dead():  # it said something: news of a setting, or goodbye
            self._tell("release_scope", [b"{}", b"f", b"0"])
            self._read()
        return not self.line.closed

    def close(self) -> None:
        self.line.close()

    def forget(self) -> None:
        """In a fork: leave the parent's socket alone, but do not keep it open when the parent is gone."""
        self.forked = True
        if not self.line.closed:
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, self.line.pgconn.socket, inheritable=False)
            os.close(nothing)
            self.line._pool = None  # so that psycopg does not warn that nobody closed it

    def _send(self, name: str, values: list[bytes | None]) -> None:
        self.line.send(*_call(name, self.schema), values, (0,) * len(values))

    def _tell(self, name: str, values: list[bytes | None]) -> None:
        """Send, and leave the answer for the next use."""
        self._read()
        if self.line.closed:
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
        """Read the answer that was left; what went wrong there, the end of the last scope sets right."""
        if self._unread:
            self._unread = False
            try:
                self.line.answer()
            except psycopg.Error:
                self._recover()
            except BaseException:
                self._recover()
                raise

    def _recover(self) -> None:
        """After an error or an interruption: stop waiting on the server; close what cannot be used again."""
        try:
            if not self._is_idle():
                with contextlib.suppress(psycopg.Error):
                    self.line.cancel_safe(timeout=2.0)
                with contextlib.suppress(psycopg.Error):
                    self.line.answer()
        finally:
            if not self._is_idle():
                self.close()

    def _is_idle(self) -> bool:
        return self.line.closed or self.line.pgconn.transaction_status == TransactionStatus.IDLE


class LockSessions:
    """The sessions of one process, opened by `connect` when they are wanted."""

    def __init__(self, connect: Callable[[float | None], CallingConnection], schema: str) -> None:
        """connect: makes a session fit to hold scopes, within so many seconds."""
        self._connect, self._schema = connect, schema
        self._local = threading.local()
        self._idle: list[LockSession] = []
        self._live: set[LockSession] = set()
        self._closed = 0  # how often
        _in_this_process.add(self)

    def enter(self, seconds: float | None) -> LockSession:
        """The session of this thread for one more scope, held busy. Raises psycopg's errors."""
        place = self._place()
        while (session := place.session) is not None and not _in_use_here(session):
            _acquire(session)
            if place.session is session and session.is_alive():
                session.scopes += 1
                return session
            if place.session is session:  # it was lost with all scopes in it
                place.session = None
            self.leave(session)
        session = self._take() or self._open(seconds)
        _acquire(session)
        # Where a signal interrupts a use of this thread's session, the handler's scopes have another.
        session.place = ThreadSession() if place.session is not None else place
        session.place.session, session.scopes = session, session.scopes + 1
        return session

    def leave(self, session: LockSession) -> None:
        """No longer hold it busy; settle what ended meanwhile."""
        session.user = None
        session.busy.release()
        self.settle(session)

    def end(self, session: LockSession, held: LockRequest) -> None:
        """One of its scopes has ended."""
        session.ended.append(held)
        self.settle(session)

    def is_lost(self, session: LockSession) -> bool:
        """Whether the session ended: then the server has given its locks to others."""
        if not (session.forked or session.line.closed) and session.busy.acquire(blocking=False):
            session.user = threading.get_ident()
            try:
                session.is_alive()
            finally:
                self.leave(session)
        return session.forked or session.line.closed

    def settle(self, session: LockSession) -> None:
        """Release the locks of scopes that ended; while the session is in use, its user does it later."""
        while session.ended and not session.forked and session.busy.acquire(blocking=False):
            session.user = threading.get_ident()
            try:
                self._settle(session)
            except BaseException:  # a signal came between: rather no lock than one that nobody gives back
                session.close()
                raise
            finally:
                session.user = None
                session.busy.release()

    def close(self) -> None:
        """Close those that hold nothing, the others when their scopes end; the next scope opens another."""
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

    def _settle(self, session: LockSession) -> None:
        while session.ended:
            held = session.ended.popleft()
            session.scopes -= 1
            session.release(held)
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
        if session.line.closed or session.opened != self._closed or len(self._idle) >= IDLE:
            self._close(session)
        else:
            self._idle.append(session)

    def _take(self) -> LockSession | None:
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


def _acquire(session: LockSession) -> None:
    session.busy.acquire()
    session.user = threading.get_ident()


def _in_use_here(session: LockSession) -> bool:
    """Whether this thread itself is in the midst of using it."""
    return session.user == threading.get_ident()


_in_this_process: weakref.WeakSet[LockSessions] = weakref.WeakSet()


def _forked() -> None:
    for sessions in list(_in_this_process):
        sessions.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
