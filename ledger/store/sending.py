"""Sending an append: one function call, one round trip, on whichever connection it is given."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from json.encoder import encode_basestring_ascii
from struct import Struct
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from ..append import Append, Appended, Body, digest_of, versions_after
from ..errors import BadInput, CommandReused, GuardFailed, StreamConflict, shown
from ..expected import Exact, Guard, StandsIn
from ..frozen import FrozenDict
from . import arrays
from . import sql as statements
from .line import Line

Connection = psycopg.Connection[Any]

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_IDLE = TransactionStatus.IDLE
_RECORD = Struct(">iiiqiiqiiqii")
"""A record in binary: how many columns, then type, length and value of each; the last value follows."""
_SIZE = Struct(">8xi")
_INT = 4
_ROW = 3 * _INT
"""Where the first value of a record begins."""
_TEXTS = [0] * 10
_FORMATS = [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1]  # bytes as they are, all else as text
_B = arrays.BINARY
_MANY_FORMATS = [0, _B, 0, 0, _B, 0, _B, _B, _B, 0, 0, _B]


def send(
    connection: Connection,
    schema: str,
    appends: Sequence[Append],
    meta: str,
    command: str | None,
    order: Sequence[int] | None = None,
) -> Appended:
    """Record the appends, all or nothing, in the connection's transaction; autocommit makes one for them.

    order: for each event, as positions ascend, the index of its append; by default append after append.
    Raises StreamConflict, GuardFailed, CommandReused with the transaction still usable, and psycopg's errors.
    """
    if len(appends) == 1 and len(appends[0].events) == 1:
        append = appends[0]
        if isinstance(append.expected, Exact) and append.set_token is None:
            return _send_one(connection, schema, append, append.expected.version, meta, command)
        if isinstance(append.expected, StandsIn):
            return _send_from(connection, schema, append, append.expected, meta, command)
    return _send_many(connection, schema, appends, meta, command, order)


def _send_one(
    connection: Connection, schema: str, append: Append, expected: int, meta: str, command: str | None
) -> Appended:
    body = append.events[0]
    values = (
        append.stream, str(expected), body.topic, str(body.schema), body.data, body.raw, body.meta or meta,
        "t" if append.head else "f", append.status, append.state if append.base == expected else None,
        None if append.state_schema is None else str(append.state_schema), command,
        digest_of((append,)) if command else None,
    )  # fmt: skip
    _check_texts(values)
    if isinstance(connection, Line) and connection.pgconn.transaction_status == _IDLE:
        raw = [value.encode() if isinstance(value, str) else value for value in values]
        row = connection.call(b"append_one", statements.numbered("append_one", schema), raw, _FORMATS)
        _, _, _, position, _, _, version, _, _, micros, _, _ = _RECORD.unpack_from(row)
        at, outcome = _EPOCH + timedelta(microseconds=micros), row[_RECORD.size :].decode()
    else:
        ((position, version, at, outcome),) = _row(connection, statements.text("append_one", schema), values)
        at = at.astimezone(UTC)
    if outcome in ("recorded", "repeated"):
        versions = FrozenDict({append.stream: version})
        return Appended(position, position, at, versions, outcome == "repeated")
    if outcome == "reused":
        raise CommandReused(command or "")
    raise StreamConflict(append.stream, str(append.expected), version)


class NotThere(Exception):
    """The head does not show that the stream stands in one of the statuses: open it. Nothing was recorded."""


def _send_from(
    connection: Connection, schema: str, append: Append, there: StandsIn, meta: str, command: str | None
) -> Appended:
    """Record an event of a stream that is known by its status only, and say what its state was.

    Raises NotThere, StreamConflict where somebody else appended meanwhile.
    """
    body = append.events[0]
    idle = isinstance(connection, Line) and connection.pgconn.transaction_status == _IDLE
    if not idle or command is not None or append.state is None or append.status is None or body.data is None:
        raise NotThere
    values = (
        body.topic, str(body.schema), body.data, meta, append.status, append.state,
        append.stream, str(append.state_schema), there.statuses, there.initial,
    )  # fmt: skip
    _check_texts(values)
    raw = [None if value is None else value.encode() for value in values]
    answer = connection.call(b"append_from", statements.numbered("append_from", schema), raw, _TEXTS)  # type: ignore[attr-defined]
    if not answer:
        raise NotThere
    (size,) = _SIZE.unpack_from(answer)
    row, before = answer[_ROW : _ROW + size], answer[_ROW + size + 2 * _INT :]
    _, _, _, position, _, _, version, _, _, micros, _, _ = _RECORD.unpack_from(row)
    if row[_RECORD.size :] != b"recorded":
        raise StreamConflict(append.stream, str(there), version)
    at = _EPOCH + timedelta(microseconds=micros)
    return Appended(position, position, at, FrozenDict({append.stream: version}), before=before)


def _row(connection: Connection, statement: bytes, values: Sequence[Any]) -> tuple[Any, ...]:
    """The row of a call, as a tuple whatever a connection of the user's is set to."""
    cursor = psycopg.Cursor(connection, row_factory=tuple_row)
    row = cursor.execute(statement, values, prepare=True, binary=True).fetchone()
    assert row is not None
    return row


def _check_texts(values: Sequence[Any]) -> None:
    """Refuse what libpq cannot send as text: it would end at a NUL, and the rest be lost."""
    _check([value for value in values if value is not None and not isinstance(value, bytes)])


