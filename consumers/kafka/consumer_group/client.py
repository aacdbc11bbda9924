"""
What a consumer asks of Kafka: a member of a group, and what makes one.

A cluster (kafka_member.py) and a MemoryBus are such transports.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol


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
