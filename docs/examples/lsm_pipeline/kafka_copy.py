"""
The run through Kafka: a relay publishes it, a consumer counts strips, a view is fed in another database.

All of it runs in threads of this process, beside the workers, on a broker and a PostgreSQL server that are
gone afterwards. LEDGER_KAFKA names a cluster to use instead of the broker.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, Self

import psycopg

import ledger
from consumers.kafka import Cluster, Consumer, consumer
from consumers.kafka.broker import Broker
from consumers.kafka.consumer_group.handler import Connection, Handler
from consumers.kafka.feed import KafkaFeed
from consumers.kafka.merge import published
from consumers.kafka.relay.relay import Relay
from ledger import Recorded, split_name
from ledger.domain.names import project_key
from ledger.embedded import throwaway
from projections.engine.projector import views_named
from projections.shipped import load

PARTITIONS: Final = 3
LIMIT: Final = 120.0
"""Seconds that copies may be behind the ledger at the end."""
TABLE: Final = "CREATE TABLE completed_strips (slice text PRIMARY KEY, strips int NOT NULL)"
COUNT: Final = """
INSERT INTO completed_strips AS c VALUES (%s, 1) ON CONFLICT (slice) DO UPDATE SET strips = c.strips + 1"""
IN_STATE: Final = """
SELECT count(*) FROM ledger_views.streams_in('lsm.strip', 'completed')
WHERE split_part(stream, '/', 2) = %s"""


@dataclass(frozen=True, slots=True)
class Copied:
    """What came through Kafka. counted: strips that the consumer counted. in_state: those of the fed view."""

    kafka: str
    prefix: str
    published: int
    counted: int
    in_state: int


class KafkaCopy:
    """Copies the ledger through Kafka while its block runs."""

    def __init__(self, log: ledger.Ledger, project: str, say: Callable[[str], object]) -> None:
        self.log, self.key, self.say = log, project_key(project), say
        self.prefix = f"demo-{secrets.token_hex(4)}"
        self._stop = threading.Event()
        self._failed: list[BaseException] = []

    def __enter__(self) -> Self:
        began = time.monotonic()
        with ExitStack() as stack:
            named = os.environ.get("LEDGER_KAFKA")
            bootstrap = named or stack.enter_context(Broker(tell=self.say)).bootstrap
            self.cluster = Cluster.of(bootstrap)
            self.dsn = stack.enter_context(throwaway()).dsn()
            self.copy = stack.enter_context(ledger.connect(self.dsn, actor="feed", create=True))
            with psycopg.connect(self.dsn, autocommit=True) as connection:
                connection.execute(TABLE)
            load()
            self.relay = Relay(self.log, self.cluster, prefix=self.prefix, partitions=PARTITIONS)
            self.feed = KafkaFeed(self.copy, views_named(["in_state"]), self.cluster, self.prefix)
            count = Consumer(self.cluster, self._handler(), self.dsn)
            for run in (self.relay.run, self._feed, count.run):
                self._begin(stack, run)
            stack.callback(self._stop.set)
            self._stack = stack.pop_all()
        self.say(f"kafka {bootstrap}, after {time.monotonic() - began:.1f} s")
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _begin(self, stack: ExitStack, run: Callable[..., Any]) -> None:
        def guarded() -> None:
            try:
                run(self._stop)
            except BaseException as error:
                self._failed.append(error)

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        stack.callback(thread.join, LIMIT)

    def _feed(self, stop: threading.Event) -> None:
        while not self.relay.statistics.blocks:  # the relay makes the topics
            if stop.wait(0.05):
                return
        self.feed.run(stop)

    def _handler(self) -> Handler:
        topic, group = f"{self.prefix}.lsm", f"{self.prefix}-strips"

        @consumer(topics=[topic], events=["lsm.strip.completed"], group=group)
        def count(event: Recorded, transaction: Connection) -> None:
            _, (project, slice_id, *_) = split_name(event.stream)
            if project == self.key:
                transaction.execute(COUNT, [slice_id])

        return count

    def finish(self, strips: int) -> Copied:
        """Wait until the copies have the last event of now, and so many strips. Raises TimeoutError."""
        position = self.log.last(1, self.log.bound())[0].position
        deadline = time.monotonic() + LIMIT
        while self.feed.position < position or self._counted() < strips:
            if self._failed:
                raise self._failed[0]
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"the copies through Kafka are at position {self.feed.position} of {position}, and "
                    f"{self._counted()} of {strips} strips are counted"
                )
            time.sleep(0.02)
        return Copied(
            self.cluster.bootstrap,
            self.prefix,
            published(self.cluster, self.relay.routes).count,
            self._counted(),
            self._number(IN_STATE, self.key),
        )

    def _counted(self) -> int:
        return self._number("SELECT sum(strips) FROM completed_strips")

    def _number(self, query: str, *values: str) -> int:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            row = connection.execute(query, values).fetchone()
        return int(row[0] or 0) if row else 0
