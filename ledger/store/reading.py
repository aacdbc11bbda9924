"""Reading the store: rows into envelopes, heads and opened streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, TypeVar

import psycopg
from psycopg.rows import tuple_row

from ..names import split_name
from ..recorded import Recorded
from ..state import load
from ..stream import Stream
from . import sql as statements

Connection = psycopg.Connection[Any]
O = TypeVar("O", bound=Stream[Any, Any])  # noqa: E741


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


def open_one(connection: Connection, schema: str, kind: type[O], key: Sequence[str | int]) -> O:
    """The stream of this key, opened: state from its head, tail folded."""
    stream = kind(*key)
    rows = query(connection, schema, "open_stream", stream=stream.name, state_schema=kind.state_schema())
    return _fill(stream, rows)


def open_each(connection: Connection, schema: str, streams: Iterable[O]) -> list[O]:
    """Fresh stream objects, each filled with what is recorded, in one snapshot."""
    wanted = {stream.name: stream for stream in streams}
    rows = query(
        connection, schema, "open_streams",
        streams=list(wanted), state_schemas=[stream.state_schema() for stream in wanted.values()],
    )  # fmt: skip
    return [_fill(wanted[name], list(group)) for name, group in groupby(rows, key=lambda row: row[6])]


def open_below(
    connection: Connection, schema: str, prefixes: Sequence[tuple[str, type[O]]]
) -> Iterator[tuple[str, O]]:
    """Every stream under the prefixes, opened, in one snapshot: pairs of name and stream."""
    kinds = {kind.CATEGORY: kind for _, kind in prefixes}
    rows = query(
        connection, schema, "open_below",
        prefixes=[prefix for prefix, _ in prefixes],
        state_schemas=[kind.state_schema() for _, kind in prefixes],
    )  # fmt: skip
    for name, group in groupby(rows, key=lambda row: row[6]):
        category, key = split_name(name)
        yield name, _fill(kinds[category](*key), list(group))


def _fill(stream: O, rows: list[tuple[Any, ...]]) -> O:
    _, state_version, _, _, state = rows[0][:5]
    if state is not None:
        stream.restore(load(stream.STATE, state), state_version)
    for row in rows:
        if row[5] is not None:
            event = recorded(row[5:])
            stream.replay(event.event, event.recorded_at)
    return stream
