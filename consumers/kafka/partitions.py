"""Reading partitions without a consumer group: each from an offset of the reader's own choice."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError, OffsetOutOfRangeError

from ledger import KafkaUnavailable, TopicMismatch

from .cluster import Cluster

FULL: Final = 2_000
"""Records of one partition that wait to be taken; then it is paused, so that memory stays flat."""
FETCH: Final = 256 * 1024
"""Bytes of one partition that are read at once."""


class Partitions:
    """Records of partitions, read ahead a little; each partition is taken in its own order.

    Only records of committed transactions are read. It belongs to one thread. Raises KafkaUnavailable where
    Kafka is away, TopicMismatch where records are gone.
    """

    def __init__(self, cluster: Cluster) -> None:
        with _errors(cluster):
            self._consumer: Any = KafkaConsumer(
                **cluster.options()
                | {
                    "enable_auto_commit": False,
                    "auto_offset_reset": "none",
                    "isolation_level": "read_committed",
                    # A poll takes all that was fetched: what it left of a partition that is paused then would
                    # not come while no other partition gets records (kafka-python 3.0.12).
                    "max_poll_records": 1_000_000,
                    "max_partition_fetch_bytes": FETCH,
                    "fetch_max_bytes": 32 * FETCH,
                    "metrics_enabled": False,
                }
            )
        self.cluster = cluster
        self.waiting: dict[TopicPartition, deque[Any]] = {}
        """The records that were read and not taken, by partition."""

    def close(self) -> None:
        """Close the client, without waiting."""
        with _errors(self.cluster):
            self._consumer.close(timeout_ms=0)

    def add(self, places: Mapping[TopicPartition, int]) -> None:
        """Read these partitions too, each from an offset."""
        with _errors(self.cluster):
            self._consumer.assign([*self.waiting, *places])
            for place, offset in places.items():
                self.waiting[place] = deque()
                self._consumer.seek(place, offset)

    def ends(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset behind the last committed record of each partition."""
        with _errors(self.cluster):
            found: dict[TopicPartition, int] = self._consumer.end_offsets(list(places))
            return found

    def position(self, place: TopicPartition) -> int:
        """The offset up to which a partition was read, with what is waiting."""
        with _errors(self.cluster):
            return int(self._consumer.position(place))

    def is_settled(self, place: TopicPartition) -> bool:
        """Whether all that was written up to the last answer was read, so no transaction was under way."""
        with _errors(self.cluster):
            written = self._consumer.highwater(place)
        return written is not None and self.position(place) >= int(written)

    def read(self, seconds: float, full: Iterable[TopicPartition] = ()) -> bool:
        """Read more records, waiting for them; whether any came. full: partitions of which nothing is read.

        Those of which FULL records wait are full, too.
        """
        with _errors(self.cluster):
            full = {place for place, records in self.waiting.items() if len(records) >= FULL}.union(full)
            paused = self._consumer.paused()
            self._consumer.pause(*(full - paused))
            self._consumer.resume(*(paused - full))
            came = self._consumer.poll(timeout_ms=int(seconds * 1000))
        for place, records in came.items():
            self.waiting[place].extend(records)
        return bool(came)

    def read_until(self, place: TopicPartition, end: int, seconds: float = 30.0) -> bool:
        """Read until a record of a partition waits; False if there is none before the offset `end`."""
        deadline = time.monotonic() + seconds
        while not self.waiting[place]:
            if self.position(place) >= end:
                return False
            if self.read(0.5):
                deadline = time.monotonic() + seconds
            elif time.monotonic() > deadline:
                raise KafkaUnavailable(
                    f"partition {place.partition} of {place.topic} gave no record for {seconds:g} s, "
                    f"though it has some up to offset {end}"
                )
        return True


@contextmanager
def _errors(cluster: Cluster) -> Iterator[None]:
    """Raise the ledger's error for one of the client's."""
    try:
        yield
    except OffsetOutOfRangeError as error:
        place, offset = next(iter(error.args[0].items()), (None, None)) if error.args else (None, None)
        raise TopicMismatch(
            getattr(place, "topic", "?"), f"the record at offset {offset} is gone",
            "topics of events are kept for ever (retention.ms=-1); publish the log anew under another prefix",
        ) from error  # fmt: skip
    except (KafkaError, OSError) as error:
        raise KafkaUnavailable(cluster.diagnose() or f"{type(error).__name__}: {error}") from error
