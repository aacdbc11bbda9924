"""
The append: events for one or several streams, each with an expected version, recorded all or nothing in one
round trip.

`Ledger.append` and `Ledger.commit` make an `Append` for each stream. An `Appender` sends them on a connection
of the pool, and sends them again where that cannot record anything twice. `send` calls the SQL function on
the given connection. The function checks the expectations and records the events (functions/4_append.sql).
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from itertools import count
from json.encoder import encode_basestring_ascii
from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeGuard, TypeVar

import psycopg
from psycopg.errors import UniqueViolation
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from ..domain import canonical_json
from ..domain.frozen import FrozenDict
from ..domain.state import dump
from ..domain.stream import Stream
from ..domain.topics import leads_to
from ..errors import (
    AppendUncertain,
    BadInput,
    CommandReused,
    GuardFailed,
    LedgerBusy,
    LedgerError,
    StreamConflict,
    shown,
)
from .connection import CallingConnection, may_prepare
from .pool import Pool
from .recorded import Meta
from .server_errors import TRANSIENT, raise_ours
from .sql import Statements

if TYPE_CHECKING:
    from ..domain.event import Event

SQL = Statements(__package__, "append")
Connection = psycopg.Connection[Any]
T = TypeVar("T")

# What an append expects of a stream. NUMBER: its code in append_many.


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are_texts(value: object) -> bool:
    return isinstance(value, frozenset | set) and all(isinstance(text, str) for text in value)


@dataclass(frozen=True, slots=True)
class Exact:
    """The stream is at this version: nothing was appended since it was read. Version 0: a new stream."""

    version: int

    def __post_init__(self) -> None:
        if not _is_integer(self.version) or not 0 <= self.version < 2**62:
            raise BadInput(
                f"expected version {shown(self.version)} must be an integer, "
                "0 (a new stream) or more, below 2**62"
            )

    def __str__(self) -> str:
        return f"version {self.version}" if self.version else "a new stream"


@dataclass(frozen=True, slots=True)
class Anything:
    """The stream may be at any version, or new."""

    NUMBER: ClassVar[int] = -1

    def __str__(self) -> str:
        return "any version"


@dataclass(frozen=True, slots=True)
class Exists:
    """The stream has at least one event."""

    NUMBER: ClassVar[int] = -2

    def __str__(self) -> str:
        return "a stream that exists"


@dataclass(frozen=True, slots=True)
class Guard:
    """The stream's status is one of these, and its lease token is this one; None is not checked.

    A worker reports progress under a guard: a cancel causes no conflict, and a lost lease writes nothing.
    """

    NUMBER: ClassVar[int] = -3

    statuses: frozenset[str] | None = None
    token: int | None = None

    def __post_init__(self) -> None:
        if self.statuses is not None and not _are_texts(self.statuses):
            raise BadInput(f"guarded statuses {shown(self.statuses)} must be a frozenset of texts")
        if self.token is not None and (not _is_integer(self.token) or not -(2**63) <= self.token < 2**63):
            raise BadInput(f"lease token {shown(self.token)} must be an integer of 64 bits")

    def __str__(self) -> str:
        wanted = [f"status {' or '.join(sorted(self.statuses))}"] if self.statuses is not None else []
        return (
            " and ".join(wanted + ([f"lease token {self.token}"] if self.token is not None else []))
            or "a stream that exists"
        )


Expected = Exact | Anything | Exists | Guard

NEW: Final = Exact(0)
ANY: Final = Anything()
EXISTS: Final = Exists()


def as_expected(value: Expected | int) -> Expected:
    """The expectation; an integer means an exact version. Raises BadInput for any other type."""
    match value:
        case Exact() | Anything() | Exists() | Guard():
            return value
        case int():
            return Exact(value)
        case _:
            raise BadInput(
                f"expected {shown(value)} must be a version (an integer), NEW, ANY, EXISTS, Exact or Guard"
            )


# What is appended.


class Body(NamedTuple):
    """An event as it is stored: JSON text of the ledger's own, or bytes of another application."""

    topic: str
    schema: int
    data: str | None
    raw: bytes | None = None
    meta: str | None = None


