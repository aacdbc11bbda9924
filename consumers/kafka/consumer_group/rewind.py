"""
Rewinds a group: sets its offsets, so that it handles events again, or leaves some out.

    rewind(cluster, connection, "counts", ["ledger.lsm"], Target(position=1000))

The offsets in the consumer's database are set; Kafka's own follow as soon as the group runs. What is parked
or done from the new offset on is forgotten, since it is read again. That is refused while the group has
members. Effects of the events that are handled again are the user's: undo them first, or write a handler that
does them twice without harm.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg
from kafka import KafkaConsumer, TopicPartition

from ledger import BadInput
from ledger.errors import GroupRuns, KafkaUnavailable

from ..cluster import Cluster
from ..envelope import Envelope, envelope_of
from ..topics import Topics
from .client import Message, Place
from .kafka_member import kafka_errors
from .offsets import SCHEMA, Offset, Offsets, require_tables

PATIENCE: Final = 30.0
"""Seconds that reading one record may take."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where to: exactly one of these.

    offset: of the next record, the same in each partition. position: the first event at this position of the
    log or after it. at: the first event that the ledger recorded at this time or later. end: True for the end
    of the topic, False for its start.
    """

    offset: int | None = None
    position: int | None = None
    at: datetime | None = None
    end: bool | None = None

    def __post_init__(self) -> None:
        if sum(one is not None for one in (self.offset, self.position, self.at, self.end)) != 1:
            raise BadInput("give one of them: an offset, a position, a time, the start, or the end")


@dataclass(frozen=True, slots=True)
class Step:
    """The rewind of one partition.

    old: None where the group never read it. parked: events that are forgotten.
    """

    topic: str
    partition: int
    old: int | None
    new: int
    last_position: int | None
    parked: int


def rewind(
    cluster: Cluster, connection: psycopg.Connection[Any], group: str, topics: Sequence[str],
    target: Target, *, schema: str = SCHEMA, partitions: Iterable[int] | None = None, dry_run: bool = False,
) -> list[Step]:  # fmt: skip
    """Set the offsets of a group; returns what was set in each partition. dry_run: nothing is changed.

    partitions: only these; all by default. Raises GroupRuns where the group has members, KafkaUnavailable,
    SchemaMismatch.
    """
    require_tables(connection, schema)
    only = None if partitions is None else set(partitions)
    with _reading(cluster) as reader:
        ids = _ids(cluster, group, topics)
        places = [
            place
            for topic in ids
            for place in reader.places(topic)
            if only is None or place.partition in only
        ]
        found = {place: reader.find(place, target) for place in places}
    steps = []
    with connection.transaction(force_rollback=dry_run):
        for place, offset in sorted(found.items()):
            steps.append(_step(connection, Offsets(group, schema), place, ids[place.topic], offset))
    return steps


def _step(
    connection: psycopg.Connection[Any], offsets: Offsets, place: Place, topic_id: str, offset: Offset
) -> Step:
    old = offsets.rewind(connection, place, topic_id, offset)
    if old is None:
        offsets.begin(connection, place, topic_id, offset)
    parked = offsets.drop_from(connection, place, offset.next_offset)
    return Step(*place, old, *offset, parked)


def _ids(cluster: Cluster, group: str, topics: Sequence[str]) -> dict[str, str]:
    """The ids of the topics. Raises GroupRuns, BadInput for a topic that there is not."""
    with kafka_errors("asking for the group"), cluster.admin() as admin:
        told = admin.describe_groups([group]).get(group, {})
        if members := told.get("members"):
            raise GroupRuns(group, [str(one.get("client_host", "?")) for one in members])
    found = {name: topic.id for name, topic in Topics(cluster).found(topics).items()}
    if missing := [topic for topic in topics if topic not in found]:
        raise BadInput(f"there is no topic {', '.join(missing)}")
    return found


@contextmanager
def _reading(cluster: Cluster) -> Iterator[_Reader]:
    with kafka_errors("reading the topic"):
        client = KafkaConsumer(
            **cluster.options(), enable_auto_commit=False, auto_offset_reset="none",
            isolation_level="read_committed", metrics_enabled=False,
        )  # fmt: skip
        try:
            yield _Reader(client)
        finally:
            client.close(timeout_ms=1_000)


class _Reader:
    """Looks at single records of partitions."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def places(self, topic: str) -> list[Place]:
        """The partitions of a topic."""
        return [Place(topic, nr) for nr in sorted(self._client.partitions_for_topic(topic) or ())]

    def find(self, place: Place, target: Target) -> Offset:
        """The offset that a target means in a partition."""
        partition = TopicPartition(*place)
        self._client.assign([partition])
        first = self._client.beginning_offsets([partition])[partition]
        end = self._client.end_offsets([partition])[partition]
        if target.end:
            return Offset(end, None)
        if target.end is False:
            return self._offset(place, first, end)
        if target.offset is not None:
            return self._offset(place, min(max(first, target.offset), end), end)
        return self._offset(place, self._search(place, first, end, _reached(target)), end)

    def _offset(self, place: Place, offset: int, end: int) -> Offset:
        """An offset with the position that the next record follows."""
        if offset == 0:
            return Offset(0, 0)
        record = self._record(place, offset, end)
        envelope = None if record is None else _envelope(record)
        return Offset(
            offset if record is None else record.offset, None if envelope is None else envelope.previous
        )

    def _search(self, place: Place, first: int, end: int, reached: Callable[[Envelope], bool]) -> int:
        """The first offset whose record has reached the target; both ascend along a partition."""
        low, high = first, end
        while low < high:
            middle = (low + high) // 2
            record = self._event(place, middle, end)
            if record is None or reached(record[1]):
                high = middle
            else:
                low = record[0] + 1
        return low

    def _event(self, place: Place, offset: int, end: int) -> tuple[int, Envelope] | None:
        """The first event at an offset or after it: its offset, and itself."""
        while (record := self._record(place, offset, end)) is not None:
            envelope = _envelope(record)
            if envelope is not None:
                return record.offset, envelope
            offset = record.offset + 1
        return None

    def _record(self, place: Place, offset: int, end: int) -> Message | None:
        """The first record at an offset or after it; offsets of transactions' ends hold none."""
        partition = TopicPartition(*place)
        self._client.seek(partition, offset)
        deadline = time.monotonic() + PATIENCE
        while self._client.position(partition) < end:
            for record in self._client.poll(timeout_ms=200, max_records=1).get(partition, ()):
                found: Message = record
                return found
            if time.monotonic() > deadline:
                raise KafkaUnavailable(
                    f"{place.topic}, partition {place.partition}: no record within {PATIENCE:g} s"
                )
        return None


def _reached(target: Target) -> Callable[[Envelope], bool]:
    if target.position is not None:
        position = target.position
        return lambda envelope: envelope.event.position >= position
    assert target.at is not None
    at = target.at
    return lambda envelope: envelope.event.recorded_at >= at


def _envelope(record: Message) -> Envelope | None:
    try:
        return envelope_of(record.key, record.value, record.headers)
    except ValueError:
        return None
