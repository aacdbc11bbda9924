"""
The relay: publishes the log to Kafka, each event once, and those of a stream in their order.

A life of a relay is: be elected; fence all predecessors; *then* read the checkpoint; then publish block after
block, each in one Kafka transaction with the checkpoint behind it. Whatever goes wrong ends the life, and the
next one learns from the checkpoint what came of the last block. What a person must decide ends the relay.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final, Protocol, Self

from consumers.election import Candidate
from ledger import (
    BadInput,
    Cursor,
    KafkaUnavailable,
    Ledger,
    NoPermission,
    Recorded,
    ServerUnavailable,
    TopicMismatch,
)
from ledger.jobs.leases import Leases
from ledger.roles import require_roles
from projections.engine.follower import Follower

from ..cluster import Cluster
from ..envelope import Outgoing, record_of, source_of
from ..routes import ROUTING, Routes, partition_of
from ..topics import COMPACTED, PARTITIONS, Topics
from .checkpoint import Chain, RelayCheckpoint, has_records, read_checkpoint
from .producer import Transactions

BLOCK_EVENTS: Final = 1000
BLOCK_BYTES: Final = 512 * 1024
"""A block is full with so many events, or so many bytes of bodies."""
MAX_WAIT: Final = 0.005
"""Seconds between two reads of a quiet log."""
FIRST_PAUSE, MAX_PAUSE = 0.1, 5.0
"""Seconds before the next life; doubled after a life that published nothing."""
LEASE: Final = 3.0
"""Seconds that an election holds without a renewal; then another relay follows one that is frozen."""
_MAX_PLACES: Final = 100_000

_log = logging.getLogger(__name__)


class Derived(Protocol):
    """Records that follow from events, published in the same transaction as they."""

    def begin(self, after: int) -> None:
        """A life begins: the next records are those of the events after this position."""
        ...

    def topics(self, routes: Routes, domains: Iterable[str]) -> Mapping[str, int | None]:
        """The topics for events of these domains, each with its number of partitions; None: as for events.

        They are created compacted.
        """
        ...

    def records(self, events: Sequence[Recorded], partitions: Mapping[str, int]) -> Iterable[Outgoing]:
        """The records that a block of events leads to. partitions: of each of the topics."""
        ...


@dataclass
class RelayStatistics:
    """What a relay has done since it was started.

    published: the position up to which the log is published. error: why the last life ended.
    """

    lives: int = 0
    blocks: int = 0
    events: int = 0
    published: int = 0
    error: str | None = None


class Relay:
    """Publishes a ledger's log below a prefix of a cluster.

    name: whose checkpoint it is; a prefix has one relay, which may run in several processes. partitions,
    replicas: of new topics. start: publish the events after this position; only where nothing was published
    yet. compression: as in Transactions. lease: seconds after which another process follows one that is gone.
    derived: see Derived.
    """

    def __init__(
        self,
        ledger: Ledger,
        cluster: Cluster,
        name: str = "main",
        prefix: str = "ledger",
        *,
        partitions: int = PARTITIONS,
        replicas: int = -1,
        start: int | None = None,
        compression: str | None = None,
        block_events: int = BLOCK_EVENTS,
        lease: float = LEASE,
        derived: Sequence[Derived] = (),
    ) -> None:
        if not name:
            raise BadInput("a relay needs a name, such as 'main'")
        self.ledger, self.cluster, self.name, self.routes = ledger, cluster, name, Routes(prefix)
        self.topics = Topics(cluster, partitions=partitions, replicas=replicas)
        self.start, self.compression, self.block_events = start, compression, block_events
        self.lease, self.derived = lease, tuple(derived)
        self.statistics = RelayStatistics()

    def run(
        self,
        stop: threading.Event,
        until: int | None = None,
        published: Callable[[RelayStatistics], None] = lambda _: None,
    ) -> None:
        """Publish until `stop` is set, or until all events up to the position `until` are published.

        published: called after each block. Outages of PostgreSQL and Kafka are waited for.
        Raises TopicMismatch, CursorMismatch, NoPermission: a person must decide.
        """
        require_roles(self.ledger, "pledger relay run")
        candidate = Candidate(Leases(self.ledger), election_of(self.routes), self.lease)
        with candidate.standing():
            pause = FIRST_PAUSE
            while candidate.term(stop) is not None:
                before = self.statistics.blocks
                try:
                    with Life(self, candidate, published) as life:
                        if life.publish_log(stop, until):
                            return
                except NoPermission:
                    raise
                except (KafkaUnavailable, ServerUnavailable) as error:
                    self.statistics.error = str(error)
                    _log.warning("life %d of relay %s ended: %s", self.statistics.lives, self.name, error)
                pause = FIRST_PAUSE if self.statistics.blocks > before else min(pause * 2, MAX_PAUSE)
                stop.wait(pause)


class Life:
    """A life of a relay: from the fence to the first error, or to the end of its election."""

    checkpoint: RelayCheckpoint
    producer: Transactions

    def __init__(
        self, relay: Relay, candidate: Candidate, published: Callable[[RelayStatistics], None]
    ) -> None:
        self.relay, self.candidate, self.published = relay, candidate, published
        self.ledger = relay.ledger.identity.ledger
        self._source = source_of(self.ledger)
        self._places: dict[str, tuple[str, int]] = {}  # topic and partition of streams
        self._derived: dict[str, int] = {}
        self._begun: Sequence[Recorded] = ()

    def __enter__(self) -> Self:
        relay, routes = self.relay, self.relay.routes
        relay.statistics.lives += 1
        relay.topics.ensure(routes.checkpoint, COMPACTED, partitions=1)
        if relay.statistics.lives == 1:  # refuse before another ledger's relay is fenced
            self._checked(read_checkpoint(relay.cluster, routes))
        self.producer = Transactions(relay.cluster, routes.transactional_id, compression=relay.compression)
        try:
            self.producer.fence()
            self.checkpoint = self._checked(read_checkpoint(relay.cluster, routes))
            self._derive(self.checkpoint.chains)
            for derived in relay.derived:
                derived.begin(max(self.checkpoint.cursor.position, self.checkpoint.start))
        except BaseException:
            self.producer.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.producer.close()

    def publish_log(self, stop: threading.Event, until: int | None) -> bool:
        """Publish what the log has and gets. True once it is done; False if the election is over."""
        relay, at = self.relay, self.checkpoint.cursor
        relay.statistics.published = at.position
        if until is not None and at.position >= until:
            return True
        after = at if at.mark else self.checkpoint.start
        follower = Follower(relay.ledger, after, batch=relay.block_events, longest_pause=MAX_WAIT)
        bound = 0  # as before the last read; behind the last event, positions may have been given back
        for events in follower.batches(stop, empty=True):
            wanted = events if until is None else [event for event in events if event.position <= until]
            for block in blocks_of(wanted):
                self._publish(block)
            is_done = until is not None and until <= max(follower.position, 0 if events else bound)
            if is_done or not events:  # else the next block is prepared while this one is on its way
                self._finish()
            if is_done:
                return True
            if until is not None and not events:
                bound = relay.ledger.bound()
            if not self.candidate.is_elected:
                self._finish()
                return False
        self._finish()
        return True

    # A block

    def _publish(self, block: Sequence[Recorded]) -> None:
        chains = self._with_places(block)
        last = {name: list(chain.last) for name, chain in chains.items()}
        counts = {name: chain.count for name, chain in chains.items()}
        records = []
        for event in block:
            topic, partition = self._places[event.stream]
            before = last[topic]
            records.append(record_of(event, before[partition], self._source, topic, partition))
            before[partition] = event.position
            counts[topic] += 1
        for derived in self.relay.derived:
            records += derived.records(block, self._derived)
        chains = {
            name: replace(chain, last=tuple(last[name]), count=counts[name]) for name, chain in chains.items()
        }
        checkpoint = self.checkpoint.moved(Cursor.after(self.ledger, block[-1]), chains, len(block))
        records.append(checkpoint.record(self.relay.routes.checkpoint))
        self._finish()
        self.producer.begin(records)
        self.checkpoint, self._begun = checkpoint, block

    def _finish(self) -> None:
        """Wait until the block that was begun is published."""
        block, self._begun = self._begun, ()
        if not block:
            return
        self.producer.finish()
        statistics = self.relay.statistics
        statistics.blocks += 1
        statistics.events += len(block)
        statistics.published = block[-1].position
        statistics.error = None
        self.published(statistics)

    def _with_places(self, block: Sequence[Recorded]) -> dict[str, Chain]:
        """The chains of all topics, after each stream of a block got its place; new topics are created."""
        chains, streams = dict(self.checkpoint.chains), {event.stream for event in block}
        if len(self._places) > _MAX_PLACES:
            self._places.clear()
        topics = {stream: self.relay.routes.topic_of(stream) for stream in streams - self._places.keys()}
        if fresh := set(topics.values()) - chains.keys():
            chains |= {name: self._new_chain(name) for name in sorted(fresh)}
            self._derive(chains)
        for stream, topic in topics.items():
            self._places[stream] = topic, partition_of(stream.encode(), len(chains[topic].last))
        return chains

    def _new_chain(self, name: str) -> Chain:
        topic, is_new = self.relay.topics.ensure(name)
        if not is_new and has_records(self.relay.cluster, topic):
            raise TopicMismatch(
                name, "the topic has records, but the relay's checkpoint does not know it",
                "delete the topic, or choose another --prefix",
            )  # fmt: skip
        return Chain(topic, (0,) * topic.partitions)

    def _derive(self, chains: Iterable[str]) -> None:
        """Make the topics of derived records for the topics of events."""
        domains = [name.rpartition(".")[2] for name in chains]
        for derived in self.relay.derived:
            for name, partitions in derived.topics(self.relay.routes, domains).items():
                if name not in self._derived:
                    topic, _ = self.relay.topics.ensure(name, COMPACTED, partitions)
                    self._derived[name] = topic.partitions

    # The checkpoint

    def _checked(self, found: RelayCheckpoint | None) -> RelayCheckpoint:
        """The checkpoint to go on from. Raises TopicMismatch where it is not this relay's."""
        relay = self.relay
        prefix, other = relay.routes.prefix, "choose another --prefix"
        if found is None:
            return RelayCheckpoint(relay.name, Cursor(self.ledger), relay.start or 0, 0, {})
        if found.cursor.ledger != self.ledger:
            differs = f"its topics are those of ledger {found.cursor.ledger}, this is {self.ledger}"
            raise TopicMismatch(prefix, differs, other)
        if found.relay != relay.name:
            differs = f"its topics are published by the relay '{found.relay}', not by '{relay.name}'"
            raise TopicMismatch(prefix, differs, f"name it --name {found.relay}, or {other}")
        if found.routing != ROUTING:
            differs = f"its streams were routed by rule {found.routing}, this relay has rule {ROUTING}"
            raise TopicMismatch(prefix, differs, "run the version of the relay that began it, or " + other)
        if relay.start is not None and found.start != relay.start:
            differs = f"its topics begin after position {found.start}, not after {relay.start}"
            raise TopicMismatch(prefix, differs, other)
        relay.topics.check(chain.topic for chain in found.chains.values())
        return found


def election_of(routes: Routes) -> str:
    """The name under which a ledger elects the relay of a prefix."""
    return f"relay {routes.prefix}"


def blocks_of(events: Sequence[Recorded]) -> Iterator[Sequence[Recorded]]:
    """The events in blocks, each ended by the event with which it has BLOCK_BYTES."""
    begin = size = 0
    for index, event in enumerate(events, 1):
        size += len((event.raw if event.data is None else event.data) or "")
        if size >= BLOCK_BYTES:
            yield events[begin:index]
            begin, size = index, 0
    if begin < len(events):
        yield events[begin:]
