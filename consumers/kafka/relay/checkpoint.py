"""
The checkpoint: how far the relay has come, in a compacted topic of the same cluster.

It is written in the transaction that publishes the events, so it says what is there. Only a producer that has
fenced its predecessors may go on from it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from ledger import Cursor, KafkaUnavailable, TopicMismatch

from ..cluster import Cluster
from ..envelope import Outgoing
from ..routes import ROUTING, Routes
from ..topics import Topic, Topics

FORMAT: Final = 1
PATIENCE: Final = 30.0
"""Seconds within which a topic of one partition must be readable up to its end."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A topic of events: how many it holds, and the position of the last one in each of its partitions."""

    topic: Topic
    last: tuple[int, ...]
    count: int = 0


@dataclass(frozen=True, slots=True)
class RelayCheckpoint:
    """How far a relay has come. cursor: the last event published. start: the events after this position.

    count: events published. chains: by the names of the topics.
    """

    relay: str
    cursor: Cursor
    start: int
    count: int
    chains: Mapping[str, Chain]
    routing: int = ROUTING

    def record(self, topic: str) -> Outgoing:
        """The checkpoint as a record of its topic."""
        topics = {
            name: {"id": chain.topic.id, "last": chain.last, "count": chain.count}
            for name, chain in self.chains.items()
        }
        note = {
            "format": FORMAT,
            "relay": self.relay,
            "routing": self.routing,
            "cursor": str(self.cursor),
            "start": self.start,
            "count": self.count,
            "topics": topics,
        }
        value = json.dumps(note, separators=(",", ":")).encode()
        return Outgoing(topic, 0, self.relay.encode(), value, [("content-type", b"application/json")])

    @classmethod
    def read(cls, topic: str, value: bytes) -> RelayCheckpoint:
        """The checkpoint in a record. Raises TopicMismatch for a record of another kind or format."""
        try:
            note = json.loads(value)
            if note["format"] != FORMAT:
                raise TopicMismatch(
                    topic, f"its checkpoint has the format {note['format']}, this relay has {FORMAT}",
                    "run the version of the relay that wrote it",
                )  # fmt: skip
            chains = {name: _chain(name, kept) for name, kept in note["topics"].items()}
            cursor = Cursor.parse(note["cursor"])
            return cls(note["relay"], cursor, note["start"], note["count"], chains, note["routing"])
        except (KeyError, TypeError, ValueError) as error:
            raise TopicMismatch(
                topic, f"a record of it is no checkpoint ({error})", "choose another --prefix"
            ) from error

    def moved(self, cursor: Cursor, chains: Mapping[str, Chain], more: int) -> RelayCheckpoint:
        """The checkpoint after a block of so many events more."""
        return replace(self, cursor=cursor, chains=chains, count=self.count + more)


def _chain(name: str, kept: Mapping[str, Any]) -> Chain:
    last = tuple(int(position) for position in kept["last"])
    return Chain(Topic(name, kept["id"], len(last)), last, kept["count"])


def read_checkpoint(cluster: Cluster, routes: Routes) -> RelayCheckpoint | None:
    """The newest committed checkpoint below a prefix; None where nothing was ever published.

    Raises KafkaUnavailable, TopicMismatch.
    """
    if routes.checkpoint not in Topics(cluster).found([routes.checkpoint]):
        return None
    found = last_value(cluster, routes.checkpoint)
    return None if found is None else RelayCheckpoint.read(routes.checkpoint, found)


def last_value(cluster: Cluster, topic: str) -> bytes | None:
    """The value of the last committed record of a topic with one partition. Raises KafkaUnavailable."""
    place = TopicPartition(topic, 0)
    try:
        with reader(cluster) as consumer:
            consumer.assign([place])
            first, end = consumer.beginning_offsets([place])[place], consumer.end_offsets([place])[place]
            back = 8
            while True:
                start = max(first, end - back)
                if (value := _last_between(consumer, place, start, end)) is not None or start == first:
                    return value
                back *= 16  # transactions that were aborted, and compaction, leave gaps
    except KafkaError as error:
        raise cluster.unavailable(error) from error


def has_records(cluster: Cluster, topic: Topic) -> bool:
    """Whether a topic has a committed record. Raises KafkaUnavailable."""
    places = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
    try:
        with reader(cluster) as consumer:
            consumer.assign(places)
            firsts, ends = consumer.beginning_offsets(places), consumer.end_offsets(places)
            for place in places:
                consumer.seek(place, firsts[place])
            deadline = time.monotonic() + PATIENCE
            while any(consumer.position(place) < ends[place] for place in places):
                if any(consumer.poll(timeout_ms=200).values()):
                    return True
                _still(deadline, topic.name)
    except KafkaError as error:
        raise cluster.unavailable(error) from error
    return False


@contextmanager
def reader(cluster: Cluster) -> Iterator[Any]:
    """A consumer without a group that reads what is committed, while the block runs."""
    consumer = KafkaConsumer(
        **cluster.options()
        | {
            "isolation_level": "read_committed",
            "enable_auto_commit": False,
            "auto_offset_reset": "none",
            "metrics_enabled": False,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close(timeout_ms=1000)


def _last_between(consumer: Any, place: TopicPartition, start: int, end: int) -> bytes | None:
    value: bytes | None = None
    consumer.seek(place, start)
    deadline = time.monotonic() + PATIENCE
    while consumer.position(place) < end:
        for record in consumer.poll(timeout_ms=200).get(place, ()):
            value = record.value
        _still(deadline, place.topic)
    return value


def _still(deadline: float, topic: str) -> None:
    if time.monotonic() > deadline:
        raise KafkaUnavailable(f"topic {topic} could not be read to its end within {PATIENCE:g} s")
