"""Reads what a topic holds, with the bare client: an oracle that shares no code with the relay."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition

from ledger import Ledger

LIMIT = 60.0


class Found(NamedTuple):
    """A record as it was read."""

    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes
    headers: dict[str, bytes]


def records(bootstrap: str, *topics: str, isolation: str = "read_committed") -> list[Found]:
    """All records of topics, by topic, partition and offset."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level=isolation, enable_auto_commit=False,
        auto_offset_reset="none", metrics_enabled=False,
    )  # fmt: skip
    try:
        places = [
            TopicPartition(topic, number)
            for topic in topics
            for number in sorted(consumer.partitions_for_topic(topic) or ())
        ]
        consumer.assign(places)
        begins, ends = consumer.beginning_offsets(places), consumer.end_offsets(places)
        for place in places:
            consumer.seek(place, begins[place])
        found, deadline = [], time.monotonic() + LIMIT
        while any(consumer.position(place) < ends[place] for place in places):
            for batch in consumer.poll(timeout_ms=100).values():
                found += [
                    Found(one.topic, one.partition, one.offset, one.key, one.value, dict(one.headers))
                    for one in batch
                ]
            assert time.monotonic() < deadline, "the topics cannot be read to their end"
        return sorted(found, key=lambda one: one[:3])
    finally:
        consumer.close()


def topics_below(bootstrap: str, prefix: str) -> list[str]:
    """The topics of events below a prefix."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        names = [name for name in admin.list_topics() if name.startswith(f"{prefix}.")]
    finally:
        admin.close()
    return sorted(name for name in names if "." not in name[len(prefix) + 1 :] and "checkpoint" not in name)


def assert_published(log: Ledger, bootstrap: str, prefix: str, after: int = 0) -> list[Found]:
    """The topics hold each event of the log after a position once, in the order of its stream, chained."""
    found = records(bootstrap, *topics_below(bootstrap, prefix))
    last: dict[tuple[str, int], int] = {}
    homes: dict[bytes, set[tuple[str, int]]] = {}
    versions: dict[bytes, int] = {}
    for one in found:
        place, position = (one.topic, one.partition), int(one.headers["ce_ledgerposition"])
        assert int(one.headers["ce_ledgerprev"]) == last.get(place, 0), one
        assert position > last.get(place, 0), one
        last[place] = position
        homes.setdefault(one.key, set()).add(place)
        version = int(one.headers["ce_ledgerversion"])
        assert version == versions.get(one.key, version - 1) + 1, f"{one.key!r} leaps to {version}"
        versions[one.key] = version
    assert {key: len(places) for key, places in homes.items()} == dict.fromkeys(homes, 1)
    assert sorted(map(published, found)) == sorted(recorded(log, after))
    return found


Row = tuple[int, str, int, str, int, bytes, str | None, str]


def published(one: Found) -> Row:
    """A record as a row of the log."""
    headers = one.headers
    meta = headers.get("ce_ledgermeta")
    return (
        int(headers["ce_ledgerposition"]),
        one.key.decode(),
        int(headers["ce_ledgerversion"]),
        headers["ce_type"].decode(),
        int(headers["ce_ledgerschema"]),
        one.value,
        None if meta is None else json.dumps(json.loads(meta), sort_keys=True),
        headers["ce_time"].decode(),
    )


def recorded(log: Ledger, after: int = 0) -> list[Row]:
    """The events of the log after a position, read without its code."""
    with log.reader() as connection:
        rows: Iterable[Any] = connection.execute(
            f"""SELECT position, stream, version, topic, schema,
                      coalesce(raw, convert_to(data::text, 'UTF8')), meta,
                      to_char(recorded_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
                 FROM {log.schema}.events WHERE position > %s""",
            (after,),
        ).fetchall()
    return [
        (*row[:5], bytes(row[5]), None if row[6] is None else json.dumps(row[6], sort_keys=True), row[7])
        for row in rows
    ]
