"""Transactions in which callbacks run: their moves in the same ledger are recorded in that transaction.

A callback that used another transaction would wait for a lock of the one around it, for ever, because that
one waits for the callback, and PostgreSQL cannot detect a wait within one process.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from ..domain.stream import Stream
from ..errors import AlreadyOpen, Refused, StreamConflict
from .pool import Connection
from .server_errors import ledger_errors
from .sql import Statements, run

if TYPE_CHECKING:
    from .join import Joined
    from .ledger import Ledger

SQL = Statements(__package__, "callbacks")

DEEPEST: Final = 64
"""The maximum nesting of moves in callbacks: deeper is a circle, and would exceed Python's stack."""


class CallbackTransaction:
    """One transaction of this thread, from the first callback that runs in it.

    ledger, connection: None for moves in memory. joined: set for the user's own transaction. before: the
    streams whose move is being prepared. held: the streams that were appended to, and are locked. waiting:
    the calls to make after the commit, in order. undo: the calls that undo changes in this process. kept: the
    histories of moves in memory, by stream. conflict: the conflict that ended it. limited: the session's
    former limit.
    """

    def __init__(
        self, ledger: Ledger | None, connection: Connection | None = None, joined: Joined | None = None
    ) -> None:
        self.ledger, self.connection, self.joined = ledger, connection, joined
        self.before: list[str] = []
        self.held: set[str] = set()
        self.waiting: list[Callable[[], None]] = []
        self.undo: list[Callable[[], None]] = []
        self.kept: dict[str, Any] = {}
        self.conflict: StreamConflict | None = None
        self.depth = 0
        self.limited: str | None = None

    def is_of(self, ledger: Ledger | None) -> bool:
        """Whether it is a transaction in this ledger, for this role."""
        mine = self.ledger
        if mine is None or ledger is None:
            return mine is ledger
        return mine is ledger or (
            mine.schema == ledger.schema and mine.address.conninfo == ledger.address.conninfo
        )

    @contextmanager
    def move(self, stream: str) -> Iterator[None]:
        """One move in it, with its callbacks; if it fails, its changes in this process are undone.

        Raises AlreadyOpen in a callback before a move of the same stream, and Refused for too deep a nesting.
        """
        if stream in self.before:
            raise AlreadyOpen(
                stream, "its own move, because this callback runs before it",
                "move it on in a callback after the move",
            )  # fmt: skip
        if self.depth == DEEPEST:
            raise Refused(
                f"{stream}: {DEEPEST} moves are nested in callbacks, and this is one more; look for a cycle "
                "of callbacks, or make the next move in `after_commit`"
            )
        held, limited, waiting, undo = set(self.held), self.limited, len(self.waiting), len(self.undo)
        self.depth += 1
        try:
            yield
        except BaseException:
            for act in reversed(self.undo[undo:]):
                act()
            self.held, self.limited = held, limited
            del self.waiting[waiting:], self.undo[undo:]
            raise
        finally:
            self.depth -= 1

    @contextmanager
    def calling(self, stream: str | None = None) -> Iterator[None]:
        """Run callbacks, whose moves belong to this transaction. stream: whose move they precede."""
        stack = _stack()
        stack.append(self)
        if stream is not None:
            self.before.append(stream)
        try:
            yield
        finally:
            if stream is not None:
                self.before.pop()
            stack.pop()

    def refuse_held(self, streams: Iterable[str]) -> None:
        """Refuse an append on another connection to a stream held here: each would wait for the other."""
        for stream in streams:
            if stream in self.held:
                raise AlreadyOpen(
                    stream, "the transaction that this callback runs in",
                    "append there: `ledger.join(transition.connection)`",
                )  # fmt: skip

    def take_part(self, connection: Connection, streams: Iterable[str]) -> None:
        """An append on this connection, which may be its own."""
        if connection is self.connection:
            self.held.update(streams)
        else:
            self.refuse_held(streams)

    def took(self, stream: Stream[Any, Any]) -> None:
        """A stream was appended to in it, and is locked until its end."""
        self.held.add(stream.name)
        if self.joined is not None:
            self.undo.append(self.joined.knows(stream))

    def limit(self) -> None:
        """Let the server end the transaction when it is idle for the ledger's `timeout`.

        A callback may wait for something that waits for this transaction, and so does every follower of the
        log. A limit that the session has set itself stays.
        """
        if self.limited is not None or self.ledger is None or self.connection is None:
            return
        limit = max(1, int(self.ledger.pool.timeout * 1000))
        with ledger_errors():
            rows = run(self.connection, self.ledger.schema, SQL.limit_idling, most=str(limit))
        self.limited = rows[0][0]

    def end_limit(self) -> None:
        """Restore the former limit after the callbacks, for the rest of the user's transaction."""
        if self.limited is not None and self.ledger is not None and self.connection is not None:
            with ledger_errors():
                run(self.connection, self.ledger.schema, SQL.set_idling, limit=self.limited)


class _Local(threading.local):
    """The transactions in whose callbacks a thread is. Each append checks it, at almost no cost if empty."""

    pid: int | None = None
    stack: list[CallbackTransaction] | None = None


CALLBACKS: Final = _Local()


def _stack() -> list[CallbackTransaction]:
    """The transactions in whose callbacks this thread is; empty in a fork."""
    if CALLBACKS.stack is None or CALLBACKS.pid != os.getpid():
        CALLBACKS.pid, CALLBACKS.stack = os.getpid(), []
    return CALLBACKS.stack


def callback_transaction(ledger: Ledger | None) -> CallbackTransaction | None:
    """The transaction of this ledger, or of memory, in whose callback this thread is; usually None."""
    if not CALLBACKS.stack:
        return None
    return next((one for one in reversed(_stack()) if one.is_of(ledger)), None)
