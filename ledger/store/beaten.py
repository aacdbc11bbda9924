"""What a serialization failure says of streams: that somebody else moved one of them first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.errors import SerializationFailure

from ..errors import LedgerBusy, StreamConflict, TransitionConflict
from ..stream import Stream
from .connections import Connection
from .faults import ledger_errors

if TYPE_CHECKING:
    from .ledger import Ledger


def beaten(
    ledger: Ledger,
    streams: Sequence[Stream[Any, Any]],
    error: BaseException | None,
    *,
    inside: bool = True,
) -> StreamConflict | None:
    """The conflict that a serialization failure is for the streams of a transaction (spec S2-15).

    inside: the transaction is the caller's, and still to be rolled back. Of several streams, the one that has
    another version by now. None for other errors, and where no stream has a conflict of its own: that is
    LedgerBusy.
    """
    if not isinstance(error, SerializationFailure):
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
    """The same, in a transaction of the caller's that goes on seeing what it saw, or that failed."""
    if not isinstance(conflict, TransitionConflict):
        return conflict
    return TransitionConflict(
        conflict.stream, conflict.expected, conflict.found, conflict.to_state, in_transaction=True
    )


@contextmanager
def told_beaten(ledger: Ledger, stream: Stream[Any, Any]) -> Iterator[None]:
    """The ledger's errors, of which a serialization failure is the conflict of this stream."""
    try:
        with ledger_errors():
            yield
    except LedgerBusy as error:
        conflict = beaten(ledger, [stream], error.__cause__, inside=False)
        if conflict is None:
            raise
        raise conflict from error


@contextmanager
def transaction(connection: Connection, ledger: Ledger, stream: Stream[Any, Any]) -> Iterator[None]:
    """A transaction whose commit is told so; what the block itself raises passes as it is (spec S2-43)."""
    over = False
    try:
        with connection.transaction():
            yield
            over = True
    except psycopg.Error as error:
        if not over:
            raise
        with told_beaten(ledger, stream):
            raise error
