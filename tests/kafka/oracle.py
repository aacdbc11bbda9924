"""What handlers of the tests write, and an oracle that compares it with what was published."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

import psycopg

from consumers.kafka import consumer
from consumers.kafka.consumer_group.handler import Handler
from ledger import Recorded

TABLE: Final = """
CREATE TABLE IF NOT EXISTS effects (
    nr bigint GENERATED ALWAYS AS IDENTITY, reader text, stream text, version bigint, position bigint)"""

Connection = psycopg.Connection[Any]


def make_table(dsn: str) -> None:
    """The table of effects; it has no constraint that would hide a second effect."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(TABLE)


def write(reader: str, events: Iterable[Recorded], transaction: Connection) -> None:
    """One effect for each event."""
    rows = [(reader, event.stream, event.version, event.position) for event in events]
    transaction.cursor().executemany(
        "INSERT INTO effects (reader, stream, version, position) VALUES (%s, %s, %s, %s)", rows
    )


def writer(topic: str, group: str, *, batch: bool = True, **options: Any) -> Handler:
    """A handler that writes an effect for each event of a topic."""
    if batch:

        @consumer(topics=[topic], group=group, batch=True, **options)
        def write_all(events: Sequence[Recorded], transaction: Connection) -> None:
            write(group, events, transaction)

        return write_all

    @consumer(topics=[topic], group=group, **options)
    def write_one(event: Recorded, transaction: Connection) -> None:
        write(group, [event], transaction)

    return write_one


def effects(dsn: str, reader: str) -> list[tuple[str, int, int]]:
    """The effects in the order in which they were written: stream, version, position."""
    with psycopg.connect(dsn) as connection:
        return connection.execute(
            "SELECT stream, version, position FROM effects WHERE reader = %s ORDER BY nr", [reader]
        ).fetchall()


def faults(found: Sequence[tuple[str, int, int]], published: Sequence[Recorded]) -> list[str]:
    """How the effects differ from one each, in the order of their streams; empty where they do not."""
    wrong, seen = list[str](), defaultdict[str, list[int]](list)
    for stream, version, _ in found:
        seen[stream].append(version)
    wanted = defaultdict[str, list[int]](list)
    for event in published:
        wanted[event.stream].append(event.version)
    for stream in wanted.keys() | seen.keys():
        if wanted[stream] != seen[stream]:
            wrong.append(f"{stream}: published {wanted[stream]}, effects {seen[stream]}")
    return wrong
