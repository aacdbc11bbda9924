"""One contract for a bus in memory and a real broker: what users test on the one holds on the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from consumers.kafka import MemoryBus
from consumers.kafka.cluster import Cluster
from consumers.kafka.consumer_group.client import Transport
from consumers.kafka.consumer_group.parking import discard, letters, redrive
from ledger import Recorded
from ledger.errors import ChainBroken
from projections.metrics_server import text_of

from .conftest import SharedBroker
from .oracle import effects, faults, make_table, writer
from .publishing import Publisher
from .test_consumer import failing, running, streams, until


@dataclass(frozen=True)
class Bus:
    """A topic of a test's own. publish: events of streams; lose: the chain misses one in each partition."""

    transport: Cluster | Transport
    topic: str
    publish: Callable[[Iterable[str]], list[Recorded]]
    lose: Callable[[], object]


@pytest.fixture(params=["memory", "broker"])
def bus(request: pytest.FixtureRequest, kafka_name: str, dsn: str) -> Iterator[Bus]:
    make_table(dsn)
    if request.param == "memory":
        memory = MemoryBus(prefix=kafka_name)

        def publish(names: Iterable[str]) -> list[Recorded]:
            return [memory.publish(name, "lsm.strip.completed", {}) for name in names]

        yield Bus(memory, f"{kafka_name}.lsm", publish, lambda: _lose(memory._last))
        return
    broker: SharedBroker = request.getfixturevalue("broker")
    cluster = Cluster.of(broker.bootstrap)
    with Publisher(cluster, f"{kafka_name}.lsm") as publisher:
        yield Bus(cluster, publisher.topic, publisher.publish, lambda: _lose(publisher.last))


def _lose(last: dict[Any, int]) -> None:
    for place in last:
        last[place] += 1


@pytest.mark.parametrize("concurrency", [1, 3])
def test_each_effect_once_and_in_order(bus: Bus, dsn: str, kafka_name: str, concurrency: int) -> None:
    published = bus.publish(streams(300))
    with running(bus.transport, writer(bus.topic, kafka_name), dsn, concurrency=concurrency) as one:
        until(lambda: len(effects(dsn, kafka_name)) >= 300)
        published += bus.publish(streams(50))
        until(lambda: len(effects(dsn, kafka_name)) >= 350)
        until(lambda: _lag(text_of(one.metrics.registry)) == {0.0})
        assert one.why_not_ready is None
    assert not faults(effects(dsn, kafka_name), published)


def _lag(text: str) -> set[float]:
    return {float(line.split()[-1]) for line in text.splitlines() if line.startswith("pledger_consumer_lag_")}


def test_members_share_the_work(bus: Bus, dsn: str, kafka_name: str) -> None:
    handler = writer(bus.topic, kafka_name)
    published = bus.publish(streams(300))
    with running(bus.transport, handler, dsn, batch=10) as one:
        until(lambda: effects(dsn, kafka_name))
        with running(bus.transport, handler, dsn, batch=10) as two:
            until(lambda: one.at and two.at)
            published += bus.publish(streams(300))
            until(lambda: len(effects(dsn, kafka_name)) >= 450)
        until(lambda: len(effects(dsn, kafka_name)) >= 600)
    assert not faults(effects(dsn, kafka_name), published)


def test_a_key_that_fails_is_parked_then_redriven_or_discarded(bus: Bus, dsn: str, kafka_name: str) -> None:
    bad = {3, 4}
    published = bus.publish(streams(40, 4))
    with running(bus.transport, failing(bus.topic, kafka_name, bad, attempts=2), dsn):
        with psycopg.connect(dsn, autocommit=True) as connection:
            until(lambda: len(effects(dsn, kafka_name)) == 20)
            until(lambda: len(letters(connection)) == 2)
            third, fourth = sorted(letters(connection), key=lambda one: one.position or 0)
            assert (third.position, fourth.position, third.attempts) == (3, 4, 2)
            bad.clear()
            assert redrive(connection, third)
            assert discard(connection, fourth)
            until(lambda: len(effects(dsn, kafka_name)) == 39)
    assert not faults(effects(dsn, kafka_name), [event for event in published if event.position != 4])


def test_a_gap_ends_the_consumer_after_what_came_before(bus: Bus, dsn: str, kafka_name: str) -> None:
    before = bus.publish(["lsm.strip/a"] * 5)
    bus.lose()
    bus.publish(["lsm.strip/a"] * 2)
    with running(bus.transport, writer(bus.topic, kafka_name), dsn, fails=ChainBroken) as one:
        until(lambda: one.why_not_ready == "it has ended")
    assert not faults(effects(dsn, kafka_name), before)


def test_a_new_group_may_begin_at_the_end(bus: Bus, dsn: str, kafka_name: str) -> None:
    bus.publish(streams(10))
    with running(bus.transport, writer(bus.topic, kafka_name, start="latest"), dsn) as one:
        until(lambda: one.at)
        published = bus.publish(["lsm.strip/a"])
        until(lambda: effects(dsn, kafka_name))
    assert [position for _, _, position in effects(dsn, kafka_name)] == [published[0].position]
