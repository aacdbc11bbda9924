"""
Parked events: those that a handler could not do, and those of the same key that wait behind them.

They are rows in the consumer's own database, and come there in the transaction that moves the offset past
them; so no event is lost between the two. The first of a key `waits` for its next attempt, or is a dead
letter; the others are `behind` it and are handled in order once it is done, or discarded. An event with no
key holds up no other.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

import psycopg

from ledger.log.sql import Statement, Statements, run

from .client import Message, Place
from .handler import Delivery, Handler
from .offsets import SCHEMA, Offsets

Connection = psycopg.Connection[Any]
State = Literal["waiting", "behind", "dead"]
SQL: Final = Statements(__package__, "parked")
TRACE: Final = 8_000
"""Characters of a traceback that are kept: its end, which names the cause."""


class Stored(NamedTuple):
    """A record as it was parked."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


class Failure(NamedTuple):
    """Why an event was not handled.

    error: the name of the exception's class. trace: the end of its traceback.
    """

    error: str
    message: str
    trace: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """What is kept of an exception."""
        kind = type(error)
        module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        trace = "".join(traceback.format_exception(error))[-TRACE:]
        return cls(f"{module}{kind.__qualname__}", _text(str(error))[:TRACE], _text(trace))


def _text(text: str) -> str:
    """The text as PostgreSQL takes it."""
    return text.replace("\x00", "\\x00").encode(errors="replace").decode()


@dataclass(frozen=True, slots=True)
class Letter:
    """A parked event, as lists show it. behind: how many of its key wait behind it."""

    group: str
    topic: str
    partition: int
    offset: int
    position: int | None
    event_topic: str | None
    key: bytes | None
    state: State
    attempts: int
    error: str | None
    message: str | None
    parked_at: datetime
    due_at: datetime | None
    behind: int
    value: bytes | None = None
    header_names: Sequence[str] = ()
    header_values: Sequence[bytes] = ()
    trace: str | None = None
    published_at: datetime | None = None

    @property
    def place(self) -> Place:
        """The partition that it came from."""
        return Place(self.topic, self.partition)

    @property
    def id(self) -> str:
        """How commands name it: TOPIC/PARTITION/OFFSET."""
        return f"{self.topic}/{self.partition}/{self.offset}"

    @property
    def headers(self) -> dict[str, bytes]:
        """The record's headers."""
        return dict(zip(self.header_names, self.header_values, strict=True))


def ordering_of(message: Message) -> bytes:
    """What keeps the order of a record: its key; the record alone, where it has none."""
    return b"key " + message.key if message.key is not None else b"offset %d" % message.offset


@dataclass(slots=True)
class Tried:
    """What came of trying parked events: how many were handled, tried in vain, and are dead now."""

    handled: int = 0
    failed: int = 0
    dead: int = 0
    topics: list[str] = field(default_factory=list)


Call = Callable[[Delivery, Connection], None]
"""Hands one event to the handler, in a savepoint. Raises what the handler raises."""


class Parking:
    """The parked events of one group.

    Each method works on the connection that it is given, in its transaction.
    """

    def __init__(self, group: str, schema: str = SCHEMA) -> None:
        self.group, self.offsets, self.schema = group, Offsets(group, schema), schema

    def _run(self, connection: Connection, statement: Statement, **given: Any) -> list[tuple[Any, ...]]:
        return run(connection, self.schema, statement, **{"group": self.group, **given})

    def blocked(self, connection: Connection, places: Iterable[Place]) -> set[tuple[Place, bytes]]:
        """The keys whose events must wait behind a parked one."""
        rows = self._run(connection, SQL.blocked, **_places(places))
        return {(Place(topic, partition), ordering) for topic, partition, ordering in rows}

    def park(
        self, connection: Connection, delivery: Delivery, state: State, failure: Failure | None = None, *,
        attempts: int = 0, delay: float = 0.0,
    ) -> None:  # fmt: skip
        """Park an event. attempts: in vain, so far. delay: seconds until the next one."""
        message = delivery.message
        headers = list(message.headers)
        recorded = None if delivery.envelope is None else delivery.envelope.event
        self._run(
            connection, SQL.park, topic=message.topic, partition=message.partition, offset=message.offset,
            ordering=ordering_of(message), key=message.key, value=message.value,
            names=[_text(name) for name, _ in headers], values=[value or b"" for _, value in headers],
            position=None if recorded is None else recorded.position,
            event_topic=None if recorded is None else _text(recorded.topic),
            state=state, attempts=attempts, delay=delay, **_told(failure),
        )  # fmt: skip

    def due(
        self, connection: Connection, places: Iterable[Place], limit: int = 100
    ) -> list[tuple[Place, bytes]]:
        """The keys whose first event is to be tried again now."""
        rows = self._run(connection, SQL.due, **_places(places), limit=limit)
        return list(dict.fromkeys((Place(topic, partition), ordering) for topic, partition, ordering in rows))

    def try_again(
        self, connection: Connection, place: Place, ordering: bytes, handler: Handler,
        decode: Callable[[Message], Delivery], call: Call, limit: int = 200,
    ) -> Tried:  # fmt: skip
        """
        Handle the events of a key in order, up to the first that fails; its partition is locked meanwhile.
        """
        tried = Tried()
        self.offsets.lock(connection, place)
        given = {**place._asdict(), "ordering": ordering}
        rows = self._run(connection, SQL.of_key, **given, limit=limit)
        gone: list[int] = []
        for offset, key, value, names, values, attempts in rows:
            message = Stored(*place, offset, key, value, tuple(zip(names, values, strict=True)))
            delivery = decode(message)
            error = _error_of(delivery, connection, call)
            if error is not None:
                self._failed(connection, delivery, error, attempts + 1, handler, tried)
                break
            gone.append(offset)
            tried.topics.append(place.topic)
        self._run(connection, SQL.remove, **place._asdict(), offsets=gone)
        if rows and not tried.failed:
            self._run(connection, SQL.next_of_key, **given)
        tried.handled = len(gone)
        return tried

    def _failed(
        self,
        connection: Connection,
        delivery: Delivery,
        error: Exception,
        attempts: int,
        handler: Handler,
        tried: Tried,
    ) -> None:
        dead = delivery.wrong is not None or attempts >= handler.attempts
        tried.failed, tried.dead = 1, int(dead)
        message = delivery.message
        self._run(
            connection, SQL.failed_again, topic=message.topic, partition=message.partition,
            offset=message.offset, attempts=attempts, state="dead" if dead else "waiting",
            delay=handler.pause_before(attempts), **_told(Failure.of(error)),
        )  # fmt: skip

    def unpublished(self, connection: Connection, limit: int = 100) -> list[tuple[Stored, DeadLetter]]:
        """Dead letters that are not yet in their topic."""
        found = []
        for topic, partition, offset, key, value, names, values, attempts, *failure, at in self._run(
            connection, SQL.unpublished, limit=limit
        ):
            stored = Stored(topic, partition, offset, key, value, tuple(zip(names, values, strict=True)))
            found.append((stored, DeadLetter(attempts, Failure(*(part or "" for part in failure)), at)))
        return found

    def mark_published(self, connection: Connection, letters: Sequence[Stored]) -> None:
        """Note that dead letters are in their topic."""
        places = _places(Place(one.topic, one.partition) for one in letters)
        self._run(connection, SQL.published, **places, offsets=[one.offset for one in letters])

    def counts(self, connection: Connection) -> dict[str, int]:
        """How many events are parked, by state."""
        return dict(self._run(connection, SQL.counts))


