"""
The offsets of consumers, in their own PostgreSQL database, and its tables, made by numbered migrations.

An offset moves in the transaction that holds the effects of the events before it, by compare-and-set: it must
be where this consumer believes it to be. Where it is not, another consumer of the group has the partition:
the transaction is rolled back. The offsets that Kafka keeps for a group only serve its tools; they expire.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

import psycopg

from ledger import SchemaMismatch
from ledger.errors import TopicMismatch
from ledger.log.install import checked_schema
from ledger.log.sql import Statement, Statements, run

from .client import Place

Connection = psycopg.Connection[Any]
SQL: Final = Statements(__package__, "offsets")
MIGRATIONS: Final = 1
"""How many migrations this code knows."""
SCHEMA: Final = "consumers"
"""The schema of the tables, unless another one is named."""


class Offset(NamedTuple):
    """Where a group goes on in a partition.

    next_offset: of the next record. last_position: in the log, of the event before it; 0 at the start, None
    where the next record may follow any.
    """

    next_offset: int
    last_position: int | None


@dataclass(frozen=True, slots=True)
class Move:
    """An offset that moves from `old` to `new`. recorded_at: of the last event before `new`."""

    old: Offset
    new: Offset
    recorded_at: datetime | None = None


Moves = Mapping[Place, Move]


def make_tables(connection: Connection, schema: str = SCHEMA) -> int:
    """Make or upgrade the tables of consumers; returns the number of their newest migration.

    Raises SchemaMismatch where they are newer than this code.
    """
    checked_schema(schema)
    if number_of(connection, schema) == MIGRATIONS:
        return MIGRATIONS
    with connection.transaction():
        run(connection, schema, SQL.migration_lock, schema=schema)
        run(connection, schema, SQL.make_schema)
        run(connection, schema, SQL.begin_migrations)
        for number in range(number_of(connection, schema) + 1, MIGRATIONS + 1):
            connection.execute(SQL[f"migration_{number}"].text(schema))
            run(connection, schema, SQL.applied, number=number)
    return MIGRATIONS


def number_of(connection: Connection, schema: str = SCHEMA) -> int:
    """The number of the newest migration of the tables that are there, 0 for none. Raises SchemaMismatch."""
    checked_schema(schema)
    ((there,),) = run(connection, schema, SQL.is_there, table=f"{schema}.consumer_migrations")
    if not there:
        return 0
    ((number,),) = run(connection, schema, SQL.number)
    if (number or 0) > MIGRATIONS:
        raise SchemaMismatch(
            f"the tables of consumers in schema {schema!r} are of migration {number}, and this code knows "
            f"{MIGRATIONS}: upgrade pipeline-ledger here"
        )
    return int(number or 0)


def require_tables(connection: Connection, schema: str = SCHEMA) -> None:
    """Raise SchemaMismatch where the tables are missing or old."""
    if number_of(connection, schema) < MIGRATIONS:
        raise SchemaMismatch(
            f"schema {schema!r} has no tables of consumers, or old ones: run a consumer, which makes them"
        )


class Offsets:
    """The offsets of one group. Each method works on the connection that it is given, in its transaction."""

    def __init__(self, group: str, schema: str = SCHEMA) -> None:
        self.group, self.schema = group, checked_schema(schema)

    def _run(self, connection: Connection, statement: Statement, **given: Any) -> list[tuple[Any, ...]]:
        return run(connection, self.schema, statement, group=self.group, **given)

    def read(self, connection: Connection, place: Place, topic_id: str) -> Offset | None:
        """Where the group goes on in a partition; None where it never read it. Raises TopicMismatch."""
        rows = self._run(connection, SQL.read, **place._asdict())
        for known_id, next_offset, last_position in rows:
            if known_id != topic_id:
                raise TopicMismatch(
                    place.topic,
                    f"it was made anew since group {self.group} read it (id {known_id}, now {topic_id})",
                    "rewind the group to where it shall begin: `pledger consume rewind`",
                )
            return Offset(next_offset, last_position)
        return None

    def begin(self, connection: Connection, place: Place, topic_id: str, offset: Offset) -> Offset:
        """
        Begin a partition at an offset, unless another consumer did so first; returns where the group goes on.
        """
        self._run(connection, SQL.begin, **place._asdict(), topic_id=topic_id, **offset._asdict())
        return self.read(connection, place, topic_id) or offset

    def all(self, connection: Connection) -> dict[Place, tuple[str, Offset, datetime | None]]:
        """All partitions of the group: topic id, offset, and when its last event was recorded."""
        rows = self._run(connection, SQL.all_of_group)
        return {Place(t, p): (topic_id, Offset(next_, last), at) for t, p, topic_id, next_, last, at in rows}

    def move(self, connection: Connection, moves: Moves) -> frozenset[Place]:
        """Compare and set; returns the partitions that were not where they were expected."""
        moved = self._run(
            connection, SQL.move, **_places(moves), expected=[one.old.next_offset for one in moves.values()],
            nexts=[one.new.next_offset for one in moves.values()],
            lasts=[one.new.last_position for one in moves.values()],
            times=[one.recorded_at for one in moves.values()],
        )  # fmt: skip
        return frozenset(moves.keys() - {Place(*row) for row in moved})

    def share(self, connection: Connection, moves: Moves) -> frozenset[Place]:
        """Hold offsets where they are until the transaction ends; returns those that are elsewhere."""
        expected = [one.old.next_offset for one in moves.values()]
        held = self._run(connection, SQL.share, **_places(moves), expected=expected)
        return frozenset(moves.keys() - {Place(*row) for row in held})

    def lock(self, connection: Connection, place: Place) -> bool:
        """Lock a partition until the transaction ends; False where the group never read it."""
        return bool(self._run(connection, SQL.lock, **place._asdict()))

    def mark_done(self, connection: Connection, done: Sequence[tuple[Place, int]]) -> None:
        """Note events as done before the offset reaches them. Raises UniqueViolation where another did so."""
        places = [place for place, _ in done]
        self._run(connection, SQL.mark_done, **_places(places), offsets=[offset for _, offset in done])

    def done(self, connection: Connection, place: Place) -> frozenset[int]:
        """The events of a partition that are done though the offset is before them."""
        return frozenset(offset for (offset,) in self._run(connection, SQL.done, **place._asdict()))

    def clear_done(self, connection: Connection) -> None:
        """Forget the events that the offsets have passed."""
        self._run(connection, SQL.clear_done)

    def rewind(self, connection: Connection, place: Place, topic_id: str, offset: Offset) -> int | None:
        """Set an offset; returns what it was, None where the group never read the partition."""
        rows = self._run(connection, SQL.rewind, **place._asdict(), topic_id=topic_id, **offset._asdict())
        return int(rows[0][0]) if rows else None

    def drop_from(self, connection: Connection, place: Place, offset: int) -> int:
        """Forget what is parked or done from an offset on; returns how many events were parked."""
        return len(self._run(connection, SQL.drop_from, **place._asdict(), offset=offset))


def _places(places: Iterable[Place]) -> dict[str, list[Any]]:
    pairs = list(places)
    return {"topics": [one.topic for one in pairs], "partitions": [one.partition for one in pairs]}


class GroupPosition(NamedTuple):
    """Where a group goes on in a partition, and how many of its events are parked."""

    group: str
    topic: str
    partition: int
    next_offset: int
    last_position: int | None
    recorded_at: datetime | None
    waiting: int
    behind: int
    dead: int


def positions(connection: Connection, schema: str = SCHEMA) -> list[GroupPosition]:
    """Where each group goes on, with all its partitions."""
    return [GroupPosition(*row) for row in run(connection, schema, SQL.positions)]
