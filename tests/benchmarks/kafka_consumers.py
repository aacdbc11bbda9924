"""The parts of `dev.py bench kafka` that consume: beside bare poll loops, and from append to effect."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import psycopg

from consumers.kafka import Consumer
from consumers.kafka.broker import Broker
from consumers.kafka.cluster import Cluster
from tests.benchmarks.kafka_at_work import COUNTS, STRIP, counter, process, running
from tests.benchmarks.kafka_relay import Bench, Figures
from tests.benchmarks.rounds import median, ratio
from tests.kafka.publishing import Publisher

PARTITIONS = 6
TIMES = 10
"""The topic of the rates has so many rounds' events: a consumer and a poll loop start slowly."""


@contextmanager
def consuming(one: Consumer) -> Iterator[None]:
    """The consumer in a thread."""
    stop = threading.Event()
    thread = threading.Thread(target=one.run, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def rates(bench: Bench) -> tuple[Figures, Figures]:
    """A consumer, bare polls and the yardstick, in turn, on one topic."""
    topic, events = f"{bench.name}.lsm", bench.options.events * TIMES
    with Publisher(bench.cluster, topic, partitions=PARTITIONS) as publisher:
        publisher.publish(
            (f"lsm.strip/{nr % 1000}" for nr in range(events)), '{"tiles":4}' + " " * 180, block=1000
        )
    found: dict[str, list[float]] = {"poll": [], "consumer": [], "confluent": []}
    with psycopg.connect(bench.dsn, autocommit=True) as connection:
        connection.execute(COUNTS)
    for nr in range(bench.options.rounds):
        found["poll"].append(_polled(bench.cluster, topic, events))
        found["consumer"].append(_consumed(bench, topic, f"{bench.name}-{nr}", events))
        found["confluent"].append(_polled_by_confluent(bench.cluster, topic, events))
    ratios = {
        "consumer_vs_poll": ratio(found, "consumer", "poll"),
        "consumer_vs_confluent": ratio(found, "consumer", "confluent"),
    }
    return ratios, {
        f"{name}_events_per_s": median(each) for name, each in found.items() if name != "confluent"
    }


def _polled(cluster: Cluster, topic: str, events: int) -> float:
    """Events a second of a bare poll loop."""
    from kafka import KafkaConsumer, TopicPartition

    client = KafkaConsumer(
        **cluster.options(), isolation_level="read_committed", auto_offset_reset="earliest",
        metrics_enabled=False, max_partition_fetch_bytes=4 * 1024 * 1024,
    )  # fmt: skip
    client.assign([TopicPartition(topic, nr) for nr in range(PARTITIONS)])
    seen, began = 0, 0.0
    while seen < events:
        found = sum(map(len, client.poll(timeout_ms=200, max_records=2000).values()))
        began = began or time.perf_counter() if found else began
        seen += found
    took = time.perf_counter() - began
    client.close()
    return events / took


def _polled_by_confluent(cluster: Cluster, topic: str, events: int) -> float:
    """The same of librdkafka."""
    import confluent_kafka

    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "not used"}
    client = confluent_kafka.Consumer(settings | {"isolation.level": "read_committed"})
    client.assign([confluent_kafka.TopicPartition(topic, nr, 0) for nr in range(PARTITIONS)])
    seen, began = 0, 0.0
    while seen < events:
        found = len(client.consume(2000, 0.2))
        began = began or time.perf_counter() if found else began
        seen += found
    took = time.perf_counter() - began
    client.close()
    return events / took


def _consumed(bench: Bench, topic: str, group: str, events: int) -> float:
    """Events a second of a consumer, effects and all, from its first round to its last commit."""
    one = Consumer(bench.cluster, counter(topic, group), bench.dsn, batch=2000)
    apply, times = one.processing.apply, list[float]()

    def timed(wanted: Any) -> Any:
        times.append(time.perf_counter())
        outcome = apply(wanted)
        times.append(time.perf_counter())
        return outcome

    one.processing.apply = timed  # type: ignore[method-assign]
    with consuming(one), psycopg.connect(bench.dsn, autocommit=True) as connection:
        while _counted(connection) < events:
            time.sleep(0.05)
        connection.execute("TRUNCATE counts")
    return events / (times[-1] - times[0])


def _counted(connection: psycopg.Connection[Any]) -> int:
    return int(connection.execute("SELECT coalesce(sum(n), 0) FROM counts").fetchall()[0][0])


def effect(bench: Bench) -> tuple[Figures, Figures]:
    """From an append to its effect, on the broker of one node."""
    late = _latencies(bench)
    return {}, {"effect_p50_ms": _ms(late, 0.5), "effect_p99_ms": _ms(late, 0.99)}


def effect_on_three(bench: Bench) -> tuple[Figures, Figures]:
    """The same on three nodes of this machine."""
    with Broker(nodes=3) as broker:
        late = _latencies(replace(bench, cluster=Cluster.of(broker.bootstrap)))
    return {}, {"effect3_p50_ms": _ms(late, 0.5), "effect3_p99_ms": _ms(late, 0.99)}


def _ms(seconds: list[float], quantile: float) -> float:
    return round(1000 * seconds[int(len(seconds) * quantile)], 1)


def _latencies(bench: Bench) -> list[float]:
    """Seconds from each append to its committed effect, sorted; without the first half of a second."""
    rate, seconds = bench.options.rate, bench.options.seconds
    bench.log.append("lsm.strip/0", STRIP)
    with psycopg.connect(bench.dsn, autocommit=True) as connection:
        connection.execute(COUNTS)
    one = Consumer(bench.cluster, counter(f"{bench.name}.lsm", bench.name), bench.dsn)
    apply, found = one.processing.apply, list[float]()

    def timed(wanted: Any) -> Any:
        outcome, now = apply(wanted), datetime.now(UTC)
        found.extend((now - each.envelope.event.recorded_at).total_seconds() for each in wanted.deliveries)
        return outcome

    one.processing.apply = timed  # type: ignore[method-assign]
    with running("relay", bench), consuming(one):
        while not found:
            time.sleep(0.05)
        with process("append", bench, rate=rate, seconds=seconds):
            while len(found) < rate * seconds:
                time.sleep(0.05)
    return sorted(found[1 + rate // 2 :])
