"""Kafka consumers: from an append to its committed effect, and exactly-once effects beside bare polls.

Rows: effect_p50_ms and effect_p99_ms at --rate events a second, through a relay and a consumer, each in a
process of its own; consumer_vs_poll, the best of --rounds consumers beside the best bare poll loop.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import psycopg

import ledger
from consumers.kafka import Consumer, consumer
from consumers.kafka.broker import Broker
from consumers.kafka.cluster import Cluster
from consumers.kafka.consumer_group.handler import Connection, Handler
from consumers.kafka.consumer_group.offsets import positions
from consumers.kafka.relay.relay import Relay
from ledger import Body, Recorded
from ledger.embedded import throwaway
from ledger.log.install import init
from tests.kafka.publishing import Publisher

COUNTS = "CREATE TABLE counts (stream text PRIMARY KEY, n bigint NOT NULL, version bigint NOT NULL)"
COUNT = """
INSERT INTO counts AS c SELECT s, count(*), max(v) FROM unnest(%s::text[], %s::bigint[]) u (s, v) GROUP BY s
ON CONFLICT (stream) DO UPDATE SET n = c.n + excluded.n, version = greatest(c.version, excluded.version)"""


def counter(topic: str, group: str) -> Handler:
    """Counts events by stream, with one statement a round."""

    @consumer(topics=[topic], group=group, batch=True)
    def count(events: Sequence[Recorded], transaction: Connection) -> None:
        streams, versions = [one.stream for one in events], [one.version for one in events]
        transaction.execute(COUNT, [streams, versions])

    return count


@contextmanager
def running(one: Consumer) -> Iterator[None]:
    """The consumer in a thread."""
    stop = threading.Event()
    thread = threading.Thread(target=one.run, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def polled(cluster: Cluster, topic: str, partitions: int, events: int) -> float:
    """Events a second of a bare poll loop."""
    from kafka import KafkaConsumer, TopicPartition

    client = KafkaConsumer(
        **cluster.options(), isolation_level="read_committed", auto_offset_reset="earliest",
        metrics_enabled=False, max_partition_fetch_bytes=4 * 1024 * 1024,
    )  # fmt: skip
    client.assign([TopicPartition(topic, nr) for nr in range(partitions)])
    seen, began = 0, 0.0
    while seen < events:
        found = sum(map(len, client.poll(timeout_ms=200, max_records=2000).values()))
        began = began or time.perf_counter() if found else began
        seen += found
    took = time.perf_counter() - began
    client.close()
    return events / took


def consumed(cluster: Cluster, topic: str, dsn: str, group: str, events: int) -> float:
    """Events a second of a consumer, effects and all, from its first round to its last commit."""
    one = Consumer(cluster, counter(topic, group), dsn, batch=2000)
    apply, times = one.processing.apply, list[float]()

    def timed(wanted: Any) -> Any:
        times.append(time.perf_counter())
        outcome = apply(wanted)
        times.append(time.perf_counter())
        return outcome

    one.processing.apply = timed  # type: ignore[method-assign]
    with running(one), psycopg.connect(dsn, autocommit=True) as connection:
        while _counted(connection) < events:
            time.sleep(0.05)
        assert len(positions(connection)) > 0
        connection.execute("TRUNCATE counts")
    return events / (times[-1] - times[0])


def _counted(connection: psycopg.Connection[Any]) -> int:
    return int(connection.execute("SELECT coalesce(sum(n), 0) FROM counts").fetchall()[0][0])


def rate(cluster: Cluster, dsn: str, events: int, rounds: int) -> dict[str, float]:
    """The row consumer_vs_poll, and the rates that it compares."""
    topic = f"bench-{time.time_ns()}.lsm"
    with Publisher(cluster, topic, partitions=6) as publisher:
        publisher.publish(
            (f"lsm.strip/{nr % 1000}" for nr in range(events)), '{"tiles":4}' + " " * 180, block=1000
        )
    polls, rates = list[float](), list[float]()
    for nr in range(rounds):
        polls.append(polled(cluster, topic, 6, events))
        rates.append(consumed(cluster, topic, dsn, f"g{nr}-{time.time_ns()}", events))
    best, bare = max(rates), max(polls)
    return {"consumer_events_s": best, "poll_events_s": bare, "consumer_vs_poll": best / bare}


def latency(cluster: Cluster, dsn: str, per_second: int, seconds: float) -> dict[str, float]:
    """The rows effect_p50_ms and effect_p99_ms."""
    prefix = f"bench-{time.time_ns()}"
    settings = {
        "bootstrap": cluster.bootstrap,
        "dsn": dsn,
        "prefix": prefix,
        "rate": per_second,
        "seconds": seconds,
    }
    command = [sys.executable, "-m", "tests.benchmarks.kafka_consumers", "--part"]
    with ledger.connect(dsn) as log:
        log.append("lsm.strip/0", Body("lsm.strip.completed", 1, '{"tiles":4}'))
    relay = subprocess.Popen([*command, "relay", json.dumps(settings)])
    try:
        one = Consumer(cluster, counter(f"{prefix}.lsm", prefix), dsn)
        apply, found = one.processing.apply, list[float]()

        def timed(wanted: Any) -> Any:
            outcome, now = apply(wanted), datetime.now(UTC)
            found.extend(
                (now - each.envelope.event.recorded_at).total_seconds() for each in wanted.deliveries
            )
            return outcome

        one.processing.apply = timed  # type: ignore[method-assign]
        with running(one):
            while not found:
                time.sleep(0.05)
            subprocess.run([*command, "append", json.dumps(settings)], check=True)
            while len(found) < per_second * seconds:
                time.sleep(0.05)
    finally:
        relay.terminate()
        relay.wait()
    late = sorted(found[1 + per_second // 2 :])
    return {"effect_p50_ms": 1000 * late[len(late) // 2], "effect_p99_ms": 1000 * late[int(len(late) * 0.99)]}


def part(name: str, settings: dict[str, Any]) -> None:
    """The relay, or who appends, in this process."""
    with ledger.connect(settings["dsn"]) as log:
        if name == "relay":
            cluster = Cluster.of(settings["bootstrap"])
            Relay(log, cluster, prefix=settings["prefix"], partitions=6).run(threading.Event())
            return
        began = time.perf_counter()
        for nr in range(int(settings["rate"] * settings["seconds"])):
            time.sleep(max(0.0, began + nr / settings["rate"] - time.perf_counter()))
            log.append(f"lsm.strip/{nr % 500}", Body("lsm.strip.completed", 1, '{"tiles":4}'))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=200_000, help="of consumer_vs_poll")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=int, default=500, help="appends a second, of the latency")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--part", nargs=2, metavar=("NAME", "SETTINGS"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.part:
        part(chosen.part[0], json.loads(chosen.part[1]))
        return
    with Broker() as broker, throwaway() as server:
        cluster = Cluster.of(broker.bootstrap)
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            init(connection)
            connection.execute(COUNTS)
        rows = latency(cluster, server.dsn(), chosen.rate, chosen.seconds)
        rows |= rate(cluster, server.dsn(), chosen.events, chosen.rounds)
    for name, value in rows.items():
        print(f"{name:20} {value:12,.3f}" if value < 1000 else f"{name:20} {value:12,.0f}")


if __name__ == "__main__":
    main()
