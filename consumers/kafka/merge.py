"""
The events of all topics of a relay, merged into the order of the log again, with nothing missing.

A partition has its events in the order of the log, but a log is spread over many partitions of many topics.
The merge delivers an event once it knows that no earlier one can come:

- In a partition everything up to the last record that was read is known: the chain (`ce_ledgerprev`) proves
  that nothing is missing in between.
- A partition that is quiet says nothing. The relay's checkpoint does: it is written in the transaction that
  publishes the events, and names the position P up to which all are published, and the last position in each
  partition. Where that one was read, the partition has nothing more up to P.

So the watermark is the least of: P for each partition that was read up to its last position in the
checkpoint, else the position that was read. Events up to it are delivered, by position; the rest waits. The
partition that holds the watermark back has nothing waiting, so it is never paused, while those that are far
ahead are: memory stays flat however long the log is, and nothing stops. A checkpoint that is seen before the
records of its transaction, or after them, only holds the watermark back.

A topic's id and the offsets identify a history: topics are only appended to, and a ledger that is restored
to an earlier point needs topics of another prefix, on which the relay insists.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self
from uuid import UUID

from kafka import TopicPartition

from ledger import BadInput, ChainBroken, CursorMismatch, TopicMismatch, Undecodable

from .cluster import Cluster
from .envelope import Envelope, envelope_of
from .partitions import FULL, Partitions
from .relay.checkpoint import RelayCheckpoint, read_checkpoint
from .routes import Routes


class Spot(NamedTuple):
    """Where a reader stands in a partition: its next offset, and the position of the event before it."""

    next_offset: int = 0
    last_position: int = 0


@dataclass(frozen=True, slots=True)
class Places:
    """Where a reader of a prefix stands. ids: of the topics; spots: of the partitions that hold anything."""

    ids: Mapping[str, str] = field(default_factory=dict)
    spots: Mapping[TopicPartition, Spot] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The places that `str()` wrote; none for an empty text. Raises BadInput."""
        try:
            note = json.loads(text or "{}")
            spots = {
                TopicPartition(topic, int(n)): Spot(*spot)
                for topic, (_, parts) in note.items()
                for n, spot in parts.items()
            }
            return cls({topic: topic_id for topic, (topic_id, _) in note.items()}, spots)
        except (TypeError, ValueError, AttributeError):
            raise BadInput(f"{text!r} does not name places in topics") from None

    def __str__(self) -> str:
        note: dict[str, tuple[str, dict[int, Spot]]] = {name: (key, {}) for name, key in self.ids.items()}
        for place, spot in sorted(self.spots.items()):
            note[place.topic][1][place.partition] = spot
        return json.dumps(note, separators=(",", ":"))


def published(cluster: Cluster, routes: Routes) -> RelayCheckpoint:
    """What is published under a prefix. Raises TopicMismatch if nothing is, KafkaUnavailable."""
    found = read_checkpoint(cluster, routes)
    if found is None:
        raise TopicMismatch(
            routes.checkpoint, "no relay has published anything under this prefix",
            f"run `pledger relay run --prefix {routes.prefix}` first",
        )  # fmt: skip
    return found


