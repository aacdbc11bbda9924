"""Reading the store: rows into envelopes, heads and opened streams."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any, TypeVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from ..errors import BadInput
from ..event import Unknown, read_event
from ..frozen import FrozenDict
from ..names import split_name
from ..recorded import Recorded
from ..state import load, load_each
from ..stream import Stream
from . import sql as statements
from .line import Line

Connection = psycopg.Connection[Any]
O = TypeVar("O", bound=Stream[Any, Any])  # noqa: E741
_TEXTS = [0, 0]
Row = tuple[int, str | dict[str, Any] | None, list[tuple[str, int, str | None, str]] | None]
"""What a stream is at: the version of its state, the state as text or as JSON, and the events after it."""


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a stream: what the last append with a head left there."""

    stream: str
    version: int
    state_version: int
    status: str | None
    token: int | None
    state_schema: int | None
    state: str | None


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """One line of a list of streams: the last event's version, position and time, and the status."""

    stream: str
    version: int
    status: str | None
    position: int
    recorded_at: datetime


def query(connection: Connection, schema: str, name: str, **parameters: Any) -> list[tuple[Any, ...]]:
    """The rows of a named statement, as tuples whatever a connection of the user's is set to."""
    cursor = psycopg.Cursor(connection, row_factory=tuple_row)
    return cursor.execute(
        statements.text(name, schema), parameters or None, prepare=True, binary=True
    ).fetchall()


def recorded(row: Sequence[Any]) -> Recorded:
    """An envelope from the columns that all statements name in one order."""
    in_utc = (*row[:-1], row[-1].astimezone(UTC))
    return Recorded(*in_utc)


def open_one(
    connection: Connection, schema: str, kind: type[O], key: Sequence[str | int], version: int | None = None
) -> O:
    """The stream of this key, opened: state from its head, tail folded; version: as it was then."""
    stream = kind(*key)
    if version is None and isinstance(connection, Line) and _open_head(connection, schema, stream):
        return stream
    at: dict[str, int] = {} if version is None else {"version": version}
    name = "open_stream_at" if at else "open_stream"
    rows = query(connection, schema, name, stream=stream.name, state_schema=kind.state_schema(), **at)
    return _fill(stream, rows)


def _open_head(line: Line, schema: str, stream: Stream[Any, Any]) -> bool:
    """Bring a fresh stream object to what its head says; whether that was all, as it mostly is."""
    if line.pgconn.transaction_status != TransactionStatus.IDLE:
        return False
    values = [stream.name.encode(), str(stream.state_schema()).encode()]
    answer = line.call(b"open_head", statements.numbered("open_head", schema), values, _TEXTS)
    version, _, state = answer.partition(b" ")
    if state:
        stream.restore(load(stream.STATE, state), int(version))
    return bool(version)


def open_each(connection: Connection, schema: str, streams: Iterable[O]) -> list[O]:
    """Fresh stream objects, each filled with what is recorded, in one snapshot; by name."""
    wanted = {stream.name: stream for stream in streams}
    found = states(connection, schema, [(name, type(stream)) for name, stream in wanted.items()])
    for name, version, state in chain.from_iterable(found.values()):
        wanted[name].restore(state, version)
    return [wanted[name] for name in sorted(wanted, key=str.encode)]


def open_below(
    connection: Connection, schema: str, prefixes: Sequence[tuple[str, type[O]]], upto: int | None = None
) -> Iterator[tuple[str, O]]:
    """Every stream under the prefixes, opened, in one snapshot: pairs of name and stream.

    upto: as of this position, which must be safe to read.
    """
    for kind, entries in states(connection, schema, prefixes, upto).items():
        for name, version, state in entries:
            stream = kind(*split_name(name)[1])
            stream.restore(state, version)
            yield name, stream


def states(
    connection: Connection, schema: str, prefixes: Sequence[tuple[str, type[O]]], upto: int | None = None
) -> dict[type[O], list[tuple[str, int, Any]]]:
    """The state of every stream under the prefixes, in one snapshot: by class, its name, version and state.

    A prefix that does not end with / is one stream's name. Streams of which nothing is recorded are left out.
    States are read by the hundred, so that looking at ten thousand streams opens none.
    """
    under = any(prefix.endswith("/") for prefix, _ in prefixes)
    statement = "states_below_at" if upto is not None else "states_below" if under else "states_of"
    rows = query(
        connection, schema, statement,
        prefixes=[prefix for prefix, _ in prefixes],
        state_schemas=[kind.state_schema() for _, kind in prefixes],
        **({} if upto is None else {"upto": upto}),
    )  # fmt: skip
    return _states(rows, {kind.CATEGORY: kind for _, kind in prefixes})


def _states(
    rows: Iterable[tuple[str, int, str | None, str | None]], kinds: Mapping[str, type[O]]
) -> dict[type[O], list[tuple[str, int, Any]]]:
    """The states in rows of name, version, state and tail; those that have no tail many at once."""
    whole: dict[type[O], list[tuple[str, int, str]]] = {kind: [] for kind in kinds.values()}
    found: dict[type[O], list[tuple[str, int, Any]]] = {kind: [] for kind in kinds.values()}
    for name, version, state, tail in rows:
        kind = kinds[name[: name.index("/")]]
        if tail is not None:
            found[kind] += _folded(kind, name, version, state, tail)
        elif state is not None:
            whole[kind].append((name, version, state))
    for kind, texts in whole.items():
        loaded = load_each(kind.STATE, [text for _, _, text in texts])
        found[kind] += [
            (name, version, state) for (name, version, _), state in zip(texts, loaded, strict=True)
        ]
    return found


def _folded(
    kind: type[O], name: str, version: int, state: str | None, tail: str
) -> list[tuple[str, int, Any]]:
    """Name, version and state of a stream whose head is missing, behind, or folded by other code.

    Empty where the name is no key of the kind: what somebody appended there hides no other stream.
    """
    try:
        stream = kind(*split_name(name)[1])
    except BadInput:
        return []
    fill(stream, version, state, json.loads(tail))
    return [(name, stream.version, stream.state)]


def fill(
    stream: Stream[Any, Any],
    version: int,
    state: str | dict[str, Any] | None,
    tail: Iterable[Sequence[Any]] | None,
) -> None:
    """Bring a fresh stream object to what was read: the state at a version, and the events after it."""
    if state is not None:
        text = state if isinstance(state, str) else json.dumps(state)
        stream.restore(load(stream.STATE, text), version)
    for topic, schema, data, at in tail or ():
        event = Unknown(topic, schema, FrozenDict()) if data is None else read_event(topic, schema, data)
        stream.replay(event, datetime.fromisoformat(at).astimezone(UTC))


def _fill(stream: O, rows: list[tuple[Any, ...]]) -> O:
    _, state_version, _, _, state = rows[0][:5]
    if state is not None:
        stream.restore(load(stream.STATE, state), state_version)
    for row in rows:
        if row[5] is not None:
            event = recorded(row[5:])
            stream.replay(event.event, event.recorded_at)
    return stream
