"""
A bus in memory, for tests of your own handlers: topics, partitions and groups as Kafka has them, with faults
from a seed.

    bus = MemoryBus(seed=7, faults=Faults(duplicates=0.1, rebalances=20, crashes=10))
    bus.publish("lsm.strip/a", "lsm.strip.completed", {"tiles": 4})
    bus.drain(count, dsn, members=2)          # until all is applied; then look at what your handler wrote

The consumers are real, and their effects and offsets are in a real PostgreSQL; only Kafka is not there. It
knows no transactions and no time. The same tests hold it and a real broker to one contract
(tests/kafka/test_consumer_contract.py).
"""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from pydantic import BaseModel

from ledger import Recorded
from ledger.domain import canonical_json
from ledger.errors import KafkaFailed

from ..envelope import record_of, source_of
from ..routes import Routes, partition_of
from .client import Letter, Messages, Place
from .consumer import Consumer
from .handler import Handler
from .offsets import SCHEMA, Offsets
from .parking import Parking

LEDGER: Final = UUID("00000000-0000-4000-8000-000000000001")
"""The ledger that recorded what is published here."""
PAUSE: Final = 0.005
"""Seconds that an empty poll takes."""


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong. Each number is how often at most, in one `drain`.

    duplicates: the share of records that are in the topic twice. rebalances: partitions are dealt anew;
    whoever had them is not told, and goes on with what it has. crashes: a member dies, after an effect and
    before its commit, or after the commit. delays: a poll brings nothing though there are records.
    """

    duplicates: float = 0.0
    rebalances: int = 0
    crashes: int = 0
    delays: int = 0


class Crash(BaseException):
    """A member of a MemoryBus dies, as by SIGKILL: no handler of errors sees it."""


class MemoryRecord(NamedTuple):
    """A record of a MemoryBus."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]


class MemoryBus:
    """Topics in memory; a Consumer takes it in place of a cluster.

    partitions: of each topic. prefix: of the topics' names. seed: of the faults; which thread meets which
    fault is up to the machine. letters: what was sent to dead-letter topics.
    """

    def __init__(
        self, *, partitions: int = 3, prefix: str = "ledger", seed: int = 0, faults: Faults = Faults()
    ) -> None:
        self.partitions, self.routes, self.faults = partitions, Routes(prefix), faults
        self.records: defaultdict[Place, list[MemoryRecord]] = defaultdict(list)
        self.letters: list[Letter] = []
        self._chance = random.Random(seed)
        self._left = {"rebalances": faults.rebalances, "crashes": faults.crashes, "delays": faults.delays}
        self._last: defaultdict[Place, int] = defaultdict(int)
        self._versions: defaultdict[str, int] = defaultdict(int)
        self._position = 0
        self._topics: set[str] = set()
        self._groups: defaultdict[str, list[MemoryMember]] = defaultdict(list)
        self._lock = threading.RLock()

    # What tests put in

    def publish(
        self, stream: str, topic: str, body: BaseModel | Mapping[str, Any], *, schema: int = 1
    ) -> Recorded:
        """Add an event to the topic of its stream; returns it as a ledger would have recorded it."""
        plain = body.model_dump(mode="json") if isinstance(body, BaseModel) else dict(body)
        with self._lock:
            self._position += 1
            self._versions[stream] += 1
            event = Recorded(
                self._position, stream, self._versions[stream], topic, schema, canonical_json.body(plain),
                None, None,
                datetime.now(UTC),
            )  # fmt: skip
            self.publish_recorded(event)
        return event

    def publish_recorded(self, *events: Recorded) -> None:
        """Add events of a ledger, in order of their positions."""
        with self._lock:
            for event in events:
                topic = self.routes.topic_of(event.stream)
                place = Place(topic, partition_of(event.stream.encode(), self.partitions))
                out = record_of(event, self._last[place], source_of(LEDGER), *place)
                self._last[place] = self._position = event.position
                for _ in range(1 + (self._chance.random() < self.faults.duplicates)):
                    self.add(place, out.key, out.value, list(out.headers))

    def add(
        self, place: Place, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes]]
    ) -> None:
        """Add a record as it is: one that is no event, for instance."""
        with self._lock:
            self._topics.add(place.topic)
            records = self.records[place]
            records.append(MemoryRecord(*place, len(records), key, value, headers))

    # What consumers ask

    def member(self, topics: Sequence[str], group: str, *, instance: str | None = None) -> MemoryMember:
        """A new member of a group; another one of the same instance is displaced."""
        with self._lock:
            member = MemoryMember(self, group, topics, instance)
            for other in self._groups[group]:
                other.displaced |= instance is not None and other.instance == instance
            self._groups[group] = [one for one in self._groups[group] if not one.displaced] + [member]
            self.rebalance(group)
        return member

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The ids of topics: their names."""
        return {topic: topic for topic in topics}

    def send_letters(self, letters: Sequence[Letter]) -> None:
        """Keep dead letters."""
        self.letters += letters

    def close(self) -> None:
        """Nothing is open."""

    def rebalance(self, group: str) -> None:
        """Deal the partitions of a group anew; nobody is told before its next poll."""
        with self._lock:
            members = list(self._groups[group])
            self._chance.shuffle(members)
            for member in members:
                member.wanted = set()
            topics = sorted({topic for member in members for topic in member.topics})
            for nr, place in enumerate(Place(t, p) for t in topics for p in range(self.partitions)):
                able = [one for one in members if place.topic in one.topics]
                able[nr % len(able)].wanted.add(place)

    def leave(self, member: MemoryMember) -> None:
        """Take a member out of its group."""
        with self._lock:
            if member in self._groups[member.group]:
                self._groups[member.group].remove(member)
                self.rebalance(member.group)

    def strikes(self, fault: str, chance: float) -> bool:
        """Whether a fault happens now; no more often than `faults` says."""
        with self._lock:
            if self._left[fault] <= 0 or self._chance.random() >= chance:
                return False
            self._left[fault] -= 1
            return True

    # Running to the end

    def drain(
        self,
        handler: Handler,
        dsn: str | None = None,
        *,
        members: int = 1,
        seconds: float = 60.0,
        **options: Any,
    ) -> None:
        """Run members of the handler's group until all records are applied; one that crashes is started
        again.

        Events that wait for another attempt are waited for; dead letters are not. options: of each Consumer.
        Raises what ends a consumer, and TimeoutError.
        """
        stop, errors = threading.Event(), list[BaseException]()
        mortal = self._mortal(handler)

        def lives() -> None:
            try:
                while not stop.is_set():
                    with suppress(Crash):
                        Consumer(self, mortal, dsn, **options).run(stop)
            except BaseException as error:
                errors.append(error)
                stop.set()

        threads = [threading.Thread(target=lives, daemon=True) for _ in range(members)]
        with _joined(threads, stop):
            self._wait(handler, dsn, options.get("schema", SCHEMA), stop, seconds)
        for error in errors:
            raise error

    def _mortal(self, handler: Handler) -> Handler:
        """The handler, after whose effect its member may die."""

        def handle(event: Any, transaction: Any) -> None:
            handler.handle(event, transaction)
            if self.strikes("crashes", 0.1):
                raise Crash

        return replace(handler, handle=handle)

    def _wait(
        self, handler: Handler, dsn: str | None, schema: str, stop: threading.Event, seconds: float
    ) -> None:
        """Wait until the group's offsets are at the end and no event waits."""
        watcher = Consumer(self, handler, dsn, schema=schema)
        deadline = time.monotonic() + seconds
        try:
            watcher.make_tables()
            connection = watcher.processing.connection()
            while not stop.wait(0.02):
                at = Offsets(handler.group, schema).all(connection)
                ends = {
                    place: len(some) for place, some in self.records.items() if place.topic in handler.topics
                }
                waiting = Parking(handler.group, schema).counts(connection).get("waiting", 0)
                if not waiting and all(p in at and at[p][1].next_offset >= end for p, end in ends.items()):
                    return
                if time.monotonic() > deadline:
                    raise TimeoutError(f"after {seconds:g} s: at {at} of {ends}, {waiting} events wait")
        finally:
            watcher.processing.close()


