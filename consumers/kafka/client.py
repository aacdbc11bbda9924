"""
What a consumer asks of Kafka, and the one place where it calls kafka-python.

`Client` is a member of a group, `Transport` what makes one; MemoryBus is a transport too. Partitions are
assigned by the cooperative-sticky assignor: in a rebalance a member keeps those that it had. The client's
listener runs on its I/O thread, so it only pauses and notes.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple, Protocol

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

from .cluster import Cluster
from .topics import Topics


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class Message(Protocol):
    """A record of Kafka, as any client has it."""

    @property
    def topic(self) -> str:
        """The topic of Kafka."""

    @property
    def partition(self) -> int:
        """The partition, from 0."""

    @property
    def offset(self) -> int:
        """The place in the partition."""

    @property
    def key(self) -> bytes | None:
        """The key: the event's stream."""

    @property
    def value(self) -> bytes | None:
        """The value: the event's body."""

    @property
    def headers(self) -> Iterable[tuple[str, bytes]]:
        """The headers, as envelope.py lists them."""


Messages = Mapping[Place, Sequence[Message]]
"""What one poll brought, in order."""


class Letter(NamedTuple):
    """A record for a dead-letter topic."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]


class Client(Protocol):
    """A member of a consumer group. All of it is called by one thread."""

    def poll(self, seconds: float, limit: int) -> Messages:
        """The next records, at most so many.

        Raises KafkaUnavailable while the brokers are away, TopicMismatch.
        """

    def assigned(self) -> list[Place]:
        """The partitions that were assigned since the last call; they are paused."""

    @property
    def assignment(self) -> Collection[Place]:
        """All partitions of this member."""

    @property
    def is_joined(self) -> bool:
        """Whether it is in its group, be it without a partition."""

    def begin(self, place: Place, offset: int) -> None:
        """
        Read a partition from an offset on, and no longer pause it; nothing where it is no longer assigned.
        """

    def pause(self, places: Iterable[Place]) -> None:
        """Have polls bring nothing of these partitions."""

    def resume(self, places: Iterable[Place]) -> None:
        """The opposite of `pause`; leaves out what is no longer assigned."""

    def commit(self, offsets: Mapping[Place, int]) -> bool:
        """Tell the group's offsets to Kafka, for its tools. False where this member has lost its partitions.

        Errors of the brokers are ignored. Raises KafkaFailed where another process runs as the same instance.
        """

    def ends(self, places: Iterable[Place]) -> Mapping[Place, tuple[int, int]]:
        """The first offset and the next one of partitions. Raises KafkaUnavailable."""

    def behind(self, place: Place) -> int:
        """How many records of a partition were not yet polled, as far as the last answer told."""

    def close(self) -> None:
        """Leave the group."""


class Transport(Protocol):
    """Where topics are: a cluster, or a bus in memory."""

    def member(self, topics: Sequence[str], group: str, *, instance: str | None = None) -> Client:
        """A new member of a group.

        instance: the name under which it is a static member. Raises KafkaUnavailable.
        """

    def topic_ids(self, topics: Iterable[str]) -> Mapping[str, str]:
        """The ids of those of the topics that are there. Raises KafkaUnavailable."""

    def send_letters(self, letters: Sequence[Letter]) -> None:
        """Store records in dead-letter topics, made where they are missing. Raises KafkaFailed."""

    def close(self) -> None:
        """Close what is open."""


SESSION: Final = 10_000
"""Milliseconds without a heartbeat after which a member is taken to be gone."""


@contextmanager
def kafka_errors(doing: str) -> Iterator[None]:
    """Raise errors of kafka-python as KafkaUnavailable. doing: what failed, as the start of a sentence."""
    try:
        yield
    except KafkaError as error:
        raise KafkaUnavailable(f"{doing} failed: {error}") from error


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
            "max_partition_fetch_bytes": 4 * 1024 * 1024, "metrics_enabled": False, **settings,
        }  # fmt: skip
        self._client: Any = KafkaConsumer(**options)
        self._listener = _Listener(self._client.pause)
        self._client.subscribe(list(topics), listener=self._listener)

    def poll(self, seconds: float, limit: int) -> Messages:
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
