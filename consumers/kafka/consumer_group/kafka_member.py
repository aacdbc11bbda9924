"""
A member of a consumer group, and the one place where consumers call kafka-python.

Partitions are assigned by the cooperative-sticky assignor: in a rebalance a member keeps what it had. The
client's listener runs on its I/O thread, so it only pauses and notes.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    KafkaError,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)
from kafka.structs import OffsetAndMetadata

from ledger.errors import KafkaFailed, KafkaUnavailable, TopicMismatch

from ..cluster import Cluster
from ..topics import Topics
from .client import Letter, Messages, Place

SESSION: Final = 10_000
"""Milliseconds without a heartbeat after which a member is taken to be gone."""
METADATA: Final = 5_000
"""Milliseconds until a topic is noticed that is made while the group runs; the client's default: 300 s."""


@contextmanager
def kafka_errors(doing: str) -> Iterator[None]:
    """Raise errors of kafka-python as KafkaUnavailable. doing: what failed, as the start of a sentence."""
    try:
        yield
    except KafkaError as error:
        raise KafkaUnavailable(f"{doing} failed: {error}") from error


def give_back_paused(client: Any) -> None:
    """Have the next poll return what an earlier one left of a partition that was paused and resumed since.

    kafka-python 3.0.12 does so only where it holds no batch of another partition, and it goes on holding one
    that is exhausted: then the partition is never read again, not even from the broker.
    """
    fetcher = client._fetcher
    if not fetcher._next_partition_records:
        fetcher._next_partition_records = None


def take_up_join(client: Any) -> None:
    """Have the next poll finish a join that outlasted an earlier one.

    kafka-python 3.0.12 does so only while it has a reason to join. Where the reason was that partitions have
    changed, as those of a topic that was just made, it is gone as soon as the leader has assigned them: the
    member would never learn what is assigned to it, and send no heartbeats.
    """
    if client._coordinator._join_task is not None:
        client._coordinator.request_rejoin()


class KafkaTransport:
    """A cluster. settings: further ones for the members' clients, such as session_timeout_ms."""

    def __init__(self, cluster: Cluster, **settings: Any) -> None:
        self.cluster, self._settings = cluster, settings
        self._producer: Any = None

    def member(self, topics: Sequence[str], group: str, *, instance: str | None = None) -> KafkaMember:
        with kafka_errors("joining the group"):
            return KafkaMember(self.cluster, topics, group, instance, self._settings)

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        return {name: topic.id for name, topic in Topics(self.cluster).found(set(topics)).items()}

    def send_letters(self, letters: Sequence[Letter]) -> None:
        try:
            with kafka_errors("publishing dead letters"):
                self._make({one.topic for one in letters})
                if self._producer is None:
                    self._producer = KafkaProducer(**self.cluster.options(), acks="all", max_block_ms=10_000)
                sent = [self._producer.send(one.topic, one.value, one.key, one.headers) for one in letters]
                for future in sent:
                    future.get(timeout=30)
        except BaseException:
            self.close()
            raise

    def _make(self, names: set[str]) -> None:
        topics = Topics(self.cluster)
        for name in names - topics.found(names).keys():
            topics.ensure(name, partitions=1)

    def close(self) -> None:
        """Close the producer of dead letters."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with suppress(KafkaError):
                producer.close(timeout=0)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Runs on the client's I/O thread: no database here, and no commit."""

    def __init__(self, pause: Callable[..., None]) -> None:
        self._pause = pause
        self.new: queue.SimpleQueue[Place] = queue.SimpleQueue()

    def on_partitions_assigned(self, places: Iterable[Any]) -> None:
        self._pause(*places)
        for one in places:
            self.new.put(Place(one.topic, one.partition))

    def on_partitions_revoked(self, places: Iterable[Any]) -> None:
        """Nothing: what is under way commits, or is fenced."""

    def on_partitions_lost(self, places: Iterable[Any]) -> None:
        """Nothing, likewise."""


