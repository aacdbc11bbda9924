"""
Reading: turns rows into envelopes and heads, and opens streams.

A head's state is derived, and any writer may have written it: a state that does not fit its class is ignored,
and the events are folded instead. An event that cannot be read raises UnreadableEvent with its place.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from ..domain.frozen import FrozenDict
from ..domain.names import split_name
from ..domain.state import UnreadableState, load, load_each
from ..domain.stream import Stream
from ..domain.topics import Unknown, read_event
from ..errors import BadInput, UnreadableEvent
from .connection import CallingConnection
from .recorded import Recorded
from .sql import Statements, run

if TYPE_CHECKING:
    from ..domain.event import Event

SQL = Statements(__package__, "read")

Connection = psycopg.Connection[Any]
O = TypeVar("O", bound=Stream[Any, Any])  # noqa: E741
_log = logging.getLogger(__name__)
_TEXTS = [0, 0]
Row = tuple[int, str | dict[str, Any] | None, list[tuple[str, int, str | None, str]] | None]
"""A stream as read: the version of its state, the state as text or as JSON, and the events after it."""
Unread = Callable[[UnreadableEvent], object]
"""Called for a stream that cannot be folded, which is then left out."""


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a stream, as the last append with a head wrote it."""

    stream: str
    version: int
    state_version: int
    status: str | None
    token: int | None
    state_schema: int | None
    state: str | None


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """An entry in a list of streams: the last event's version, position and time, and the status."""

    stream: str
    version: int
    status: str | None
    position: int
    recorded_at: datetime


def recorded(row: Sequence[Any]) -> Recorded:
    """The envelope in a row; all statements return its columns in the same order."""
    return Recorded._make((*row[:-1], row[-1].astimezone(UTC)))


def open_one(
    connection: Connection, schema: str, kind: type[O], key: Sequence[str | int], version: int | None = None
) -> O:
    """Open the stream of this key: load the state of its head and fold the tail. version: as it was then."""
    stream = kind(*key)
    if (
        version is None
        and isinstance(connection, CallingConnection)
        and _open_head(connection, schema, stream)
    ):
        return stream
    at: dict[str, int] = {} if version is None else {"version": version}
    name = "open_stream_at" if at else "open_stream"
    rows = run(connection, schema, SQL[name], stream=stream.name, state_schema=kind.state_schema(), **at)
    try:
        return _fill(stream, rows)
    except UnreadableState:
        rows = run(connection, schema, SQL[name], stream=stream.name, state_schema=None, **at)
        return _fill(kind(*key), rows)


@cache
def _open_head_call(schema: str) -> tuple[bytes, bytes]:
    return SQL.open_head.prepared(schema)


def _open_head(connection: CallingConnection, schema: str, stream: Stream[Any, Any]) -> bool:
    """Load a new stream object from its head; returns whether that was enough, as it usually is."""
    if connection.pgconn.transaction_status != TransactionStatus.IDLE:
        return False
    values = [stream.name.encode(), str(stream.state_schema()).encode()]
    answer = connection.call(*_open_head_call(schema), values, _TEXTS)
    version, _, state = answer.partition(b" ")
    try:
        if state:
            stream.restore(load(stream.STATE, state), int(version))
    except UnreadableState:
        return False
    return bool(version)


def open_each(connection: Connection, schema: str, streams: Iterable[O]) -> list[O]:
    """Load new stream objects from the log in one snapshot; returns them sorted by name."""
    wanted = {stream.name: stream for stream in streams}
    found = _states(
        connection, schema, "states_of", [(name, type(stream)) for name, stream in wanted.items()]
    )
    for name, version, state in chain.from_iterable(found.values()):
        wanted[name].restore(state, version)
    return [wanted[name] for name in sorted(wanted, key=str.encode)]


def open_below(
    connection: Connection,
    schema: str,
    prefixes: Sequence[tuple[str, type[O]]],
    upto: int | None = None,
    unread: Unread | None = None,
) -> Iterator[tuple[str, O]]:
    """Open every stream under the prefixes in one snapshot; yields pairs of name and stream.

    upto: as of this position, which must be safe to read. unread: as in `states`.
    """
    for kind, entries in states(connection, schema, prefixes, upto, unread).items():
        for name, version, state in entries:
            if (stream := _named(kind, name)) is not None:
                stream.restore(state, version)
                yield name, stream


def states(
    connection: Connection,
    schema: str,
    prefixes: Sequence[tuple[str, type[O]]],
    upto: int | None = None,
    unread: Unread | None = None,
) -> dict[type[O], list[tuple[str, int, Any]]]:
    """The state of every stream under the prefixes, in one snapshot: by class, its name, version and state.

    A prefix that does not end with / is one stream's name. Streams without events are left out. States are
    decoded many at once, without making stream objects. unread: called for each stream that cannot be folded;
    without it the first of them is raised as UnreadableEvent.
    """
    under = any(prefix.endswith("/") for prefix, _ in prefixes)
    statement = "states_below_at" if upto is not None else "states_below" if under else "states_of"
    return _states(connection, schema, statement, prefixes, upto, unread)


