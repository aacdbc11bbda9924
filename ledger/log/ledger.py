"""The ledger: open streams, append events, and read what was recorded."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, overload

from psycopg.errors import SerializationFailure
from psycopg.pq import TransactionStatus

from ..domain.names import checked
from ..domain.stream import Stream
from ..errors import AlreadyOpen, BadInput, CursorMismatch, SchemaMismatch, StreamNotFound, TransitionConflict
from . import install
from .announce import FirstAppends
from .append import (
    ANY,
    Append,
    Appended,
    Body,
    Exact,
    Expected,
    append_of,
    append_to,
)
from .append_from import Choices, Chosen, send_from
from .appender import Appender
from .callbacks import CALLBACKS, callback_transaction
from .committer import Committer
from .cursor import Cursor
from .dsn import Address, resolve
from .join import Joined
from .pool import Connection, Pool
from .read import SQL, Head, StreamInfo, Unread, open_below, open_each, open_one, recorded
from .read import states as read_states
from .recorded import NOBODY, Meta, Recorded, ambient
from .scope_locks import AdvisoryLocks
from .server_errors import ledger_errors
from .sql import Statement, run
from .tail import Tail, Wakeup

if TYPE_CHECKING:
    from ..domain.event import Event

PAGE: Final = 1000
"""Events per page when reading; 500 to 1,000 are fastest."""
_checked_once = lru_cache(4096)(checked)
"""The check of names that an append makes: mostly of a stream to which was just appended."""
O = TypeVar("O", bound=Stream[Any, Any])  # noqa: E741
P = TypeVar("P", bound=Stream[Any, Any])
Q = TypeVar("Q", bound=Stream[Any, Any])


def connect(
    dsn: str | None = None,
    *,
    schema: str | None = None,
    actor: str | None = None,
    create: bool | None = None,
    max_size: int = 10,
    timeout: float = 30.0,
) -> Ledger:
    """Open the ledger: `dsn` > LEDGER_DSN > libpq's variables > the embedded server.

    schema: the ledger's schema (else LEDGER_SCHEMA, else `ledger`). actor: who appends (else LEDGER_ACTOR,
    else user@host). create: make the ledger where there is none, and upgrade an older one; by default only on
    the embedded server. max_size: maximum number of connections. timeout: seconds to wait for one, or for a
    server that restarts.
    Raises SchemaMismatch, ServerUnavailable, DamagedLedger.
    """
    address = resolve(dsn)
    schema = install.checked_schema(schema or os.environ.get("LEDGER_SCHEMA") or "ledger")
    actor = actor or os.environ.get("LEDGER_ACTOR") or f"{getpass.getuser()}@{socket.gethostname()}"
    ledger = Ledger(address, schema, actor, max_size=max_size, timeout=timeout)
    try:
        ledger.start(create=address.printable.startswith("embedded:") if create is None else create)
    except BaseException:
        ledger.close()
        raise
    return ledger


class Ledger:
    """A ledger in one schema of one database. Threads may share it; a fork gets its own connections."""

    def __init__(self, address: Address, schema: str, actor: str, *, max_size: int, timeout: float) -> None:
        self.address, self.schema, self.actor = address, schema, actor
        self.pool = Pool(address.conninfo, max_size=max_size, timeout=timeout)
        self.identity: install.Identity
        self.may_run: set[str] = set()
        """Programs whose roles this login is known to have (`ledger.roles`)."""
        self.tail = Tail(address.conninfo, schema)
        self.wakeup = Wakeup()
        self._locks: AdvisoryLocks | None = None
        self._making_locks = Lock()
        self._meta = Meta(actor=actor)
        self.appender = Appender(self.pool, schema)
        self.committer = Committer(self.appender, self.pool, schema)
        self.first_appends = FirstAppends(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.tail.close()
        self.pool.close()
        if self._locks is not None:
            self._locks.close()

    def start(self, *, create: bool) -> None:
        """Read the ledger's identity, and refuse a ledger that this code cannot serve.

        create: make it where there is none, and upgrade an older one to this code.
        """
        self.identity = self._found(create=create)

    def _found(self, *, create: bool) -> install.Identity:
        with self.pool.connection() as connection:
            if create and not install.is_there(connection, self.schema):
                install.init(connection, self.schema)
            try:
                found = install.identify(connection, self.schema)
                install.check(found)
            except SchemaMismatch:
                if not create:
                    raise
                found = install.init(connection, self.schema)
                install.check(found)
        return found

    @property
    def locks(self) -> AdvisoryLocks:
        """The locks of scopes, on sessions of their own."""
        with self._making_locks:
            if self._locks is None:
                self._locks = AdvisoryLocks(
                    self.address.conninfo,
                    self.schema,
                    self.identity.ledger,
                    actor=self.actor,
                    timeout=self.pool.timeout,
                )
            return self._locks

    def check_again(self) -> None:
        """Read the ledger's identity again after a lost connection. Raises CursorMismatch if it changed."""
        known, found = self.identity.ledger, self._found(create=False)
        if found.ledger != known:  # the old identity stays, so that the next check fails too
            raise CursorMismatch(f"the ledger was {known}, now it is {found.ledger}")
        self.identity = found

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
        append = append_to(stream, events, expected)
        return self.append_all([append if head else append._replace(head=False)], command=command, **meta)

    def append_all(self, appends: Sequence[Append], *, command: str | None = None, **meta: Any) -> Appended:
        """Append to many streams, all or nothing. Repeating a command id returns the first result."""
        announced = self.first_appends.seen
        for append in appends:
            try:
                _checked_once(append.stream)
            except TypeError:  # no text at all
                checked(append.stream)
            for body in append.events:
                if body.topic not in announced:
                    self.first_appends.announce(appends)
        if CALLBACKS.stack and (around := callback_transaction(self)) is not None:
            around.refuse_held(append.stream for append in appends)
        who = ambient()
        if command is None and not meta and (who is NOBODY or who.actor is not None):
            given = self._meta if who is NOBODY else who
        else:
            given = self.meta(command=command, **meta)
        if len(appends) == 1 and not CALLBACKS.stack:
            appended = self.committer.append(appends[0], given)
        else:
            appended = self.appender.append(appends, given)
        self.wakeup.count += 1  # as its appended() does
        if self.wakeup.waiting:
            self.wakeup.wake()
        return appended

    def append_from(self, stream: str, choices: Choices, **meta: Any) -> Chosen | None:
        """Append one event by the status of a stream, without opening it: see `ledger.log.append_from`.

        Returns None if nothing was recorded and the stream must be opened. Raises StreamConflict where
        another writer came first, AppendUncertain.
        """
        if CALLBACKS.stack and (around := callback_transaction(self)) is not None:
            around.refuse_held([stream])
        if choices.topic not in self.first_appends.seen:
            self.first_appends.announce_topics({choices.topic})
        given = self.meta(**meta)
        send = partial(
            send_from, schema=self.schema, stream=stream, choices=choices, meta=given.text or given.body()
        )
        chosen = self.appender.call(send, stream)
        if chosen is not None:
            self.wakeup.appended()
        return chosen

    def commit(
        self,
        *streams: Stream[Any, Any],
        checks: Sequence[Append] = (),
        command: str | None = None,
        **meta: Any,
    ) -> Appended | None:
        """Append the news of opened streams, all or nothing, each at the version at which it was opened.

        checks: expectations of other streams that must hold at the same time. A conflict stores nothing.
        Returns None where there are no news.
        """
        changed = [stream for stream in streams if stream.news]
        if not changed:
            return None
        appends = [append_of(stream) for stream in changed]
        appended = self.append_all([*appends, *checks], command=command, **meta)
        for stream in changed:
            stream.settle(appended.recorded_at)
        return appended

    def meta(self, **fields: Any) -> Meta:
        """The metadata of appends in this context: the ambient Meta, the given fields, the ledger's actor."""
        meta = ambient()
        given = {name: value for name, value in fields.items() if value is not None}
        if not given and meta.actor is not None:
            return meta
        if meta is NOBODY:
            return Meta(**{"actor": self.actor, **given}) if given else self._meta
        return replace(meta, **{"actor": meta.actor or self.actor, **given})

    @contextmanager
    def open(self, kind: type[O], *key: str | int, command: str | None = None, **meta: Any) -> Iterator[O]:
        """Open a stream for change; what its methods record is appended at the end of the block.

        An exception in the block stores nothing. Raises StreamConflict where another writer came first.
        """
        stream = self.load(kind, *key)
        yield stream
        self.commit(stream, command=command, **meta)

    @overload
    def open_all(
        self, one: O, /, *, command: str | None = None, **meta: Any
    ) -> AbstractContextManager[tuple[O]]: ...
    @overload
    def open_all(
        self, one: O, two: P, /, *, command: str | None = None, **meta: Any
    ) -> AbstractContextManager[tuple[O, P]]: ...
    @overload
    def open_all(
        self, one: O, two: P, three: Q, /, *, command: str | None = None, **meta: Any
    ) -> AbstractContextManager[tuple[O, P, Q]]: ...
    @overload
    def open_all(
        self, *streams: O, command: str | None = None, **meta: Any
    ) -> AbstractContextManager[tuple[O, ...]]: ...
    def open_all(  # type: ignore[misc]  # mypy does not see that *streams takes one, two and three
        self, *streams: Any, command: str | None = None, **meta: Any
    ) -> Any:
        """Open several streams for change: `with log.open_all(Book(7), Member("ann")) as (book, member): …`.

        streams: new objects of their classes; they are loaded in one snapshot. What their methods record is
        appended at the end of the block, all or nothing, and only if every stream, changed or not, is still
        at the version that was read. An exception in the block stores nothing.
        Raises StreamConflict, which names the stream, where another writer came first; AlreadyOpen for a
        stream that is named twice.
        """
        return self._open_all(streams, command, meta)

    @contextmanager
    def _open_all(
        self, streams: tuple[Stream[Any, Any], ...], command: str | None, meta: dict[str, Any]
    ) -> Iterator[tuple[Stream[Any, Any], ...]]:
        names = [stream.name for stream in streams]
        if twice := [name for nth, name in enumerate(names) if name in names[:nth]]:
            raise AlreadyOpen(twice[0], "this block")
        self.load_each(streams)
        yield streams
        unchanged = [stream for stream in streams if not stream.news]
        checks = [Append(stream.name, [], Exact(stream.version)) for stream in unchanged]
        self.commit(*streams, checks=checks, command=command, **meta)

    def join(self, connection: Connection) -> Joined:
        """Append in the user's own transaction: `with ledger.join(connection) as joined: …`.

        The block's appends are recorded at its end, in the connection's transaction, just before the caller
        commits it. A refusal leaves that transaction usable.
        """
        return Joined(self, connection)

    @contextmanager
    def transaction(self, connection: Connection) -> Iterator[Joined]:
        """Begin a transaction on the user's connection and join it: its rows and its appends commit together.

        Calls that wait for the commit run after it. Raises BadInput where a transaction is open already.
        """
        if connection.info.transaction_status != TransactionStatus.IDLE:
            raise BadInput(
                "the connection is in a transaction already: use `ledger.join(connection)` in it, and call "
                "its `committed()` after the commit"
            )
        joined = self.join(connection)
        try:
            with connection.transaction(), joined:
                yield joined
        except BaseException as error:
            joined.rolled_back()
            if isinstance(error, TransitionConflict):
                error.in_transaction = False  # it is over: a retry begins a new transaction
            conflict = joined.conflict_at_commit(error) if isinstance(error, SerializationFailure) else None
            if conflict is not None:
                raise conflict from error
            raise
        joined.committed()

    # Reading

    def load(self, kind: type[O], *key: str | int, version: int | None = None) -> O:
        """Load the stream of this key as it is now, or as it was at a version; version 0 if nothing is
        recorded.

        Raises UnreadableEvent where one of its events does not match its topic.
        """
        with self.reader() as connection:
            return open_one(connection, self.schema, kind, key, version)

    def load_each(self, streams: Iterable[O]) -> list[O]:
        """Load new stream objects from the log in one snapshot; returns them sorted by name.

        Raises UnreadableEvent, as `load` and `load_below` do.
        """
        with self.reader() as connection:
            return open_each(connection, self.schema, streams)

    def load_below(
        self, *prefixes: tuple[str, type[O]], upto: int | None = None, unread: Unread | None = None
    ) -> list[O]:
        """Load every stream under the prefixes in one snapshot; a prefix without a final `/` names one
        stream.

        upto: as of this position; the log must have been read up to it before. unread: as in `states`.
        """
        with self.reader() as connection:
            opened = open_below(connection, self.schema, prefixes, upto, unread)
            return [stream for _, stream in opened]

    def states(
        self, *prefixes: tuple[str, type[O]], unread: Unread | None = None
    ) -> dict[type[O], list[tuple[str, int, Any]]]:
        """Name, version and state of every stream under the prefixes, by class, in one snapshot; for reading
        only.

        unread: called for each stream that cannot be folded, which is then left out; without it the first of
        them is raised as UnreadableEvent.
        """
        with self.reader() as connection:
            return read_states(connection, self.schema, prefixes, unread=unread)

    def head(self, stream: str) -> Head | None:
        """The head of a stream, as its last append left it."""
        rows = self.query(SQL.head, stream=checked(stream))
        return Head(*rows[0]) if rows else None

    def read(
        self,
        stream: str,
        *,
        after: int = 0,
        upto: int | None = None,
        limit: int | None = None,
        backwards: bool = False,
    ) -> list[Recorded]:
        """Events of one stream by version, `after` exclusive, `upto` inclusive. Raises StreamNotFound."""
        name = "read_stream_backwards" if backwards else "read_stream"
        parameters = {
            "stream": checked(stream),
            "after": after,
            "upto": 2**62 if upto is None else upto,
            "limit": limit,
        }
        with self.reader() as connection:
            rows = run(connection, self.schema, SQL[name], **parameters)
            if not rows and not run(connection, self.schema, SQL.has_stream, stream=stream):
                raise StreamNotFound(stream)
        return [recorded(row) for row in rows]

    def streams(self, prefix: str = "", *, after: str = "", limit: int = PAGE) -> list[StreamInfo]:
        """Streams whose names start with `prefix`, by name, after a given name; at most `limit`."""
        rows = self.query(SQL.streams, prefix=prefix, after=after, limit=limit)
        return [StreamInfo(*(*row[:-1], row[-1].astimezone(UTC))) for row in rows]

    def bound(self) -> int:
        """The position up to which the log may be read now without a skip; call it before `log`."""
        return int(self.query(SQL.bound, known=-1)[0][0])

    def log(self, after: int, bound: int, limit: int = PAGE) -> list[Recorded]:
        """Events of all streams by position: `after` exclusive, up to a bound that was read before."""
        rows = self.query(SQL.read_log, after=after, bound=bound, limit=limit)
        return [recorded(row) for row in rows]

    def last(
        self, count: int, bound: int, *, topics: Sequence[str] | None = None, prefix: str = ""
    ) -> list[Recorded]:
        """The last `count` events up to a bound that was read before, in the order of the log.

        topics: only these. prefix: only streams whose names start with it.
        """
        wanted: dict[str, Any] = {
            "bound": bound, "topics": topics and list(topics), "prefix": prefix, "limit": count
        }  # fmt: skip
        rows = self.query(SQL.read_last, **wanted)
        return [recorded(row) for row in reversed(rows)]

    def position_at(self, at: datetime) -> int:
        """The position of *as of time T*: the last one before any event that was recorded after T."""
        return int(self.query(SQL.position_at, at=at)[0][0])

    def version_at(self, stream: str, position: int) -> int:
        """The last version of a stream at or before a position; 0 where it had none."""
        return int(self.query(SQL.version_at, stream=checked(stream), position=position)[0][0])

    def event_at(self, position: int) -> Recorded | None:
        """The event at a position, None in a gap."""
        rows = self.query(SQL.event_at, position=position)
        return recorded(rows[0]) if rows else None

    def recorded_with(self, event: Recorded) -> list[Recorded]:
        """The events of the append that recorded this one, by position; always the same.

        The events of one append have adjacent positions and the same time. Two adjacent appends of the same
        microsecond are taken for one.
        """
        rows = self.query(SQL.recorded_with, position=event.position, at=event.recorded_at)
        return [recorded(row) for row in rows]

    def check_cursor(self, cursor: Cursor) -> int:
        """The position to continue from. Raises CursorMismatch where the cursor is of another history."""
        cursor.check(self.identity.ledger, self.event_at(cursor.position) if cursor.position else None)
        return cursor.position

    def query(
        self, statement: Statement, /, on: Connection | None = None, **parameters: Any
    ) -> list[tuple[Any, ...]]:
        """The rows of a statement (`ledger.log.sql`). on: use this connection instead of one of the pool.

        On a given connection, psycopg's errors are raised as they are, because its transaction is the
        caller's.
        """
        if on is not None:
            return run(on, self.schema, statement, **parameters)
        with self.reader() as connection:
            return run(connection, self.schema, statement, **parameters)

    def text(self, statement: Statement, /, *values: str) -> str:
        """The one text that a statement returns for %s and so on, at half the cost of `query`."""
        with self.pool.connection() as connection, ledger_errors():
            given = [value.encode() for value in values]
            return connection.call(*statement.prepared(self.schema), given, [0] * len(given)).decode()

    @contextmanager
    def reader(self) -> Iterator[Connection]:
        """A connection for reading, with the ledger's errors."""
        with self.pool.connection() as connection, ledger_errors():
            yield connection
