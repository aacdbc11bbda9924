"""
The call that appends: on a connection of the pool, and again where that cannot record anything twice.

`send` calls the SQL function on a given connection, the shortest that records the appends: append_one,
append_stream or append_many. The function checks the expectations and records the events
(functions/4_append.sql, 4_append_stream.sql). An `Appender` takes the connection, and repeats.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from functools import cache
from itertools import count
from json.encoder import encode_basestring_ascii
from operator import itemgetter
from struct import Struct
from typing import Any, Concatenate, ParamSpec, TypeGuard, TypeVar

import psycopg
from psycopg.errors import UniqueViolation
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

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
from .append import Append, Appended, Body, Exact, Guard, digest_of
from .binary import BYTEA, array, columns, integers, micros_of, number, numbers
from .connection import CallingConnection, may_prepare
from .pool import Pool
from .recorded import Meta
from .server_errors import TRANSIENT, raise_ours
from .sql import Statements

SQL = Statements(__package__, "append")
Connection = psycopg.Connection[Any]
T = TypeVar("T")
P = ParamSpec("P")


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
        given = (self._schema, appends, meta.text or meta.body(), meta.command, order)
        try:
            if lost is not None:
                raise lost
            return self._once(send, *given)
        except (Lost, *TRANSIENT) as error:

            def attempt(connection: CallingConnection) -> Appended:
                return send(connection, *given)

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
        for attempts in count():
            if isinstance(last, Lost):
                last = lost = last.error
                if not idempotent and not exact:
                    break
            if time.monotonic() > deadline:
                assert isinstance(last, psycopg.Error)
                if lost is not None and last is not lost:
                    break
                raise_ours(last)
            time.sleep(min(0.5, 0.002 * 2 ** min(attempts, 8)) * random.random())
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

    def _once(
        self, attempt: Callable[Concatenate[CallingConnection, P], T], *given: P.args, **more: P.kwargs
    ) -> T:
        """One attempt. Raises Lost or TRANSIENT where it may be repeated, else the ledger's errors."""
        pool = self._pool
        try:
            connection = pool.take()
        except psycopg.Error as error:
            raise_ours(error)
        try:
            return attempt(connection, *given, **more)
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


# The call. On a connection of the pool it uses libpq directly, with values in PostgreSQL's binary format.

_IDLE = TransactionStatus.IDLE
_RECORD = Struct(">iiiqiiqiiqii")
"""The start of a record of append_one: the number of columns, then type, length and value of position,
version and time, then type and length of the outcome."""
_RECORDED = slice(_RECORD.size, _RECORD.size + len("recorded"))
ONE_FORMATS = [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0]
"""The formats of append_one's values: bytes and arrays in binary, all others as text."""
_STREAM_FORMATS = [0, 0, 1, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1]
_MANY_FORMATS = [0, 1, 0, 0, 1, 0, 1, 1, 1, 0, 0, 1]
_REFUSAL: Sequence[Callable[[bytes], Any]] = (bytes.decode, number, bytes.decode, number)
"""Readers of the columns of append_many that describe a refusal: stream, version, status, token."""
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
    at, wanted, token = expectation(append)
    meta = own_meta or meta
    try:
        values = [
            stream.encode(), b"%d" % at, topic.encode(), b"%d" % number,
            None if data is None else data.encode(), raw, meta.encode(), b"t" if head else b"f",
            None if status is None else status.encode(),
            None if state is None or base != at else state.encode(),
            None if state_schema is None else b"%d" % state_schema,
            None if wanted is None else array(wanted), None if token is None else b"%d" % token,
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
    return Appended(position, position, micros, ((stream, version),))


def expectation(append: Append) -> tuple[int, Sequence[str] | None, int | None]:
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
    number, wanted, token = expectation(append)
    for texts in (topics, datas, metas, (stream, meta, status, state, command)):
        _check_texts(texts)
    digest = digest_of((append,)) if command else None
    if _has_own_transaction(connection):
        values = [
            stream.encode(), b"%d" % number, array(topics), integers(schemas), array(datas),
            array(raws, BYTEA), array(metas), meta.encode(), b"t" if head else b"f",
            *(None if value is None else str(value).encode()
              for value in (status, state, state_schema, base, set_token)),
            None if wanted is None else array(wanted), None if token is None else b"%d" % token,
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
    last, micros = position + len(events) - 1, at if isinstance(at, int) else micros_of(at)
    return Appended(position, last, micros, ((stream, version),), outcome == "repeated")


def _decoded(record: bytes) -> tuple[Any, ...]:
    """A record of append_one or append_stream, as psycopg would read it; the time in microseconds."""
    position, version, micros, outcome, status, token = columns(record)
    return (
        None if position is None else number(position),
        None if version is None else number(version),
        None if micros is None else number(micros),
        bytes.decode(outcome or b""),
        None if status is None else status.decode(),
        None if token is None else number(token),
    )


def _refused(append: Append, command: str | None, found: Sequence[Any]) -> Exception:
    _, version, _, outcome, status, token = found
    return refusal(outcome, {append.stream: append}, command, append.stream, version, status, token)


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
        f"[{','.join(map(spec, ordered))}]", states, of, nth, topics, schemas, datas, raws, metas, meta,
        command, digest_of(ordered) if command else None,
    )  # fmt: skip
    if isinstance(connection, CallingConnection) and connection.pgconn.transaction_status == _IDLE:
        outcome, first, at, before, *found = _call(connection, schema, *values)
    else:
        given_values = [_column(value) if isinstance(value, tuple) else value for value in values]
        ((outcome, first, at, before, *found),) = _row(connection, SQL.append_many.text(schema), given_values)
    if outcome in ("recorded", "repeated"):
        reached = tuple((a.stream, was + len(a.events)) for a, was in zip(ordered, before, strict=True))
        micros = at if isinstance(at, int) else micros_of(at)
        return Appended(first, first + len(bodies) - 1, micros, reached, outcome == "repeated")
    raise refusal(outcome, {append.stream: append for append in ordered}, command, *found)


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


def spec(append: Append) -> str:
    """The append as JSON for append_many, without nulls; written by hand in a third of the time."""
    stream, events, expected, status, state, base, schema, token, head = append
    more = "" if status is None else f',"status":{encode_basestring_ascii(status)}'
    if state is not None:
        more += f',"base":{base},"schema":{"null" if schema is None else schema}'
    if token is not None:
        more += f',"set_token":{token}'
    number, wanted, wanted_token = expectation(append)
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
    """What append_many returns, as psycopg would read it; the time in microseconds."""
    values = [
        specs.encode(), array(states), integers(of), integers(nth), array(topics), integers(schemas),
        array(datas), array(raws, BYTEA), array(metas), meta.encode(),
        None if command is None else command.encode(), digest,
    ]  # fmt: skip
    record = connection.call(*_call_many(schema), values, _MANY_FORMATS)
    outcome, first, micros, before, *found = columns(record)
    at = None if micros is None else number(micros)
    versions = None if before is None else numbers(before)
    refusal = [None if value is None else read(value) for read, value in zip(_REFUSAL, found, strict=True)]
    return bytes.decode(outcome or b""), None if first is None else number(first), at, versions, *refusal


def _column(values: Sequence[Any]) -> list[Any] | None:
    """None where no row has a value: an array of nulls has no element type of its own."""
    return None if values.count(None) == len(values) else [*values]


def refusal(
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
