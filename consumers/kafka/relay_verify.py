"""
The proof that topics equal the ledger: count, order, content and chain of each partition.

The log is folded into the records that a relay must have published, and they are compared with what the
partitions hold, byte for byte: key, value, headers. Both sides are hashed along the way, so two proofs of
one ledger can be compared. What was published after the checkpoint is compared as well; what is not
published yet is no difference.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kafka import TopicPartition

from ledger import Ledger, Recorded

from .cluster import Cluster
from .envelope import Outgoing, envelope_of, record_of, source_of
from .merge import published
from .partitions import Partitions
from .relay.checkpoint import RelayCheckpoint
from .relay.producer import LIMITS
from .routes import Routes, partition_of
from .topics import Topics

PAGE: Final = 2_000
"""Events of the log that are read at once."""


class Difference(NamedTuple):
    """The first place where a topic differs from the ledger. offset, position: None where there is none."""

    topic: str
    partition: int
    offset: int | None
    position: int | None
    what: str


class Proof(NamedTuple):
    """What one partition holds. digest: SHA-256 over its records, in hexadecimal. last: its last position."""

    topic: str
    partition: int
    records: int
    last: int
    digest: str


@dataclass(frozen=True, slots=True)
class Verified:
    """The result: up to which position topics were compared, each partition, and the first difference."""

    position: int
    proofs: list[Proof]
    difference: Difference | None

    @property
    def records(self) -> int:
        """The number of records that equal events of the ledger."""
        return sum(proof.records for proof in self.proofs)


@dataclass(slots=True)
class _Partition:
    """A partition while it is compared. end: the offset at which it ended when the comparison began."""

    place: TopicPartition
    end: int
    last: int = 0
    records: int = 0
    digest: Any = field(default_factory=hashlib.sha256)

    def count(self, record: Outgoing) -> None:
        """Count a record that equals its event."""
        parts = [record.key, record.value or b""]
        parts += [part for name, value in record.headers for part in (name.encode(), value)]
        self.digest.update(b"".join(b"%d:%s" % (len(part), part) for part in parts))
        self.records += 1

    @property
    def proof(self) -> Proof:
        return Proof(self.place.topic, self.place.partition, self.records, self.last, self.digest.hexdigest())


class _Differs(Exception):
    """Carries the first difference."""


def verify(
    ledger: Ledger,
    cluster: Cluster,
    prefix: str = "ledger",
    *,
    seen: Callable[[int], None] = lambda position: None,
) -> Verified:
    """Prove that the topics below a prefix equal a ledger, or find the first difference.

    seen: called with the position from time to time. Raises TopicMismatch where nothing is published below
    the prefix, or topics were made anew since; CursorMismatch where they are of another ledger, or of a
    history that was rolled back; KafkaUnavailable, ServerUnavailable.
    """
    checkpoint = published(cluster, Routes(prefix))
    ledger.check_cursor(checkpoint.cursor)
    Topics(cluster).check(chain.topic for chain in checkpoint.chains.values())
    return Comparison(ledger, cluster, prefix, checkpoint, seen).run()


class Comparison:
    """Compares the topics of a prefix with a ledger, from the relay's checkpoint.

    Events after the checkpoint may be missing. seen: as in `verify`.
    """

    def __init__(
        self,
        ledger: Ledger,
        cluster: Cluster,
        prefix: str,
        checkpoint: RelayCheckpoint,
        seen: Callable[[int], None] = lambda position: None,
    ) -> None:
        self.ledger, self.routes, self.seen = ledger, Routes(prefix), seen
        self.start, self.upto = checkpoint.start, checkpoint.cursor.position
        self.source = source_of(ledger.identity.ledger)
        self._partitions = Partitions(cluster)
        found = Topics(cluster).below(prefix)
        self.sizes = {name: one.partitions for name, one in found.items() if self.routes.is_events(name)}
        places = [TopicPartition(name, n) for name, size in self.sizes.items() for n in range(size)]
        self._partitions.add(dict.fromkeys(places, 0))
        self._all = {place: _Partition(place, end) for place, end in self._partitions.ends(places).items()}

    def run(self) -> Verified:
        """Compare all; ends at the first difference."""
        difference, position = None, 0
        try:
            for event in self._events():
                position = event.position
                self._compare(event)
            for one in self._all.values():
                if (record := self._next(one)) is not None:
                    self._differs(one, record, None, "the ledger has no event for this record")
        except _Differs as found:
            (difference,) = found.args
        finally:
            self._partitions.close()
        proofs = [one.proof for _, one in sorted(self._all.items())]
        return Verified(position, proofs, difference)

    def _events(self) -> Iterator[Recorded]:
        """The log, up to the checkpoint, and on while a partition still has records."""
        after = self.start
        while events := self.ledger.log(after, self.ledger.bound(), PAGE):
            for event in events:
                if event.position > self.upto and not self._has_more():
                    return
                yield event
            after = events[-1].position
            self.seen(after)

    def _has_more(self) -> bool:
        waiting, position = self._partitions.waiting, self._partitions.position
        return any(waiting[place] or position(place) < one.end for place, one in self._all.items())

    def _compare(self, event: Recorded) -> None:
        topic = self.routes.topic_of(event.stream)
        if topic not in self.sizes:
            if event.position > self.upto:
                return
            raise _Differs(Difference(topic, 0, None, event.position, "the topic is missing"))
        number = partition_of(event.stream.encode(), self.sizes[topic])
        one = self._all[TopicPartition(topic, number)]
        record = self._next(one, must=event.position <= self.upto)
        if record is None:
            if event.position > self.upto:
                return
            self._differs(one, None, event, "this event is missing: the partition ends before it")
        expected = record_of(event, one.last, self.source, topic, number)
        if (record.key, record.value or b"", list(record.headers)) != (
            expected.key, expected.value or b"", expected.headers,
        ):  # fmt: skip
            self._differs(one, record, event, self._reason(one, record, expected, event))
        one.last = event.position
        one.count(expected)

    def _next(self, one: _Partition, *, must: bool = False) -> Any:
        """The next record of a partition; None behind the last. must: there shall be one, so look again."""
        if self._partitions.read_until(one.place, one.end) or (must and self._came(one)):
            return self._partitions.waiting[one.place].popleft()
        return None

    def _came(self, one: _Partition) -> bool:
        """Whether a record comes that must be there: what was committed just now may not be readable yet."""
        deadline = time.monotonic() + LIMITS.transaction
        while True:
            one.end = self._partitions.ends([one.place])[one.place]
            if self._partitions.read_until(one.place, one.end):
                return True
            if self._partitions.is_settled(one.place) or time.monotonic() > deadline:
                return False
            self._partitions.read(0.05)

    def _differs(self, one: _Partition, record: Any, event: Recorded | None, what: str) -> None:
        offset = None if record is None else record.offset
        position = event.position if event is not None else _position(record)
        raise _Differs(Difference(one.place.topic, one.place.partition, offset, position, what))

    def _reason(self, one: _Partition, record: Any, expected: Outgoing, event: Recorded) -> str:
        """In which way a record is not that of the event which comes next in its partition."""
        try:
            found = envelope_of(record.key, record.value, record.headers)
        except ValueError as error:
            return f"the record is no event: {error}"
        if found.ledger != self.ledger.identity.ledger:
            return f"the record is of another ledger, {found.ledger}"
        position = found.event.position
        if position != event.position:
            if position <= one.last:
                return f"event {position} stands here a second time, where event {event.position} belongs"
            if self.ledger.event_at(position) is None:
                return f"the ledger has no event {position}, which stands here before event {event.position}"
            later = [_position(each) for each in self._partitions.waiting[one.place]]
            if event.position in later:
                return (
                    f"event {position} stands here, before event {event.position}: the order is another one"
                )
            return f"event {event.position} is missing: event {position} stands in its place"
        return f"its {_differing(record, expected)}"


def _position(record: Any) -> int | None:
    value = dict(record.headers).get("ce_ledgerposition", b"")
    return int(value) if value.isdigit() else None


def _differing(record: Any, expected: Outgoing) -> str:
    """Which part of a record differs from what was expected."""
    if record.key != expected.key:
        return f"key is {record.key!r}, and the stream is {expected.key!r}"
    if (record.value or b"") != (expected.value or b""):
        return "body differs from the event's"
    found: Mapping[str, bytes] = dict(record.headers)
    wanted = dict(expected.headers)
    name = next((n for n in [*wanted, *found] if found.get(n) != wanted.get(n)), "order of headers")
    return f"header {name} is {found.get(name)!r} where the ledger says {wanted.get(name)!r}"