class Append(NamedTuple):
    """Events for one stream.

    status: the status after them; None leaves it unchanged. state: the state after them as text of
    `ledger.domain.state.dump`, folded from version `base` by code with `state_schema`. set_token: a new lease
    token; 0 clears it. head: False writes no head row (another application's events). Without events, only
    the expectation is checked.
    """

    stream: str
    events: Sequence[Body]
    expected: Expected = ANY
    status: str | None = None
    state: str | None = None
    base: int = 0
    state_schema: int | None = None
    set_token: int | None = None
    head: bool = True


class Appended(NamedTuple):
    """The result of an append: contiguous positions, the version of each stream after it, and the time.

    repeated: this command id was recorded before, and nothing was recorded again.
    """

    first_position: int
    last_position: int
    recorded_at: datetime
    versions: Mapping[str, int]
    repeated: bool = False

    @property
    def version(self) -> int:
        """The version of the stream, if the append had only one."""
        (version,) = self.versions.values()
        return version


def body_of(event: Event | Body) -> Body:
    """The event as it is stored. Raises BadBody for what PostgreSQL would change."""
    return event if isinstance(event, Body) else Body(event.topic, event.schema_number, event.body())


def status_of(events: Sequence[Event]) -> str | None:
    """The status that these events lead to; None where no event changes the status."""
    return next((to for event in reversed(events) if (to := leads_to(event)) is not None), None)


def append_to(stream: str, events: Sequence[Event | Body], expected: Expected | int = ANY) -> Append:
    """The append of events to a stream that was not opened."""
    domain = [event for event in events if not isinstance(event, Body)]
    status = status_of(domain) if domain else None
    bodies = [body_of(event) for event in events] if domain else events
    return Append(stream, bodies, as_expected(expected), status=status)  # type: ignore[arg-type]


def append_of(stream: Stream[Any, Any]) -> Append:
    """The append of an opened stream's new events, at exactly its version, with the state after them.

    It contains the status even where the events do not change it, so that a dropped head gets it back.
    """
    now = stream.state.status
    return Append(
        stream.name,
        [body_of(event) for event in stream.news],
        Exact(stream.version),
        status=status_of(stream.news) or (None if now is None else str(now)),
        state=dump(stream.state),
        base=stream.version,
        state_schema=stream.state_schema(),
        set_token=stream.lease(),
    )


def digest_of(appends: Sequence[Append]) -> bytes:
    """The content of a command id, as a digest: streams and events; versions, times and actors may differ."""
    return canonical_json.digest(
        *(
            part
            for append in appends
            for body in append.events
            for part in (append.stream, body.topic, body.schema, body.data, body.raw)
        )
    )


# Appending on a connection of the pool.