class Merge:
    """Reads the topics of a prefix in the order of the log, from some places on.

    checkpoint: of `published`. begin: where to begin; by default at the beginning of all topics.

    It belongs to one thread; close it. Raises KafkaUnavailable while the cluster is away, after which
    another one begins at `places`; TopicMismatch where the topics are not those of the places; ChainBroken
    where a record is missing; Undecodable; CursorMismatch for an event of another ledger.
    """

    def __init__(
        self, cluster: Cluster, routes: Routes, checkpoint: RelayCheckpoint, begin: Places | None = None
    ) -> None:
        self.cluster, self.routes, self.checkpoint = cluster, routes, checkpoint
        self.ledger: UUID = checkpoint.cursor.ledger
        self.watermark = 0
        """The position up to which all events were delivered."""
        begin = begin or Places()
        self._checkpoints = TopicPartition(routes.checkpoint, 0)
        self._ids: dict[str, str] = {}
        self._spots: dict[TopicPartition, Spot] = {}
        self._read: dict[TopicPartition, int] = {}
        self._waiting: dict[TopicPartition, deque[tuple[int, Envelope]]] = {}
        self._partitions = Partitions(cluster)
        ends = self._partitions.ends([self._checkpoints])
        self._partitions.add({self._checkpoints: max(0, ends[self._checkpoints] - 1)})
        for topic, topic_id in begin.ids.items():
            self._check_id(topic, topic_id)
        self._add_topics(begin)

    def close(self) -> None:
        """Close the client."""
        self._partitions.close()

    @property
    def places(self) -> Places:
        """Where to go on after the events that were delivered."""
        return Places(dict(self._ids), dict(self._spots))

    def poll(self, seconds: float) -> list[Envelope]:
        """The next events in the order of the log, waiting for records so long at most; often none."""
        self._partitions.read(
            seconds, [place for place, events in self._waiting.items() if len(events) >= FULL]
        )
        self._take_checkpoints()
        for place in self._spots:
            self._take(place)
        self.watermark = self._known_upto()
        return self._deliver()

    # Reading

    def _take_checkpoints(self) -> None:
        records = self._partitions.waiting[self._checkpoints]
        if not records:
            return
        value = records[-1].value
        records.clear()
        self.checkpoint = RelayCheckpoint.read(self.routes.checkpoint, value)
        if self.checkpoint.cursor.ledger != self.ledger:
            raise CursorMismatch(
                f"topics of ledger {self.ledger} are now those of {self.checkpoint.cursor.ledger}"
            )
        self._add_topics(Places())

    def _add_topics(self, begin: Places) -> None:
        """Read the topics, too, that the checkpoint names and that are not read yet."""
        new = [chain.topic for name, chain in self.checkpoint.chains.items() if name not in self._ids]
        added = {}
        for topic in new:
            self._ids[topic.name] = topic.id
            for n in range(topic.partitions):
                place = TopicPartition(topic.name, n)
                spot = self._spots[place] = begin.spots.get(place, Spot())
                self._read[place], added[place] = spot.last_position, spot.next_offset
                self._waiting[place] = deque()
        if added:
            self._partitions.add(added)

    def _check_id(self, topic: str, topic_id: str) -> None:
        chain = self.checkpoint.chains.get(topic)
        if chain is None or chain.topic.id != topic_id:
            raise TopicMismatch(
                topic, "it is not the topic that was read before: it was made anew",
                "feed the views anew (--anew)",
            )  # fmt: skip

    def _take(self, place: TopicPartition) -> None:
        """Decode what a partition gave, leave out what is there twice, and check the chain."""
        records = self._partitions.waiting[place]
        while records:
            record = records.popleft()
            try:
                envelope = envelope_of(record.key, record.value, record.headers)
            except ValueError as error:
                raise Undecodable(place.topic, place.partition, record.offset, str(error)) from error
            if envelope.ledger != self.ledger:
                raise CursorMismatch(
                    f"a record of {place.topic} is of ledger {envelope.ledger}, not {self.ledger}"
                )
            if envelope.is_known(self._read[place]):
                continue
            if envelope.previous != self._read[place]:
                raise ChainBroken(
                    place.topic, place.partition, record.offset, self._read[place], envelope.previous
                )
            self._read[place] = envelope.event.position
            self._waiting[place].append((record.offset, envelope))

    # Merging

    def _lasts(self) -> Iterable[tuple[TopicPartition, int]]:
        """The last position of each partition, by the checkpoint."""
        for name, chain in self.checkpoint.chains.items():
            for n, last in enumerate(chain.last):
                yield TopicPartition(name, n), last

    def _known_upto(self) -> int:
        """The position up to which all events are here."""
        upto = self.checkpoint.cursor.position
        return min([upto, *(self._read[place] for place, last in self._lasts() if self._read[place] < last)])

    def _deliver(self) -> list[Envelope]:
        ready: list[Envelope] = []
        for place, waiting in self._waiting.items():
            while waiting and waiting[0][1].event.position <= self.watermark:
                offset, envelope = waiting.popleft()
                self._spots[place] = Spot(offset + 1, envelope.event.position)
                ready.append(envelope)
        return sorted(ready, key=lambda envelope: envelope.event.position)
