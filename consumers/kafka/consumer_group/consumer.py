"""
A consumer: a member of a group that hands the events of Kafka topics to a handler, each exactly once.

    Consumer(cluster, count, dsn).run(stop)

Effects and offsets are stored in one transaction (see processing.py); where offsets begin is read there, too,
and never from Kafka. The loop only polls: the work is done in a thread beside it. Where that takes long, all
partitions are paused and the loop goes on polling, so that the member stays in its group however long a
handler works. While brokers or the database are away it waits, and goes on.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import wait
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import psycopg

from ledger import Ledger
from ledger.errors import KafkaFailed, KafkaUnavailable
from ledger.log.connection import opened
from ledger.log.dsn import awake, resolve

from .client import Client, Messages, Place, Transport
from .dead_letters import publish
from .handler import Handler
from .metrics import ConsumerMetrics
from .offsets import SCHEMA, Offset, make_tables
from .parking import Tried
from .processing import Connection, Outcome, Processing, Round, round_of
from .runner import Runner

if TYPE_CHECKING:
    from ..cluster import Cluster

T = TypeVar("T")
GRACE: Final = 0.5
"""Seconds that work may take until the partitions are paused and the loop polls beside it."""
COMMITTING: Final = 1.0
"""Seconds between two commits to the group; they also tell a member that it was displaced."""
RETRYING: Final = 0.25
"""Seconds between two looks for parked events that are due."""
POLLING: Final = 0.2
"""Seconds that a poll waits for records."""
TELLING: Final = 1.0
"""Seconds between two looks at the lag."""
SILENT: Final = 30.0
"""Seconds without a poll after which a consumer is not ready."""
LONGEST_PAUSE: Final = 2.0
"""Seconds between two attempts while brokers or the database are away."""

_log = logging.getLogger(__name__)


class _Stopped(Exception):
    """The consumer was stopped before this was done; it was rolled back."""


def _transport(cluster: Cluster | Transport, client: dict[str, Any]) -> Transport:
    if hasattr(cluster, "member"):
        return cast("Transport", cluster)
    from .kafka_member import KafkaTransport  # kafka-python, which a MemoryBus can do without

    return KafkaTransport(cluster, **client)


class Consumer:
    """Runs a handler.

    cluster: where the topics are; a Cluster, or a MemoryBus. dsn: the database of the handler's effects, in
    whose schema `schema` the offsets are; the tables are made. concurrency: how many keys are handled at
    once, each in a thread with a connection of its own. batch: records a poll brings at most, and so events a
    transaction has. instance: the name of this process as a static member: one that is back within the
    session takes its partitions again, without a rebalance. ledger: where bodies are read that were too large
    for a record. drain: seconds that the work under way gets after a stop. idle: seconds that a handler may
    leave its transaction idle, after which the server ends it; so a process that froze holds up its successor
    no longer. client: further settings of kafka-python's consumer.
    """

    def __init__(
        self,
        cluster: Cluster | Transport,
        handler: Handler,
        dsn: str | None = None,
        *,
        schema: str = SCHEMA,
        concurrency: int = 1,
        batch: int = 500,
        instance: str | None = None,
        ledger: Ledger | None = None,
        drain: float = 30.0,
        idle: float = 300.0,
        metrics: ConsumerMetrics | None = None,
        client: dict[str, Any] | None = None,
    ) -> None:
        self.handler, self.schema, self.batch, self.instance = handler, schema, batch, instance
        self.transport = _transport(cluster, client or {})
        self.metrics = metrics or ConsumerMetrics(handler.group)
        self.drain, self._idle = drain, idle
        self._dsn, self._conninfo = dsn, ""
        fetch = None if ledger is None else ledger.event_at
        self.processing = Processing(
            handler, self._connect, schema=schema, concurrency=concurrency, fetch=fetch
        )
        self.at: dict[Place, Offset] = {}
        self._done: dict[Place, frozenset[int]] = {}
        self._topic_ids: dict[str, str] = {}
        self._unplaced: set[Place] = set()
        self._recorded: dict[Place, datetime] = {}
        self._runner = Runner(f"consumer {handler.name}")
        self._stop = threading.Event()
        self._polled_at = self._committed_at = self._retried_at = self._told_at = 0.0
        self._waits: str | None = "it has not yet joined its group"

    # Running

    def run(self, stop: threading.Event | None = None) -> None:
        """Consume until `stop` is set. An object runs once.

        Raises ChainBroken where a record is missing, after all before it are applied; TopicMismatch where a
        topic was made anew or lost records; KafkaFailed where another process runs as the same instance;
        SchemaMismatch.
        """
        self._stop = stop or self._stop
        client: Client | None = None
        try:
            self._beside(None, self.make_tables)
            client = self._joined()
            while client is not None and not self._stop.is_set():
                self._turn(client)
        except _Stopped:
            pass
        finally:
            self._waits = "it has ended"
            self._end(client)

    def _turn(self, client: Client) -> None:
        """One turn of the loop: what was assigned, one poll, what it brought, and what is due."""
        self._place(client)
        if messages := self._polled(client):
            self._apply(client, messages)
        self._tell_lag(client)
        now = time.monotonic()
        if now >= self._retried_at + RETRYING and self.at:
            self._retried_at = now
            self._retry(client)
        if now >= self._committed_at + COMMITTING:
            self._commit(client)

    def _end(self, client: Client | None) -> None:
        self.processing.close()
        self._runner.end()
        if client is not None:
            with suppress(KafkaFailed):
                self._commit(client)
            client.close()
        self.transport.close()

    @property
    def why_not_ready(self) -> str | None:
        """Why it does not consume at the moment; None where it does."""
        if self._waits is None and time.monotonic() > self._polled_at + SILENT:
            return f"it has not polled for {SILENT:g} seconds"
        return self._waits

    # Brokers and database

    def _connect(self) -> Connection:
        if not self._conninfo:
            self._conninfo = resolve(self._dsn).conninfo
        connection = opened(
            awake(self._conninfo), application_name=f"pledger consumer {self.handler.group}"[:63]
        )
        limit = f"{int(self._idle * 1000)}ms"
        connection.execute("SELECT set_config('idle_in_transaction_session_timeout', %s, false)", [limit])
        return connection

    def make_tables(self) -> None:
        """Make or upgrade the tables in the database. Raises SchemaMismatch."""
        make_tables(self.processing.connection(), self.schema)

    def _joined(self) -> Client | None:
        """A member of the group, as soon as the brokers can be reached; None if stopped before."""
        pause = 0.1
        while not self._stop.is_set():
            try:
                return self.transport.member(self.handler.topics, self.handler.group, instance=self.instance)
            except KafkaUnavailable as error:
                pause = self._wait(str(error), pause)
        return None

    def _polled(self, client: Client) -> Messages:
        """The next records; none while the brokers are away."""
        try:
            messages = client.poll(POLLING, self.batch)
        except KafkaUnavailable as error:
            self._wait(str(error), 0.5)
            return {}
        self._unplaced |= set(client.assigned())
        self._polled_at = time.monotonic()
        if client.is_joined:
            self._waits = None
        return {
            place: records for place, records in messages.items() if place in self.at.keys() - self._unplaced
        }

    def _wait(self, why: str, pause: float) -> float:
        """Wait, and say so once; returns how long to wait the next time."""
        if self._waits != why:
            self._waits = why
            _log.warning("consumer %s waits: %s", self.handler.name, why)
        self._stop.wait(pause)
        return min(pause * 2, LONGEST_PAUSE)

    # Work beside the loop

    def _beside(self, client: Client | None, job: Callable[[], T]) -> T:
        """Run a job in the thread beside; where it takes long, pause all partitions and poll meanwhile.

        While the database is away it is tried again. Raises _Stopped where it was stopped and not done in
        time.
        """
        future = self._runner.submit(lambda: self._until_up(job))
        paused: set[Place] = set()
        end, grace = math.inf, GRACE
        try:
            while not future.done():
                wait([future], grace)
                if self._stop.is_set() and end == math.inf:
                    end = time.monotonic() + self.drain
                if time.monotonic() >= end:
                    self._abandon()
                if client is not None and not future.done():
                    self._keep_alive(client, paused)
                    grace = 0.0
            return future.result()
        finally:
            if client is not None:
                client.resume(paused & self.at.keys() - self._unplaced)

    def _keep_alive(self, client: Client, paused: set[Place]) -> None:
        """Stay in the group: poll, with all partitions paused."""
        client.pause(set(client.assignment) - paused)
        paused |= set(client.assignment)
        try:
            leaked = client.poll(POLLING / 4, 1)
            self._polled_at = time.monotonic()
            assert not leaked, f"a paused partition brought records: {list(leaked)}"
        except KafkaUnavailable:
            self._stop.wait(POLLING)
        self._unplaced |= set(client.assigned())
        if time.monotonic() >= self._committed_at + COMMITTING:
            self._commit(client)

    def _abandon(self) -> None:
        """End what did not finish in time after a stop; its transaction is rolled back."""
        _log.warning("consumer %s stops in the middle of a round, which is rolled back", self.handler.name)
        self.processing.cancel()
        raise _Stopped

    def _until_up(self, job: Callable[[], T]) -> T:
        """What a job returns, once the database can be reached. In the thread beside."""
        pause = 0.1
        while True:
            try:
                return job()
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                if self._stop.is_set():
                    raise _Stopped from error
                pause = self._wait(f"the database: {error}", pause)

    # Partitions

    def _place(self, client: Client) -> None:
        """Begin new partitions where the database says, and forget those that are gone."""
        if not (self._unplaced or self.at.keys() - client.assignment):
            return
        assignment = set(client.assignment)
        for place in [one for one in self.at if one not in assignment]:
            self._forget(place)
        self._unplaced &= assignment
        try:
            places = self._known(self._unplaced)
            found = self._beside(client, lambda: {place: self._read(place) for place in places})
            if unread := [place for place, (offset, _) in found.items() if offset is None]:
                starts = self._starts(client, unread)
                found |= self._beside(
                    client, lambda: {place: self._begun(place, starts[place]) for place in unread}
                )
        except KafkaUnavailable as error:
            self._wait(str(error), 0.5)
            return
        for place, (offset, done) in found.items():
            assert offset is not None
            self.at[place], self._done[place] = offset, done
            self._unplaced.discard(place)
            client.begin(place, offset.next_offset)

    def _forget(self, place: Place) -> None:
        del self.at[place]
        self.metrics.forget(*place)
        self._recorded.pop(place, None)

    def _known(self, places: Iterable[Place]) -> list[Place]:
        """Those whose topic's id is known. Raises KafkaUnavailable."""
        wanted = list(places)
        if topics := {place.topic for place in wanted}:
            self._topic_ids.update(self.transport.topic_ids(topics))
        return [place for place in wanted if place.topic in self._topic_ids]

    def _read(self, place: Place) -> tuple[Offset | None, frozenset[int]]:
        """Where to go on in a partition, and what is done beyond. In the thread beside."""
        connection, offsets = self.processing.connection(), self.processing.offsets
        return offsets.read(connection, place, self._topic_ids[place.topic]), offsets.done(connection, place)

    def _starts(self, client: Client, places: list[Place]) -> dict[Place, Offset]:
        """Where to begin partitions that the group never read. Raises KafkaUnavailable."""
        ends = client.ends(places)
        if self.handler.start == "latest":
            return {place: Offset(end, None) for place, (_, end) in ends.items()}
        return {place: Offset(first, 0 if first == 0 else None) for place, (first, _) in ends.items()}

    def _begun(self, place: Place, start: Offset) -> tuple[Offset | None, frozenset[int]]:
        """Begin a partition. In the thread beside."""
        offsets = self.processing.offsets
        topic_id = self._topic_ids[place.topic]
        return offsets.begin(self.processing.connection(), place, topic_id, start), frozenset()

    # Rounds

    def _apply(self, client: Client, messages: Messages) -> None:
        """Apply what a poll brought. Raises ChainBroken once all before the gap is applied."""
        wanted = round_of(messages, self.at, self.handler, fetch=self.processing.fetch, done=self._done)
        outcome = self._beside(client, lambda: self.processing.apply(wanted))
        for place, move in wanted.moves.items():
            if place in outcome.fenced:
                continue
            self.at[place] = move.new
            if move.recorded_at is not None:
                self._recorded[place] = move.recorded_at
        self._count(wanted, outcome)
        if outcome.fenced:
            _log.info("consumer %s was fenced in %s", self.handler.name, sorted(outcome.fenced))
            client.pause(outcome.fenced)
            self._unplaced |= outcome.fenced
        broken = wanted.broken
        if broken is not None and Place(broken.topic, broken.partition) not in outcome.fenced:
            self.metrics.gaps.inc()
            raise broken

    def _retry(self, client: Client) -> None:
        """Try parked events that are due, and publish dead letters."""
        places = list(self.at)
        tried = self._beside(client, lambda: self._tried(places))
        for topic in tried.topics:
            self.metrics.processed.labels(self.handler.group, topic).inc()
        self.metrics.retries.inc(tried.handled + tried.failed)

    def _tried(self, places: list[Place]) -> Tried:
        """In the thread beside."""
        connection, parking = self.processing.connection(), self.processing.parking
        counts = parking.counts(connection)
        for state in ("waiting", "behind", "dead"):
            self.metrics.parked.labels(self.handler.group, state).set(counts.get(state, 0))
        tried = self.processing.retry(places) if counts.get("waiting") else Tried()
        if counts.get("dead", 0) + tried.dead:
            try:
                publish(connection, parking, self.transport)
            except KafkaFailed as error:
                _log.warning("consumer %s cannot publish dead letters yet: %s", self.handler.name, error)
        return tried

    def _commit(self, client: Client) -> None:
        """Tell the offsets to the group: for its tools, and to hear whether this member is still in it."""
        self._committed_at = time.monotonic()
        if not client.commit({place: offset.next_offset for place, offset in self.at.items()}):
            _log.info("consumer %s has lost its partitions, and joins its group again", self.handler.name)

    # Metrics

    def _count(self, wanted: Round, outcome: Outcome) -> None:
        metrics, group = self.metrics, self.handler.group
        for counter, counts in (
            (metrics.processed, outcome.handled), (metrics.failed, outcome.failed),
            (metrics.passed, wanted.passed),
        ):  # fmt: skip
            for topic, count in counts.items():
                counter.labels(group, topic).inc(count)
        metrics.duplicates.inc(wanted.duplicates)
        metrics.fenced.inc(len(outcome.fenced))
        metrics.seconds.observe(outcome.seconds)

    def _tell_lag(self, client: Client) -> None:
        now = time.monotonic()
        if now < self._told_at + TELLING:
            return
        self._told_at = now
        for place in self.at:
            events, last = client.behind(place), self._recorded.get(place)
            late = (datetime.now(UTC) - last).total_seconds() if events and last else 0.0
            self.metrics.lag(*place, events, max(0.0, late))