class KafkaMember:
    """A member of a group, by kafka-python."""

    def __init__(
        self,
        cluster: Cluster,
        topics: Sequence[str],
        group: str,
        instance: str | None,
        settings: Mapping[str, Any],
    ) -> None:
        self._group, self._instance = group, instance
        options: dict[str, Any] = {
            **cluster.options(),
            "group_id": group, "group_instance_id": instance, "enable_auto_commit": False,
            "isolation_level": "read_committed", "auto_offset_reset": "none",
            "partition_assignment_strategy": (CooperativeStickyAssignor,),
            "session_timeout_ms": SESSION, "heartbeat_interval_ms": SESSION // 4,
            "max_poll_interval_ms": 60_000,
            "metadata_max_age_ms": METADATA, "max_partition_fetch_bytes": 4 * 1024 * 1024,
            "metrics_enabled": False, **settings,
        }  # fmt: skip
        self._client: Any = KafkaConsumer(**options)
        self._listener = _Listener(self._client.pause)
        self._client.subscribe(list(topics), listener=self._listener)

    def poll(self, seconds: float, limit: int) -> Messages:
        give_back_paused(self._client)
        take_up_join(self._client)
        try:
            found = self._client.poll(timeout_ms=int(seconds * 1000), max_records=limit)
        except NoOffsetForPartitionError:  # assigned, and not yet told where to begin
            return {}
        except (OffsetOutOfRangeError, LogTruncationError) as error:
            raise TopicMismatch(
                "a topic", f"it no longer has the records at an offset of group {self._group}: {error}",
                "run `pledger relay verify`, then rewind the group: `pledger consume rewind`",
            ) from error  # fmt: skip
        except KafkaError as error:
            raise KafkaUnavailable(f"polling failed: {error}") from error
        return {Place(one.topic, one.partition): records for one, records in found.items()}

    def assigned(self) -> list[Place]:
        found = []
        with suppress(queue.Empty):
            while True:
                found.append(self._listener.new.get_nowait())
        return found

    @property
    def assignment(self) -> Collection[Place]:
        return {Place(one.topic, one.partition) for one in self._client.assignment()}

    @property
    def is_joined(self) -> bool:
        return bool(self._client.group_metadata().generation_id >= 0)

    def begin(self, place: Place, offset: int) -> None:
        with suppress(KafkaError, KeyError, AssertionError):  # taken away meanwhile
            self._client.seek(TopicPartition(*place), offset)
            self._client.resume(TopicPartition(*place))

    def pause(self, places: Iterable[Place]) -> None:
        self._each(self._client.pause, places)

    def resume(self, places: Iterable[Place]) -> None:
        self._each(self._client.resume, places)

    def _each(self, act: Callable[..., None], places: Iterable[Place]) -> None:
        for place in places:
            with suppress(KafkaError, KeyError):  # taken away meanwhile
                act(TopicPartition(*place))

    def commit(self, offsets: Mapping[Place, int]) -> bool:
        told = {
            TopicPartition(*place): OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()
        }
        try:
            self._client.commit(told, timeout_ms=2_000)
        except FencedInstanceIdError as error:
            raise KafkaFailed(
                f"group {self._group}: another process runs as instance {self._instance}, so this one ends; "
                "give each process an instance of its own"
            ) from error
        except CommitFailedError:
            return False
        except KafkaError:
            pass
        return True

    def ends(self, places: Iterable[Place]) -> dict[Place, tuple[int, int]]:
        wanted = [TopicPartition(*place) for place in places]
        with kafka_errors("asking for offsets"):
            first = self._client.beginning_offsets(wanted, timeout_ms=10_000)
            end = self._client.end_offsets(wanted, timeout_ms=10_000)
        return {Place(one.topic, one.partition): (first[one], end[one]) for one in wanted}

    def behind(self, place: Place) -> int:
        partition = TopicPartition(*place)
        with suppress(KafkaError, KeyError, AssertionError, AttributeError):
            end = self._client.highwater(partition)
            state = self._client._subscription.assignment[partition]  # `position()` would ask the brokers
            if end is not None and state.position is not None:
                return max(0, int(end) - int(state.position.offset))
        return 0

    def close(self) -> None:
        with suppress(KafkaError, OSError):
            self._client.close(timeout_ms=3_000)
