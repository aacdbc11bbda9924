"""An oracle that shares no code with the relay: librdkafka reads the topics, SQL reads the ledger.

`faults_of_topics` and `faults_of_effects` return what is wrong, as sentences; nothing wrong is an empty list.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

LIMIT = 120.0
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Row:
    """An event as the ledger has it."""

    position: int
    stream: str
    version: int
    topic: str
    body: Any


@dataclass(frozen=True, slots=True)
class Copy:
    """A record as another client reads it: its place and its offset there, and what it says of its event.

    before: the position of the record before it in its partition.
    """

    place: tuple[str, int]
    offset: int
    key: str
    subject: str
    position: int
    before: int
    version: int
    topic: str
    body: Any


def ledger_rows(dsn: str) -> list[Row]:
    """All events, in the order of the log."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        found = connection.execute(
            "SELECT position, stream, version, topic, data FROM ledger.events ORDER BY position"
        )
        return [Row(*row) for row in found]


def topic_copies(bootstrap: str, prefix: str) -> list[Copy]:
    """All committed records of the topics of events, in the order of each partition."""
    client = Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": f"oracle-{prefix}", "enable.auto.commit": False,
            "isolation.level": "read_committed", "enable.partition.eof": True,
        }
    )  # fmt: skip
    try:
        known = client.list_topics(timeout=LIMIT).topics
        names = [name for name in known if name.startswith(f"{prefix}.") and not _is_ours(name)]
        places = [TopicPartition(name, part, 0) for name in names for part in known[name].partitions]
        client.assign(places)
        return list(_read(client, len(places)))
    finally:
        client.close()


def _is_ours(name: str) -> bool:
    """A topic that holds no events."""
    return name.endswith((".checkpoint", ".states")) or ".views." in name


def _read(client: Consumer, waiting: int) -> Iterable[Copy]:
    while waiting:
        message = client.poll(LIMIT)
        assert message is not None, f"{waiting} partitions could not be read to their ends"
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            waiting -= 1
            continue
        yield _copy(message)


def _copy(message: Message) -> Copy:
    headers = {name: value.decode() for name, value in message.headers() or []}
    return Copy(
        (message.topic(), message.partition()),
        message.offset(),
        message.key().decode(),
        headers["ce_subject"],
        int(headers["ce_id"]),
        int(headers["ce_ledgerprev"]),
        int(headers["ce_ledgerversion"]),
        headers["ce_type"],
        json.loads(message.value()),
    )


def faults_of_topics(rows: Sequence[Row], copies: Sequence[Copy]) -> list[str]:
    """Lost, doubled, changed or foreign records; a broken order of a key; a broken chain of a partition."""
    by_position = {row.position: row for row in rows}
    counted = Counter(copy.position for copy in copies)
    wrong = [f"position {one} is lost" for one in by_position.keys() - counted.keys()]
    wrong += [f"position {one} is there {many} times" for one, many in counted.items() if many > 1]
    wrong += [f"position {one} is not in the ledger" for one in counted.keys() - by_position.keys()]
    wrong += [found for copy in copies for found in _differences(copy, by_position)]
    return wrong + _broken_chains(copies) + _broken_orders(copies)


def _differences(copy: Copy, rows: dict[int, Row]) -> Iterable[str]:
    row = rows.get(copy.position)
    if row is None:
        return
    said = (copy.key, copy.subject, copy.version, copy.topic, copy.body)
    if said != (row.stream, row.stream, row.version, row.topic, row.body):
        yield f"position {row.position} is {said}, and should be {row}"


def _broken_chains(copies: Sequence[Copy]) -> list[str]:
    last: dict[tuple[str, int], int] = defaultdict(int)
    wrong = []
    for copy in copies:
        if copy.before != last[copy.place]:
            wrong.append(
                f"{copy.place}: {copy.position} follows {copy.before}, and {last[copy.place]} was before it"
            )
        last[copy.place] = copy.position
    return wrong


def _broken_orders(copies: Sequence[Copy]) -> list[str]:
    versions: dict[str, int] = defaultdict(int)
    places: dict[str, tuple[str, int]] = {}
    wrong = []
    for copy in copies:
        if copy.version != versions[copy.key] + 1:
            wrong.append(f"{copy.key}: version {copy.version} follows version {versions[copy.key]}")
        if places.setdefault(copy.key, copy.place) != copy.place:
            wrong.append(f"{copy.key} is in {places[copy.key]} and in {copy.place}")
        versions[copy.key] = copy.version
    return wrong


def faults_of_effects(rows: Sequence[Row], dsn: str) -> list[str]:
    """Effects that are lost, doubled, or in another order than the events of their stream."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        found = connection.execute("SELECT position, stream, version FROM effects ORDER BY nr").fetchall()
    counted = Counter(position for position, _, _ in found)
    wanted = {row.position for row in rows}
    wrong = [f"the effect of position {one} is lost" for one in wanted - counted.keys()]
    wrong += [f"position {one} has {many} effects" for one, many in counted.items() if many > 1]
    versions: dict[str, int] = defaultdict(int)
    for _, stream, version in found:
        if version <= versions[stream]:
            wrong.append(f"{stream}: the effect of version {version} came after that of {versions[stream]}")
        versions[stream] = version
    return wrong


def told(wrong: Sequence[str]) -> str:
    """The first faults, and how many there are."""
    return f"{len(wrong)} faults: " + "; ".join(wrong[:SHOWN])