@contextmanager
def _joined(threads: Sequence[threading.Thread], stop: threading.Event) -> Iterator[None]:
    """Run threads while the block runs."""
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


class MemoryMember:
    """A member of a group on a MemoryBus."""

    def __init__(self, bus: MemoryBus, group: str, topics: Sequence[str], instance: str | None) -> None:
        self.bus, self.group, self.topics, self.instance = bus, group, tuple(topics), instance
        self.wanted: set[Place] = set()
        self.displaced = False
        self._assignment: set[Place] = set()
        self._new: list[Place] = []
        self._paused: set[Place] = set()
        self._next: dict[Place, int] = {}

    def poll(self, seconds: float, limit: int) -> Messages:
        """The next records. Raises Crash."""
        bus = self.bus
        if bus.strikes("rebalances", 0.2):
            bus.rebalance(self.group)
        with bus._lock:
            self._take()
            found = {} if bus.strikes("delays", 0.3) else self._records(limit)
        if found and bus.strikes("crashes", 0.1):
            raise Crash
        if not found:
            time.sleep(min(seconds, PAUSE))
        return found

    def _take(self) -> None:
        """Take what was dealt."""
        new = self.wanted - self._assignment
        self._new += sorted(new)
        self._paused |= new
        for place in new | (self._assignment - self.wanted):
            self._next.pop(place, None)
        self._assignment = set(self.wanted)

    def _records(self, limit: int) -> dict[Place, list[MemoryRecord]]:
        found: dict[Place, list[MemoryRecord]] = {}
        for place in sorted(self._next.keys() - self._paused):
            start = self._next[place]
            if some := self.bus.records[place][start : start + limit]:
                found[place] = some
                self._next[place] += len(some)
                limit -= len(some)
            if not limit:
                break
        return found

    def assigned(self) -> list[Place]:
        """The partitions that were assigned since the last call; they are paused."""
        new, self._new = self._new, []
        return new

    @property
    def assignment(self) -> Collection[Place]:
        """All partitions of this member."""
        return set(self._assignment)

    @property
    def is_joined(self) -> bool:
        """Whether it is in its group."""
        return not self.displaced

    def begin(self, place: Place, offset: int) -> None:
        """Read a partition from an offset on."""
        if place in self._assignment:
            self._next[place] = offset
            self._paused.discard(place)

    def pause(self, places: Iterable[Place]) -> None:
        """Have polls bring nothing of these partitions."""
        self._paused |= set(places)

    def resume(self, places: Iterable[Place]) -> None:
        """The opposite of `pause`."""
        self._paused -= set(places)

    def commit(self, offsets: Mapping[Place, int]) -> bool:
        """Whether this member still has its partitions. Raises KafkaFailed where it was displaced."""
        if self.displaced:
            raise KafkaFailed(f"group {self.group}: another process runs as instance {self.instance}")
        return offsets.keys() <= self.wanted

    def ends(self, places: Iterable[Place]) -> dict[Place, tuple[int, int]]:
        """The first offset and the next one of partitions."""
        return {place: (0, len(self.bus.records[place])) for place in places}

    def behind(self, place: Place) -> int:
        """How many records of a partition were not yet polled."""
        return len(self.bus.records[place]) - self._next.get(place, 0)

    def close(self) -> None:
        """Leave the group."""
        self.bus.leave(self)