class Appender:
    """Sends appends, and sends them again only where that can record nothing twice.

    A transaction that the server rolled back (serialization, deadlock) did nothing, and is sent again. An
    append on a connection that broke may be committed. It is sent again if a command id makes it idempotent,
    or if every expectation is an exact version, which would no longer hold after a success; a conflict then
    does not prove another writer, so AppendUncertain is raised. In all other cases AppendUncertain is raised
    at once.
    """

    def __init__(self, pool: Pool, schema: str) -> None:
        self._pool, self._schema = pool, schema

    def append(
        self,
        appends: Sequence[Append],
        meta: Meta,
        order: Sequence[int] | None = None,
        lost: Lost | None = None,
    ) -> Appended:
        """Record the appends in a transaction of their own; `order` as in `send`.

        lost: how a first attempt ended, made in a call with other appends (`ledger.log.committer`).
        Raises Refused, BadInput, ServerUnavailable.
        """
        attempt = partial(
            send, schema=self._schema, appends=appends, meta=meta.text or meta.body(), command=meta.command,
            order=order,
        )  # fmt: skip
        try:
            if lost is not None:
                raise lost
            return self._once(attempt)
        except (Lost, *TRANSIENT) as error:
            exact = all(isinstance(append.expected, Exact) for append in appends)
            return self._again(error, attempt, [a.stream for a in appends], meta.command is not None, exact)

    def call(self, attempt: Callable[[CallingConnection], T], stream: str) -> T:
        """Run another call that appends to a stream; after a lost connection it is not repeated."""
        try:
            return self._once(attempt)
        except (Lost, *TRANSIENT) as error:
            return self._again(error, attempt, [stream], idempotent=False, exact=False)

    def _again(
        self, last: Exception, attempt: Callable[[CallingConnection], T], streams: Sequence[str],
        idempotent: bool, exact: bool,
    ) -> T:  # fmt: skip
        """Repeat a failed attempt until it succeeds, is refused, or the pool's timeout has passed."""
        lost: psycopg.Error | None = None
        deadline = time.monotonic() + self._pool.timeout
        for number in count():
            if isinstance(last, Lost):
                last = lost = last.error
                if not idempotent and not exact:
                    break
            if time.monotonic() > deadline:
                assert isinstance(last, psycopg.Error)
                if lost is not None and last is not lost:
                    break
                raise_ours(last)
            time.sleep(min(0.5, 0.002 * 2 ** min(number, 8)) * random.random())
            try:
                return self._once(attempt)
            except (Lost, *TRANSIENT) as error:
                last = error
            except LedgerError as error:
                # This attempt stored nothing, but the lost one may have.
                if lost is None or (idempotent and not isinstance(error, LedgerBusy)):
                    raise
                break
        raise AppendUncertain(streams) from lost

    def _once(self, attempt: Callable[[CallingConnection], T]) -> T:
        """One attempt. Raises Lost or TRANSIENT where it may be repeated, else the ledger's errors."""
        pool = self._pool
        try:
            connection = pool.take()
        except psycopg.Error as error:
            raise_ours(error)
        try:
            return attempt(connection)
        except TRANSIENT:
            raise
        except psycopg.Error as error:
            if connection.closed:
                raise Lost(error) from error
            raise_ours(error)
        except UnicodeEncodeError as error:
            raise_ours(error)
        finally:
            pool.give_back(connection)


class Lost(Exception):
    """The connection broke while an append was under way."""

    def __init__(self, error: psycopg.Error) -> None:
        super().__init__(str(error))
        self.error = error


# The call itself. On a connection of the pool it uses libpq directly, with arrays and records in PostgreSQL's
# binary format: psycopg gives the same result at several times the cost.

_IDLE = TransactionStatus.IDLE
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_RECORD = Struct(">iiiqiiqiiqii")
"""The start of a record of append_one: the number of columns, then type, length and value of position,
version and time, then type and length of the outcome."""
_RECORDED = slice(_RECORD.size, _RECORD.size + len("recorded"))
ONE_FORMATS = [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0]
"""The formats of append_one's values: bytes and arrays in binary, all others as text."""
_STREAM_FORMATS = [0, 0, 1, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1]
_MANY_FORMATS = [0, 1, 0, 0, 1, 0, 1, 1, 1, 0, 0, 1]
_TEXT, _BYTEA = 25, 17
_ARRAY = Struct(">iiiii")
"""Header of an array: dimensions, whether it may contain nulls, element type, length, first index."""
_COLUMN = Struct(">ii")
"""Type and length of a column; the value follows. An element of an array has only the length."""
_COUNT = Struct(">i")
_VERSION = Struct(">4xq")
_number: Callable[[bytes], int] = partial(int.from_bytes, byteorder="big", signed=True)
_REFUSAL: Sequence[Callable[[bytes], Any]] = (bytes.decode, _number, bytes.decode, _number)
"""Readers of the columns of append_many that describe a refusal: stream, version, status, token."""
_NULL = _COUNT.pack(-1)
_stream, _state = itemgetter(0), itemgetter(4)
"""Fields of an Append."""


@cache
def _call_one(schema: str) -> tuple[bytes, bytes]:
    return SQL.append_one.prepared(schema)


@cache
def _call_stream(schema: str) -> tuple[bytes, bytes]:
    return SQL.append_stream.prepared(schema)


@cache
def _call_many(schema: str) -> tuple[bytes, bytes]:
    return SQL.append_many.prepared(schema)


