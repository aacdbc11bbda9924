"""The ledger: open a stream, let the caller decide, append what was decided; read what was recorded."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import Any, Self, TypeVar

from psycopg.errors import SerializationFailure
from psycopg.pq import TransactionStatus

from ..append import Append, Appended, Body, append_of, body_of, status_of
from ..errors import BadInput, CursorMismatch, SchemaMismatch, TransitionConflict
from ..event import Event
from ..expected import ANY, Expected, as_expected
from ..names import checked
from ..recorded import NOBODY, Meta, ambient
from ..stream import Stream
from . import install
from .connections import Connection, Connections
from .delivery import Delivery
from .dsn import Target, resolve
from .joining import Joined
from .locks import AdvisoryLocks
from .reads import Reads
from .tail import Tail, Wakeup

O = TypeVar("O", bound=Stream[Any, Any])  # noqa: E741


def connect(
    dsn: str | None = None,
    *,
    schema: str | None = None,
    actor: str | None = None,
    create: bool | None = None,
    most: int = 10,
    patience: float = 30.0,
) -> Ledger:
    """Open the ledger: `dsn` > LEDGER_DSN > libpq's variables > the embedded server.

    schema: the ledger's schema (else LEDGER_SCHEMA, else `ledger`). actor: who appends (else LEDGER_ACTOR,
    else user@host). create: make the ledger where there is none and bring up an older one; by default only
    on the embedded server. most: connections at once; patience: seconds to wait for one, or for a server
    that restarts.
    Raises SchemaMismatch, ServerUnavailable, DamagedLedger.
    """
    target = resolve(dsn)
    schema = install.checked_schema(schema or os.environ.get("LEDGER_SCHEMA") or "ledger")
    actor = actor or os.environ.get("LEDGER_ACTOR") or f"{getpass.getuser()}@{socket.gethostname()}"
    ledger = Ledger(target, schema, actor, most=most, patience=patience)
    try:
        ledger.start(create=target.printable.startswith("embedded:") if create is None else create)
    except BaseException:
        ledger.close()
        raise
    return ledger


class Ledger(Reads):
    """A ledger in one schema of one database. Threads may share it; a fork gets its own connections."""

    def __init__(self, target: Target, schema: str, actor: str, *, most: int, patience: float) -> None:
        self.target, self.schema, self.actor = target, schema, actor
        self.connections = Connections(target.conninfo, most=most, patience=patience)
        self.identity: install.Identity
        self.tail = Tail(target.conninfo, schema)
        self.wakeup = Wakeup()
        self._locks: AdvisoryLocks | None = None
        self._making_locks = Lock()
        self._meta = Meta(actor=actor)
        self._delivery = Delivery(self.connections, schema)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.tail.close()
        self.connections.close()
        if self._locks is not None:
            self._locks.close()

    def start(self, *, create: bool) -> None:
        """Look who this ledger is, and refuse one that this code cannot serve.

        create: make it where there is none, and bring an older one up to this code.
        """
        with self.connections.connection() as connection:
            if create and not install.is_there(connection, self.schema):
                install.init(connection, self.schema)
            try:
                self.identity = install.identify(connection, self.schema)
                install.check(self.identity)
            except SchemaMismatch:
                if not create:
                    raise
                self.identity = install.init(connection, self.schema)
                install.check(self.identity)

    @property
    def locks(self) -> AdvisoryLocks:
        """The locks of scopes, on sessions of their own."""
        with self._making_locks:
            if self._locks is None:
                self._locks = AdvisoryLocks(
                    self.target.conninfo,
                    self.schema,
                    self.identity.ledger,
                    actor=self.actor,
                    patience=self.connections.patience,
                )
            return self._locks

    def check_again(self) -> None:
        """Look once more who this ledger is, after a lost connection. Raises CursorMismatch for another."""
        known = self.identity.ledger
        self.start(create=False)
        if self.identity.ledger != known:
            raise CursorMismatch(f"the ledger was {known}, now it is {self.identity.ledger}")

    # Appending

    def append(
        self,
        stream: str,
        *events: Event | Body,
        expected: Expected | int = ANY,
        head: bool = True,
        command: str | None = None,
        **meta: Any,
    ) -> Appended:
        """Append events to one stream. `meta`: fields of Meta. Raises Refused, BadInput."""
        status = status_of([event for event in events if isinstance(event, Event)])
        bodies = [body_of(event) for event in events]
        append = Append(checked(stream), bodies, as_expected(expected), status=status, head=head)
        return self.append_all([append], command=command, **meta)

    def append_all(self, appends: Sequence[Append], *, command: str | None = None, **meta: Any) -> Appended:
        """Append to many streams, all or nothing. Repeating a command id returns the first result."""
        for append in appends:
            checked(append.stream)
        appended = self._delivery.deliver(appends, self.meta(command=command, **meta))
        self.wakeup.appended()
        return appended

    def commit(
        self,
        *streams: Stream[Any, Any],
        checks: Sequence[Append] = (),
        command: str | None = None,
        **meta: Any,
    ) -> None:
        """Append the news of opened streams, all or nothing, each at the version at which it was opened.

        checks: expectations of other streams that must hold in the same moment. A conflict stores nothing.
        """
        changed = [stream for stream in streams if stream.news]
        if not changed:
            return
        appends = [append_of(stream) for stream in changed]
        appended = self.append_all([*appends, *checks], command=command, **meta)
        for stream in changed:
            stream.settle(appended.recorded_at)

    def meta(self, **fields: Any) -> Meta:
        """What appends of this context carry: the ambient Meta, the given fields, the ledger's actor."""
        meta = ambient()
        given = {name: value for name, value in fields.items() if value is not None}
        if not given and meta.actor is not None:
            return meta
        if meta is NOBODY:
            return Meta(**{"actor": self.actor, **given}) if given else self._meta
        return replace(meta, **{"actor": meta.actor or self.actor, **given})

    @contextmanager
    def open(self, kind: type[O], *key: str | int, command: str | None = None, **meta: Any) -> Iterator[O]:
        """A stream open for change; what its methods record is appended at the end of the block.

        An exception in the block stores nothing. Raises StreamConflict where another writer came first.
        """
        stream = self.load(kind, *key)
        yield stream
        self.commit(stream, command=command, **meta)

    def join(self, connection: Connection) -> Joined:
        """Appends that commit with the user's own rows: `with ledger.join(connection) as joined: …`.

        What is opened and appended in the block is recorded at its end, in the connection's transaction, just
        before the caller commits it. A refusal leaves that transaction usable.
        """
        return Joined(self, connection)

    @contextmanager
    def transaction(self, connection: Connection) -> Iterator[Joined]:
        """A transaction of a connection of the user's, joined: its rows and what is appended commit together.

        What waits for the commit is done after it. Raises BadInput where a transaction is open already.
        """
        if connection.info.transaction_status != TransactionStatus.IDLE:
            raise BadInput(
                "the connection is in a transaction already: use `ledger.join(connection)` in it, and call "
                "`committed()` of that once it is committed"
            )
        joined = self.join(connection)
        try:
            with connection.transaction(), joined:
                yield joined
        except TransitionConflict as conflict:
            conflict.in_transaction = False  # it is over: what runs this block again begins a new one
            raise
        except SerializationFailure as error:
            if (beaten := joined.beaten_at_commit(error)) is None:
                raise
            raise beaten from error
        joined.committed()