def _states(
    connection: Connection,
    schema: str,
    statement: str,
    wanted: Sequence[tuple[str, type[O]]],
    upto: int | None = None,
    unread: Unread | None = None,
) -> dict[type[O], list[tuple[str, int, Any]]]:
    """The states that a statement reads: `states_of` takes names of streams, the others take prefixes."""
    at = {} if upto is None else {"upto": upto}
    rows = run(
        connection, schema, SQL[statement],
        prefixes=[place for place, _ in wanted],
        state_schemas=[kind.state_schema() for _, kind in wanted],
        **at,
    )  # fmt: skip
    folding = _Folding({kind.CATEGORY: kind for _, kind in wanted}, unread)
    if anew := folding.take(rows):
        statement = "states_of" if upto is None else statement
        nothing = [None] * len(anew)  # no head has a state of this code
        folding.take(run(connection, schema, SQL[statement], prefixes=anew, state_schemas=nothing, **at))
    return folding.found


def _named(kind: type[O], name: str) -> O | None:
    """A new stream object of this name; None where the name is not a key of the kind."""
    try:
        return kind(*split_name(name)[1])
    except (BadInput, TypeError, ValueError):
        return None


def leave_out(error: UnreadableEvent) -> None:
    """Warn that a stream is left out of a list; for use as `unread`."""
    _log.warning("left out of the list: %s", error)


class _Folding(Generic[O]):
    """States from rows of name, version, state and tail; those without a tail are decoded many at once."""

    def __init__(self, kinds: Mapping[str, type[O]], unread: Unread | None) -> None:
        self.kinds, self.unread = kinds, unread
        self.found: dict[type[O], list[tuple[str, int, Any]]] = {kind: [] for kind in kinds.values()}
        self._anew: list[str] = []

    def take(self, rows: Iterable[tuple[str, int, str | None, str | None]]) -> list[str]:
        """Add the states of these rows; returns the names of streams whose head has no usable state."""
        whole: dict[type[O], list[tuple[str, int, str]]] = {kind: [] for kind in self.kinds.values()}
        self._anew = []
        for name, version, state, tail in rows:
            kind = self.kinds[name.partition("/")[0]]
            if tail is not None:
                self.found[kind] += self._folded(kind, name, version, state, tail)
            elif state is not None:
                whole[kind].append((name, version, state))
        for kind, texts in whole.items():
            try:
                loaded = load_each(kind.STATE, [text for _, _, text in texts])
            except UnreadableState:  # one of them does not fit
                self.found[kind] += [one for text in texts for one in self._loaded(kind, *text)]
            else:
                named = zip(texts, loaded, strict=True)
                self.found[kind] += [(name, version, state) for (name, version, _), state in named]
        return self._anew

    def _loaded(self, kind: type[O], name: str, version: int, state: str) -> Iterator[tuple[str, int, Any]]:
        try:
            yield name, version, load(kind.STATE, state)
        except UnreadableState:
            self._anew.append(name)

    def _folded(
        self, kind: type[O], name: str, version: int, state: str | None, tail: str
    ) -> Iterator[tuple[str, int, Any]]:
        """Name, version and state of a stream whose head is missing, behind, or folded by other code.

        Yields nothing where the name is not a key of the kind, so that a foreign stream does not hide others.
        """
        stream = _named(kind, name)
        if stream is None:
            return
        try:
            fill(stream, version, state, json.loads(tail))
            yield name, stream.version, stream.state
        except UnreadableState:
            self._anew.append(name)
        except UnreadableEvent as error:
            if self.unread is None:
                raise
            self.unread(error)


def fill(
    stream: Stream[Any, Any],
    version: int,
    state: str | dict[str, Any] | None,
    tail: Iterable[Sequence[Any]] | None,
) -> None:
    """Load a new stream object from what was read: the state at a version, and the events after it.

    Raises UnreadableEvent, and UnreadableState before anything is changed.
    """
    if state is not None:
        text = state if isinstance(state, str) else json.dumps(state)
        stream.restore(load(stream.STATE, text), version)
    for topic, schema, data, at in tail or ():
        try:
            event = Unknown(topic, schema, FrozenDict()) if data is None else read_event(topic, schema, data)
        except UnreadableEvent as error:
            raise error.at(stream.name, stream.version + 1) from error.__cause__
        replay(stream, topic, event, datetime.fromisoformat(at).astimezone(UTC))


def _fill(stream: O, rows: list[tuple[Any, ...]]) -> O:
    _, state_version, _, _, state = rows[0][:5]
    if state is not None:
        stream.restore(load(stream.STATE, state), state_version)
    for row in rows:
        if row[5] is not None:
            event = recorded(row[5:])
            replay(stream, event.topic, event.event, event.recorded_at, event.position)
    return stream


def replay(
    stream: Stream[Any, Any], topic: str, event: Event | Unknown, at: datetime, position: int | None = None
) -> None:
    """Apply the next event to a stream object. Raises UnreadableEvent where its `evolve` fails on it."""
    try:
        stream.replay(event, at)
    except Exception as error:  # any error of a user's evolve
        why = f"could not be applied: {type(error).__name__}: {error}"
        raise UnreadableEvent(
            topic, why[:300], stream=stream.name, version=stream.version + 1, position=position
        ) from error