def send(
    connection: Connection,
    schema: str,
    appends: Sequence[Append],
    meta: str,
    command: str | None,
    order: Sequence[int] | None = None,
) -> Appended:
    """Record the appends, all or nothing, in the connection's transaction; autocommit makes one for them.

    order: for each event, in ascending position, the index of its append; by default one append after the
    other.
    Raises StreamConflict, GuardFailed, CommandReused with the transaction still usable, and psycopg's errors.
    """
    if len(appends) == 1 and appends[0].events:
        append = appends[0]
        if command is None and _is_lean(append) and _has_own_transaction(connection):
            done = _send_one(connection, schema, append, meta)
            if done is not None:
                return done
        return _send_stream(connection, schema, append, meta, command)
    return _send_many(connection, schema, appends, meta, command, order)


def _has_own_transaction(connection: Connection) -> TypeGuard[CallingConnection]:
    """Whether a statement on this connection is a transaction: then libpq is called directly."""
    return isinstance(connection, CallingConnection) and connection.pgconn.transaction_status == _IDLE


def _is_lean(append: Append) -> bool:
    """Whether append_one records it: one event, no lease, and a state only at an exact version."""
    return (
        len(append.events) == 1
        and append.set_token is None
        and (append.state is None or isinstance(append.expected, Exact))
    )


def _send_one(connection: CallingConnection, schema: str, append: Append, meta: str) -> Appended | None:
    """Record one event by append_one; None where the head is behind the events: nothing is recorded then."""
    stream, (body,), _, status, state, base, state_schema, _, head = append
    topic, number, data, raw, own_meta = body
    at, wanted, token = _expectation(append)
    meta = own_meta or meta
    try:
        values = [
            stream.encode(), b"%d" % at, topic.encode(), b"%d" % number,
            None if data is None else data.encode(), raw, meta.encode(), b"t" if head else b"f",
            None if status is None else status.encode(),
            None if state is None or base != at else state.encode(),
            None if state_schema is None else b"%d" % state_schema,
            None if wanted is None else _array(wanted), None if token is None else b"%d" % token,
        ]  # fmt: skip
        checked = b"".join(filter(None, (*values[:5], values[6], values[8], values[9])))
    except (AttributeError, TypeError):
        _check_texts((stream, topic, data, meta, status, state))
        raise BadInput(f"{shown(body)} of {stream} must have a topic and the number of its schema") from None
    if b"\x00" in checked:
        _check_texts((stream, topic, data, meta, status, state))
    try:
        row = connection.call(*_call_one(schema), values, ONE_FORMATS)
    except UniqueViolation as error:
        if error.diag.constraint_name != "events_stream_version":
            raise
        return None
    _, _, _, position, _, _, version, _, _, micros, _, _ = _RECORD.unpack_from(row)
    if row[_RECORDED] != b"recorded":
        raise _refused(append, None, _decoded(row))
    at_time = EPOCH + timedelta(microseconds=micros)
    return Appended(position, position, at_time, FrozenDict({stream: version}))


def _expectation(append: Append) -> tuple[int, Sequence[str] | None, int | None]:
    """What is expected, as the SQL functions take it: a number, and the statuses and the token of a guard."""
    expected = append.expected
    if isinstance(expected, Exact):
        return expected.version, None, None
    if isinstance(expected, Guard):
        return Guard.NUMBER, None if expected.statuses is None else sorted(expected.statuses), expected.token
    try:
        return expected.NUMBER, None, None
    except AttributeError:
        raise BadInput(
            f"what {append.stream} is expected at must be Exact, NEW, ANY, EXISTS or Guard"
        ) from None


def _send_stream(
    connection: Connection, schema: str, append: Append, meta: str, command: str | None
) -> Appended:
    """Record the events of one stream by append_stream."""
    stream, events, _, status, state, base, state_schema, set_token, head = append
    topics, schemas, datas, raws, metas = zip(*events, strict=True)
    if None in topics:
        raise BadInput(f"an event of {stream} has no topic")
    number, wanted, token = _expectation(append)
    for texts in (topics, datas, metas, (stream, meta, status, state, command)):
        _check_texts(texts)
    digest = digest_of((append,)) if command else None
    if _has_own_transaction(connection):
        values = [
            stream.encode(), b"%d" % number, _array(topics), _integers(schemas), _array(datas),
            _array(raws, _BYTEA), _array(metas), meta.encode(), b"t" if head else b"f",
            *(None if value is None else str(value).encode()
              for value in (status, state, state_schema, base, set_token)),
            None if wanted is None else _array(wanted), None if token is None else b"%d" % token,
            None if command is None else command.encode(), digest,
        ]  # fmt: skip
        found = _decoded(connection.call(*_call_stream(schema), values, _STREAM_FORMATS))
    else:
        (found,) = _row(
            connection, SQL.append_stream.text(schema),
            (stream, number, *map(_column, (topics, schemas, datas, raws, metas)), meta, head, status, state,
             state_schema, base, set_token, wanted, token, command, digest),
        )  # fmt: skip
    position, version, at, outcome, *_ = found
    if outcome not in ("recorded", "repeated"):
        raise _refused(append, command, found)
    versions = FrozenDict({stream: version})
    return Appended(position, position + len(events) - 1, at.astimezone(UTC), versions, outcome == "repeated")