class DeadLetter(NamedTuple):
    """Why a record is a dead letter."""

    attempts: int
    failure: Failure
    parked_at: datetime


def _error_of(delivery: Delivery, connection: Connection, call: Call) -> Exception | None:
    if delivery.wrong is not None:
        return delivery.wrong
    if delivery.event is None:  # the handler no longer wants it
        return None
    try:
        call(delivery, connection)
    except Exception as error:
        if is_transient(error, connection):
            raise
        return error
    return None


def is_transient(error: BaseException, connection: Connection) -> bool:
    """Whether it comes from the connection, from rivals or from a full disk: the event did not cause it."""
    passing = (
        psycopg.errors.SerializationFailure,
        psycopg.errors.DeadlockDetected,
        psycopg.errors.DiskFull,
    )
    return connection.closed or connection.broken or isinstance(error, passing)


def _told(failure: Failure | None) -> dict[str, str | None]:
    return dict.fromkeys(Failure._fields) if failure is None else failure._asdict()


def _places(places: Iterable[Place]) -> dict[str, list[Any]]:
    pairs = list(places)
    return {"topics": [one.topic for one in pairs], "partitions": [one.partition for one in pairs]}


# What commands do with dead letters


def letters(
    connection: Connection, schema: str = SCHEMA, *, group: str | None = None, topic: str | None = None,
    key: bytes | None = None, error: str | None = None, states: Sequence[State] = ("dead",),
    limit: int = 1_000,
) -> list[Letter]:  # fmt: skip
    """Parked events, the oldest first; by default the dead letters."""
    given = {
        "group": group,
        "topic": topic,
        "key": key,
        "error": error,
        "states": list(states),
        "limit": limit,
    }
    return [Letter(*row) for row in run(connection, schema, SQL.list, **given)]


def letter(
    connection: Connection, group: str, place: Place, offset: int, schema: str = SCHEMA
) -> Letter | None:
    """One parked event with all that is known of it."""
    rows = run(connection, schema, SQL.show, group=group, **place._asdict(), offset=offset)
    return Letter(*rows[0]) if rows else None


def redrive(connection: Connection, one: Letter, schema: str = SCHEMA) -> bool:
    """Have a dead letter tried again now, then those behind it; False where it is no longer there.

    The group's consumer does it, as soon as it runs.
    """
    with connection.transaction():
        Offsets(one.group, schema).lock(connection, one.place)
        return bool(
            run(connection, schema, SQL.redrive, group=one.group, **one.place._asdict(), offset=one.offset)
        )


def discard(connection: Connection, one: Letter, schema: str = SCHEMA) -> bool:
    """Give a dead letter up; those behind it are handled then. False where it is no dead letter any more."""
    with connection.transaction():
        Offsets(one.group, schema).lock(connection, one.place)
        named: dict[str, Any] = {"group": one.group, **one.place._asdict()}
        rows = run(connection, schema, SQL.discard, **named, offset=one.offset)
        with suppress(IndexError):
            run(connection, schema, SQL.next_of_key, **named, ordering=rows[0][0])
        return bool(rows)
