"""Turns a serialization failure or a deadlock into the conflict of the stream that another writer changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.errors import IdleInTransactionSessionTimeout

from ..domain.stream import Stream
from ..errors import AppendUncertain, LedgerBusy, StreamConflict, TransitionConflict
from .pool import Connection
from .server_errors import TRANSIENT, ledger_errors

if TYPE_CHECKING:
    from .ledger import Ledger


def conflict_of(
    ledger: Ledger,
    streams: Sequence[Stream[Any, Any]],
    error: BaseException | None,
    *,
    inside: bool = True,
) -> StreamConflict | None:
    """The conflict for a serialization failure or deadlock in a transaction on these streams (S2-15).

    inside: the transaction is the caller's, and not rolled back yet. If there are several streams, a stream
    whose version has changed is preferred. None for other errors, and where no stream has a conflict error of
    its own: the error is then LedgerBusy.
    """
    if not isinstance(error, TRANSIENT):
        return None
    found: list[StreamConflict] = []
    for stream in streams:
        head = ledger.head(stream.name)
        there = StreamConflict(stream.name, f"version {stream.version}", 0 if head is None else head.version)
        conflict = stream.conflict(there)
        if conflict is not there:
            found.insert(0 if there.found != stream.version else len(found), conflict)
    return next((in_transaction(one) if inside else one for one in found), None)


def in_transaction(conflict: StreamConflict) -> StreamConflict:
    """The same conflict, marked as raised in the caller's transaction, which keeps its snapshot or failed."""
    if not isinstance(conflict, TransitionConflict):
        return conflict
    return TransitionConflict(
        conflict.stream, conflict.expected, conflict.found, conflict.to_state, in_transaction=True
    )


@contextmanager
def conflict_errors(ledger: Ledger, stream: Stream[Any, Any]) -> Iterator[None]:
    """Raise the ledger's errors; a serialization failure becomes the conflict of this stream."""
    try:
        with ledger_errors():
            yield
    except LedgerBusy as error:
        conflict = conflict_of(ledger, [stream], error.__cause__, inside=False)
        if conflict is None:
            raise
        raise conflict from error


@contextmanager
def transaction(connection: Connection, ledger: Ledger, stream: Stream[Any, Any]) -> Iterator[None]:
    """A transaction; a failed commit raises the ledger's errors, the block's errors are unchanged (S2-43)."""
    over = False
    try:
        with connection.transaction():
            yield
            over = True
    except psycopg.Error as error:
        if not over:
            raise
        if connection.closed and not isinstance(error, IdleInTransactionSessionTimeout):
            raise AppendUncertain([stream.name]) from error
        with conflict_errors(ledger, stream):
            raise error