def _decoded(record: bytes) -> tuple[Any, ...]:
    """A record of append_one or append_stream, as psycopg would read it."""
    position, version, micros, outcome, status, token = columns(record)
    return (
        None if position is None else _number(position),
        None if version is None else _number(version),
        None if micros is None else EPOCH + timedelta(microseconds=_number(micros)),
        bytes.decode(outcome or b""),
        None if status is None else status.decode(),
        None if token is None else _number(token),
    )


def _refused(append: Append, command: str | None, found: Sequence[Any]) -> Exception:
    _, version, _, outcome, status, token = found
    return _refusal(outcome, {append.stream: append}, command, append.stream, version, status, token)


def _row(connection: Connection, statement: bytes, values: Sequence[Any]) -> tuple[Any, ...]:
    """The row of a call, as a tuple whatever row factory the user's connection has."""
    cursor = psycopg.Cursor(connection, row_factory=tuple_row)
    row = cursor.execute(statement, values, prepare=may_prepare(connection), binary=True).fetchone()
    assert row is not None
    return row


def _check_texts(texts: Sequence[Any]) -> None:
    """Refuse what libpq cannot send as text: it would cut a text at a NUL. None is allowed."""
    try:
        if "\x00" not in "".join(filter(None, texts)):
            return
    except TypeError:
        pass
    wrong = next(text for text in texts if text is not None and (not isinstance(text, str) or "\x00" in text))
    raise BadInput(f"{shown(wrong)} in an event must be text without NUL, which PostgreSQL cannot store")


def _send_many(
    connection: Connection,
    schema: str,
    given: Sequence[Append],
    meta: str,
    command: str | None,
    order: Sequence[int] | None,
) -> Appended:
    ordered = given if len(given) == 1 else sorted(given, key=lambda a: a.stream.encode())
    of, nth, bodies = _events(given, ordered, order)
    topics, schemas, datas, raws, metas = zip(*bodies, strict=True)
    states = tuple(map(_state, ordered))
    for texts in (topics, datas, metas, states, (meta, command)):
        _check_texts(texts)
    values = (
        f"[{','.join(map(_spec, ordered))}]", states, of, nth, topics, schemas, datas, raws, metas, meta,
        command, digest_of(ordered) if command else None,
    )  # fmt: skip
    if isinstance(connection, CallingConnection) and connection.pgconn.transaction_status == _IDLE:
        outcome, first, at, before, *found = _call(connection, schema, *values)
    else:
        given_values = [_column(value) if isinstance(value, tuple) else value for value in values]
        ((outcome, first, at, before, *found),) = _row(connection, SQL.append_many.text(schema), given_values)
    if outcome in ("recorded", "repeated"):
        versions = {a.stream: was + len(a.events) for a, was in zip(ordered, before, strict=True)}
        last = first + len(bodies) - 1
        return Appended(first, last, at.astimezone(UTC), FrozenDict(versions), outcome == "repeated")
    raise _refusal(outcome, {append.stream: append for append in ordered}, command, *found)


