"""Publishes events in a topic of the real broker, as the relay does: in transactions, and chained."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Self
from uuid import UUID

from consumers.kafka.cluster import Cluster
from consumers.kafka.envelope import Outgoing, record_of, source_of
from consumers.kafka.relay.producer import Transactions
from consumers.kafka.routes import partition_of
from consumers.kafka.topics import Topics
from ledger import Recorded

LEDGER = UUID("00000000-0000-4000-8000-000000000002")


class Publisher:
    """A topic of a test's own, and who publishes in it. published: all events, in order."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int = 4) -> None:
        self.cluster, self.topic, self.partitions = cluster, topic, partitions
        self.published: list[Recorded] = []
        self.last: defaultdict[int, int] = defaultdict(int)
        self._versions: defaultdict[str, int] = defaultdict(int)
        self._position = 0
        Topics(cluster).ensure(topic, partitions=partitions)
        self._producer = Transactions(cluster, f"test-{topic}")
        self._producer.fence()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._producer.close()

    def publish(self, streams: Iterable[str], body: str = "{}", block: int = 200) -> list[Recorded]:
        """An event for each of the streams, in transactions of so many."""
        events = [self._event(stream, body) for stream in streams]
        for start in range(0, len(events), block):
            self._producer.publish([self._record(event) for event in events[start : start + block]])
        self.published += events
        return events

    def send(self, records: Sequence[Outgoing]) -> None:
        """Records as they are."""
        self._producer.publish(records)

    def _event(self, stream: str, body: str) -> Recorded:
        self._versions[stream] += 1
        self._position += 1
        return Recorded(
            self._position,
            stream,
            self._versions[stream],
            "lsm.strip.completed",
            1,
            body,
            None,
            None,
            datetime.now(UTC),
        )

    def _record(self, event: Recorded) -> Outgoing:
        partition = partition_of(event.stream.encode(), self.partitions)
        record = record_of(event, self.last[partition], source_of(LEDGER), self.topic, partition)
        self.last[partition] = event.position
        return record