def _check(texts: Sequence[Any]) -> None:
    try:
        if "\x00" not in "".join(texts):
            return
    except TypeError:
        pass
    wrong = next(value for value in texts if not isinstance(value, str) or "\x00" in value)
    raise BadInput(f"{shown(wrong)} in an event must be text without NUL, which PostgreSQL cannot store")


def _send_many(
    connection: Connection,
    schema: str,
    given: Sequence[Append],
    meta: str,
    command: str | None,
    order: Sequence[int] | None,
) -> Appended:
    ordered = sorted(given, key=lambda a: a.stream.encode())
    columns = _columns(_events(given, _places(ordered), order))
    states = [append.state for append in ordered]
    _check_texts([meta, command, *states])
    specs = f"[{','.join([_spec(append) for append in ordered])}]"
    digest = digest_of(ordered) if command else None
    values = (specs, _column(states), *columns, meta, command, digest)
    outcome, first, at, before, *found = _many(connection, schema, values)
    if outcome in ("recorded", "repeated"):
        after = versions_after(ordered, before)
        last = first + len(columns[0]) - 1
        return Appended(first, last, at.astimezone(UTC), after, outcome == "repeated")
    raise _refusal(outcome, {append.stream: append for append in ordered}, command, *found)


def _many(connection: Connection, schema: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The columns that append_many returns."""
    if isinstance(connection, Line) and connection.pgconn.transaction_status == _IDLE:
        statement = statements.numbered("append_many", schema)
        return _read(connection.call(b"append_many", statement, _raw(*values), _MANY_FORMATS))
    (row,) = _row(connection, statements.text("append_many", schema), values)
    return tuple(row)


def _raw(
    specs: str, states: Any, of: Any, nth: Any, topics: Any, schemas: Any, datas: Any, raws: Any, metas: Any,
    meta: str, command: str | None, digest: bytes | None,
) -> list[bytes | None]:  # fmt: skip
    """What append_many is given, as _MANY_FORMATS says."""
    return [
        specs.encode(), arrays.texts(states), arrays.integers(of), arrays.integers(nth), arrays.texts(topics),
        arrays.integers(schemas), arrays.texts(datas), arrays.raws(raws), arrays.texts(metas), meta.encode(),
        None if command is None else command.encode(), digest,
    ]  # fmt: skip


def _read(record: bytes) -> tuple[Any, ...]:
    """The columns in a record of append_many, as psycopg would read them."""
    outcome, first, micros, before, refused, version, status, token = arrays.columns(record)
    at = None if micros is None else _EPOCH + timedelta(microseconds=_number(micros) or 0)
    versions = None if before is None else arrays.versions(before)
    return (
        _text(outcome), _number(first), at, versions,
        _text(refused), _number(version), _text(status), _number(token),
    )  # fmt: skip


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _number(value: bytes | None) -> int | None:
    return None if value is None else int.from_bytes(value, "big", signed=True)


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


def _spec(append: Append) -> str:
    """What append_many reads of it as JSON, without what is null; by hand in a third of the time."""
    stream, events, expected, status, state, base, schema, token, head = append
    more = "" if status is None else f',"status":{encode_basestring_ascii(status)}'
    if state is not None:
        more += f',"base":{base},"schema":{"null" if schema is None else schema}'
    if token is not None:
        more += f',"set_token":{token}'
    if isinstance(expected, Guard):
        wanted = None if expected.statuses is None else sorted(expected.statuses)
        more += f',"wanted":{json.dumps(wanted)},"token":{json.dumps(expected.token)}'
    return (
        f'{{"stream":{encode_basestring_ascii(stream)},"expected":{append.expected_number},'
        f'"head":{"true" if head else "false"},"count":{len(events)}{more}}}'
    )


def _places(ordered: Sequence[Append]) -> dict[str, int]:
    """The place of each stream, from 1."""
    place = {append.stream: i for i, append in enumerate(ordered, 1)}
    if len(place) < len(ordered):
        raise BadInput("a stream is named twice in one append: put its events in one Append")
    return place


def _events(
    given: Sequence[Append], place: dict[str, int], order: Sequence[int] | None
) -> list[tuple[int, int, Body]]:
    """The events as positions ascend: the place of its stream, its place within that, and the event."""
    queues = [[(place[a.stream], nth, body) for nth, body in enumerate(a.events, 1)] for a in given]
    if not any(queues):
        raise BadInput("nothing to append: no stream has an event")
    if order is None:
        return [event for queue in queues for event in queue]
    each = [iter(queue) for queue in queues]
    return [next(each[i]) for i in order]


def _columns(events: Sequence[tuple[int, int, Body]]) -> tuple[Any, ...]:
    """The events as arrays: of, nth, topic, schema, data, raw, meta."""
    of, nth, bodies = zip(*events, strict=True)
    topics, schemas, datas, raws, metas = zip(*bodies, strict=True)
    for texts in (topics, datas, metas):
        _check([text for text in texts if text is not None])
    return [*of], [*nth], _column(topics), [*schemas], _column(datas), _column(raws), _column(metas)


def _column(values: Sequence[Any]) -> list[Any] | None:
    """None where no row has a value: an array of nulls has no element type of its own."""
    return None if values.count(None) == len(values) else [*values]