def _events(
    given: Sequence[Append], ordered: Sequence[Append], order: Sequence[int] | None
) -> tuple[list[int], list[int], list[Body]]:
    """The events in ascending position, as three lists: the index of the event's stream among the ordered
    ones and its place within that stream, both from 1, and the event."""
    place = dict(zip(map(_stream, ordered), count(1)))
    if len(place) < len(ordered):
        raise BadInput("a stream is named twice in one append: put its events in one Append")
    of, nth, bodies = list[int](), list[int](), list[Body]()
    if order is None:
        for append in given:
            bodies += append.events
            of += [place[append.stream]] * len(append.events)
            nth += range(1, len(append.events) + 1)
    else:
        taken = [0] * len(given)
        for index in order:
            append = given[index]
            bodies.append(append.events[taken[index]])
            taken[index] += 1
            of.append(place[append.stream])
            nth.append(taken[index])
    if not bodies:
        raise BadInput("nothing to append: no stream has an event")
    return of, nth, bodies


def _spec(append: Append) -> str:
    """The append as JSON for append_many, without nulls; written by hand in a third of the time."""
    stream, events, expected, status, state, base, schema, token, head = append
    more = "" if status is None else f',"status":{encode_basestring_ascii(status)}'
    if state is not None:
        more += f',"base":{base},"schema":{"null" if schema is None else schema}'
    if token is not None:
        more += f',"set_token":{token}'
    number, wanted, wanted_token = _expectation(append)
    if isinstance(expected, Guard):
        more += f',"wanted":{json.dumps(wanted)},"token":{json.dumps(wanted_token)}'
    return (
        f'{{"stream":{encode_basestring_ascii(stream)},"expected":{number},'
        f'"head":{"true" if head else "false"},"count":{len(events)}{more}}}'
    )


def _call(
    connection: CallingConnection, schema: str, specs: str, states: Any, of: Any, nth: Any, topics: Any,
    schemas: Any, datas: Any, raws: Any, metas: Any, meta: str, command: str | None, digest: bytes | None,
) -> tuple[Any, ...]:  # fmt: skip
    """What append_many returns, as psycopg would read it."""
    values = [
        specs.encode(), _array(states), _integers(of), _integers(nth), _array(topics), _integers(schemas),
        _array(datas), _array(raws, _BYTEA), _array(metas), meta.encode(),
        None if command is None else command.encode(), digest,
    ]  # fmt: skip
    record = connection.call(*_call_many(schema), values, _MANY_FORMATS)
    outcome, first, micros, before, *found = columns(record)
    at = None if micros is None else EPOCH + timedelta(microseconds=_number(micros))
    versions = None if before is None else [was for (was,) in _VERSION.iter_unpack(before[_ARRAY.size :])]
    refusal = [None if value is None else read(value) for read, value in zip(_REFUSAL, found, strict=True)]
    return bytes.decode(outcome or b""), None if first is None else _number(first), at, versions, *refusal


def columns(record: bytes) -> list[bytes | None]:
    """The columns of a record."""
    (count,), place = _COUNT.unpack_from(record), _COUNT.size
    found: list[bytes | None] = []
    for _ in range(count):
        _, size = _COLUMN.unpack_from(record, place)
        place += _COLUMN.size
        found.append(None if size < 0 else record[place : place + size])
        place += max(size, 0)
    return found


def _array(values: Sequence[Any], kind: int = _TEXT) -> bytes | None:
    """A binary text[] or bytea[]; null if it has values and all of them are null."""
    parts = [_ARRAY.pack(1, 1, kind, len(values), 1)]
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            raw = value if kind == _BYTEA else value.encode()
            parts += (_COUNT.pack(len(raw)), raw)
    return None if values and values.count(None) == len(values) else b"".join(parts)


def _integers(values: Sequence[int]) -> bytes:
    """An array of any integers, as text."""
    return b"{%s}" % ",".join(map(str, values)).encode()


def _column(values: Sequence[Any]) -> list[Any] | None:
    """None where no row has a value: an array of nulls has no element type of its own."""
    return None if values.count(None) == len(values) else [*values]


def _refusal(
    outcome: str,
    appends: dict[str, Append],
    command: str | None,
    stream: str,
    version: int,
    status: str | None,
    token: int | None,
) -> Exception:
    match outcome:
        case "reused":
            return CommandReused(command or "")
        case "guard":
            lease = "no lease" if token is None else f"lease token {token}"
            return GuardFailed(
                stream, str(appends[stream].expected), f"status {status or 'unknown'} and {lease}"
            )
        case _:
            return StreamConflict(stream, str(appends[stream].expected), version)
