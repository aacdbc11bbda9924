"""Sending an append: one function call, one round trip, on whichever connection it is given."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from ..append import Append, Appended, Body, digest_of, versions_after
from ..errors import BadInput, CommandReused, GuardFailed, StreamConflict, shown
from ..expected import Exact, Guard, StandsIn
from ..frozen import FrozenDict
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
_MANY_FORMATS = [0] * 11 + [1]
_OUTCOME = slice(3 * _INT, 3 * _INT + 8)
_DONE = (b"recorded", b"repeated")
_MANY = Struct(">iiqiiqii20x")
"""What follows such an outcome: first position and time, and an array's type, size and header."""
_BEFORE = Struct(">4xq")
_NUL = "\x00"
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode


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
    texts = [value for value in values if value is not None and not isinstance(value, bytes)]
    try:
        if _NUL not in "".join(texts):
            return
    except TypeError:
        pass
    raise _not_text(texts)


def _not_text(values: Sequence[Any]) -> BadInput:
    wrong = next(v for v in values if v is not None and (not isinstance(v, str) or _NUL in v))
    return BadInput(f"{shown(wrong)} in an event must be text without NUL, which PostgreSQL cannot store")


def _send_many(
    connection: Connection,
    schema: str,
    given: Sequence[Append],
    meta: str,
    command: str | None,
    order: Sequence[int] | None,
) -> Appended:
    ordered = sorted(given, key=lambda a: a.stream.encode())
    texts, raws, rest = _arrays(given, ordered, order, meta, command)
    digest = digest_of(ordered) if command else None
    if raws is None and isinstance(connection, Line) and connection.pgconn.transaction_status == _IDLE:
        raw = [None if value is None else value.encode() for value in (*texts, None, *rest)]
        statement = statements.numbered("append_many", schema)
        row = _many(connection.call(b"append_many", statement, [*raw, digest], _MANY_FORMATS))
    else:
        (row,) = _row(connection, statements.text("append_many", schema), (*texts, raws, *rest, digest))
    outcome, first, at, before, *found = row
    if outcome in ("recorded", "repeated"):
        after = versions_after(ordered, before)
        last = first + sum([len(append.events) for append in ordered]) - 1
        return Appended(first, last, at.astimezone(UTC), after, outcome == "repeated")
    raise _refusal(outcome, {append.stream: append for append in ordered}, command, *found)


def _many(row: bytes) -> tuple[Any, ...]:
    """The columns of a record of append_many."""
    if (outcome := row[_OUTCOME]) in _DONE:
        _, _, first, _, _, micros, _, size = _MANY.unpack_from(row, _OUTCOME.stop)
        array = row[_OUTCOME.stop + _MANY.size :][: size - 20]
        before = [version for (version,) in _BEFORE.iter_unpack(array)]
        return outcome.decode(), first, _EPOCH + timedelta(microseconds=micros), before
    columns: list[bytes | None] = []
    place = _INT
    for _ in range(8):
        size = int.from_bytes(row[place + _INT : place + 2 * _INT], "big", signed=True)
        place += 2 * _INT
        columns.append(None if size < 0 else row[place : place + size])
        place += max(size, 0)
    word, _, _, _, stream, version, status, token = columns
    return _text(word), None, None, None, _text(stream), _number(version), _text(status), _number(token)


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


def _spec(append: Append) -> dict[str, Any]:
    """What append_many reads of it, without what is null."""
    stream, events, expected, status, state, base, schema, token, head = append
    spec = {"stream": stream, "expected": append.expected_number, "head": head, "count": len(events)}
    if status is not None:
        spec["status"] = status
    if state is not None:
        spec |= {"base": base, "schema": schema}
    if token is not None:
        spec["set_token"] = token
    if isinstance(expected, Guard):
        spec["token"] = expected.token
        if expected.statuses is not None:
            spec["wanted"] = sorted(expected.statuses)
    return spec


def _places(ordered: Sequence[Append]) -> dict[str, int]:
    """The place of each stream, from 1."""
    place = {append.stream: i for i, append in enumerate(ordered, 1)}
    if len(place) < len(ordered):
        raise BadInput("a stream is named twice in one append: put its events in one Append")
    return place


def _arrays(
    given: Sequence[Append],
    ordered: Sequence[Append],
    order: Sequence[int] | None,
    meta: str,
    command: str | None,
) -> tuple[tuple[str | None, ...], list[bytes | None] | None, tuple[str | None, ...]]:
    """What append_many is given: what comes before the bytes, those, and what comes after them."""
    rows = _events(given, _places(ordered), order)
    of, nth, bodies = zip(*rows, strict=True)
    topics, schemas, datas, raws, metas = zip(*bodies, strict=True)
    texts = (
        _ENCODE([_spec(append) for append in ordered]), _texts([append.state for append in ordered]),
        _integers(of), _integers(nth), _texts(topics), _integers(schemas), _texts(datas),
    )  # fmt: skip
    rest = (_texts(metas), meta, command)
    _check_texts(rest)
    return texts, None if raws.count(None) == len(raws) else [*raws], rest


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


def _texts(values: Sequence[str | None]) -> str | None:
    """A text[] as PostgreSQL writes one; None where no row has a value. Raises BadInput for a NUL.

    All at once, with NUL as what no text holds: before a comma it ends a text, before an N it is a null.
    """
    nulls = values.count(None)
    if nulls == len(values):
        return None
    texts = [f"{_NUL}N" if value is None else value for value in values] if nulls else values
    try:
        joined = f"{_NUL},".join(texts)  # type: ignore[arg-type]
    except TypeError:
        raise _not_text(values) from None
    if joined.count(_NUL) != len(values) - 1 + nulls:
        raise _not_text(values)
    if "\\" in joined:
        joined = joined.replace("\\", "\\\\")
    literal = '{"' + joined.replace('"', '\\"').replace(f"{_NUL},", '","') + '"}'
    return literal.replace(f'"{_NUL}N"', "NULL") if nulls else literal


def _integers(values: Sequence[int]) -> str:
    """An integer[] as PostgreSQL writes one."""
    return "{" + ",".join(map(str, values)) + "}"
