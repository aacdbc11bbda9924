"""Appends that commit with the user's own rows, in the user's own transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar

from psycopg.pq import TransactionStatus

from ..append import Append, Appended, Body, append_of, body_of, status_of
from ..errors import AlreadyOpen, BadInput
from ..event import Event
from ..expected import ANY, Expected, as_expected
from ..names import checked
from ..stream import Stream
from . import reading
from .connections import Connection
from .faults import ledger_errors
from .sending import send

if TYPE_CHECKING:
    from .ledger import Ledger

O = TypeVar("O", bound=Stream[Any, Any])  # noqa: E741


class Joined:
    """Collects appends and records them at the end of its block, so that they hold their locks only briefly.

    A long transaction that holds an append stalls every reader of the log; hence the collecting, and hence
    one append per stream.
    """

    def __init__(self, ledger: Ledger, connection: Connection) -> None:
        self._ledger, self._connection = ledger, connection
        self._appends: dict[str, Append | Stream[Any, Any]] = {}
        self._claimed: set[str] = set()
        self._command: str | None = None
        self.appended: Appended | None = None

    def __enter__(self) -> Self:
        self._check_transaction()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._record()

    def append(
        self, stream: str, *events: Event | Body, expected: Expected | int = ANY, command: str | None = None
    ) -> None:
        """Append events at the end of the block."""
        self._claim(checked(stream))
        status = status_of([event for event in events if isinstance(event, Event)])
        bodies = [body_of(event) for event in events]
        self._appends[stream] = Append(stream, bodies, as_expected(expected), status=status)
        self._command = command or self._command

    @contextmanager
    def open(self, kind: type[O], *key: str | int) -> Iterator[O]:
        """A stream open for change, read in this transaction; its news are recorded at the block's end."""
        stream = kind.name_of(*key)
        self._claim(stream)
        with ledger_errors():
            opened = reading.open_one(self._connection, self._ledger.schema, kind, key)
        yield opened
        self._appends[stream] = opened

    def _check_transaction(self) -> None:
        status = self._connection.info.transaction_status
        if self._connection.autocommit and status == TransactionStatus.IDLE:
            raise BadInput(
                "the connection is in autocommit and has no transaction to join: "
                "use `with connection.transaction():` around, or a connection without autocommit"
            )
        if status == TransactionStatus.INERROR:
            raise BadInput(
                "a statement of the transaction to join has failed: roll it back, to a savepoint or whole"
            )

    def _claim(self, stream: str) -> None:
        if stream in self._claimed:
            raise AlreadyOpen(stream, "this join")
        self._claimed.add(stream)

    def _record(self) -> None:
        appends: Sequence[Append] = [
            append_of(entry) if isinstance(entry, Stream) else entry
            for entry in self._appends.values()
            if not (isinstance(entry, Stream) and not entry.news)
        ]
        if not appends:
            return
        self._check_transaction()
        meta = self._ledger.meta(command=self._command)
        with ledger_errors():
            self.appended = send(self._connection, self._ledger.schema, appends, meta.body(), self._command)
        for entry in self._appends.values():
            if isinstance(entry, Stream):
                entry.settle(self.appended.recorded_at)
