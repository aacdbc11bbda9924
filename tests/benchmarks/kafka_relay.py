"""The parts of `dev.py bench kafka` that publish: the relay beside bare producers, the cost of a record."""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from consumers.kafka.cluster import Cluster
from consumers.kafka.envelope import Outgoing, record_of, source_of
from consumers.kafka.relay.producer import Transactions
from consumers.kafka.relay.relay import BLOCK_EVENTS, Relay, RelayStatistics
from consumers.kafka.routes import partition_of
from consumers.kafka.topics import Topics
from ledger import ANY, Append, Body, Ledger
from projections.engine.follower import Follower
from tests.benchmarks.rounds import median, ratio

Figures = dict[str, float]
PARTITIONS: Final = 12
STREAMS: Final = 500


@dataclass(frozen=True, slots=True)
class Bench:
    """What a part measures with. log: an empty ledger; name: the prefix of its topics; options: of main."""

    log: Ledger
    cluster: Cluster
    dsn: str
    name: str
    options: argparse.Namespace

    def fill(self, events: int) -> int:
        """Record events of about 150 bytes; returns the last position."""
        last = 0
        for begin in range(0, events, 1000):
            appends = [
                Append(
                    f"job/{(begin + at) % STREAMS:036d}",
                    tuple(Body("job.progressed", 1, f'{{"n":{n},"note":"{"x" * 120}"}}') for n in range(10)),
                    ANY,
                )
                for at in range(100)
            ]
            last = self.log.append_all(appends, actor="bench").last_position
        return last


def relay(bench: Bench) -> tuple[Figures, Figures]:
    """The relay, a bare producer and the yardstick, in turn."""
    found: dict[str, list[float]] = {"relay": [], "producer": [], "confluent": []}
    topics = Topics(bench.cluster, partitions=PARTITIONS)
    for name in ("bench.producer", "bench.confluent"):
        topics.ensure(name)
    position = 0
    with Transactions(bench.cluster, "bench-producer") as producer:
        producer.fence()
        confluent = _Confluent(bench.cluster)
        for number in range(bench.options.rounds + 1):  # the first one warms up
            end = bench.fill(bench.options.events)
            blocks = list(_blocks(bench.log, position, "bench.producer"))
            rates = {
                "relay": _relayed(bench, end),
                "producer": _produced(producer._producer, blocks),
                "confluent": confluent.produced(blocks),
            }
            position = end
            if number:
                for name, rate in rates.items():
                    found[name].append(rate)
    ratios = {
        "relay_vs_producer": ratio(found, "relay", "producer"),
        "relay_vs_confluent": ratio(found, "relay", "confluent"),
    }
    return ratios, {f"{name}_events_per_s": median(rates) for name, rates in found.items()}


def _relayed(bench: Bench, end: int) -> float:
    """Events per second of a relay, from its first block on."""
    seen: list[tuple[float, int]] = []

    def published(statistics: RelayStatistics) -> None:
        seen.append((time.perf_counter(), statistics.events))

    Relay(bench.log, bench.cluster, prefix=bench.name, partitions=PARTITIONS).run(
        threading.Event(), end, published
    )
    (began, first), (ended, last) = seen[0], seen[-1]
    return (last - first) / (ended - began)


def _blocks(log: Ledger, after: int, topic: str) -> Iterator[list[Outgoing]]:
    """The records that the relay sends for the events after a position, in its blocks."""
    source, follower = source_of(log.identity.ledger), Follower(log, after, batch=BLOCK_EVENTS)
    while events := follower.poll():
        yield [
            record_of(one, one.position, source, topic, partition_of(one.stream.encode(), PARTITIONS))
            for one in events
        ]


def _produced(producer: Any, blocks: Sequence[Sequence[Outgoing]]) -> float:
    """Events per second of the bare client with the relay's settings, after its first block."""
    began = 0.0
    for block in blocks:
        producer.begin_transaction()
        for one in block:
            producer.send(one.topic, one.value, one.key, one.headers, one.partition)
        producer.flush()
        producer.commit_transaction()
        began = began or time.perf_counter()
    return sum(map(len, blocks[1:])) / (time.perf_counter() - began)


class _Confluent:
    """librdkafka's producer, with the same blocks."""

    def __init__(self, cluster: Cluster) -> None:
        from confluent_kafka import Producer

        settings = {"bootstrap.servers": cluster.bootstrap, "transactional.id": "bench-confluent"}
        self._producer: Any = Producer(settings | {"linger.ms": "20", "batch.size": "131072"})
        self._producer.init_transactions(30)

    def produced(self, blocks: Sequence[Sequence[Outgoing]]) -> float:
        """Events per second after the first block."""
        producer, began = self._producer, 0.0
        for block in blocks:
            producer.begin_transaction()
            for one in block:
                producer.produce("bench.confluent", one.value, one.key, one.partition, headers=one.headers)
            producer.flush()
            producer.commit_transaction()
            began = began or time.perf_counter()
        return sum(map(len, blocks[1:])) / (time.perf_counter() - began)


def envelope(bench: Bench) -> tuple[Figures, Figures]:
    """Microseconds to make a record, by us and by the package `cloudevents`."""
    from cloudevents.core.bindings.kafka import KafkaMessage, from_binary, to_binary
    from cloudevents.core.formats.json import JSONFormat

    bench.fill(1000)
    event = Follower(bench.log).poll()[0]
    source, told = source_of(bench.log.identity.ledger), JSONFormat()
    record = record_of(event, 0, source, "bench", 0)
    known = from_binary(KafkaMessage(dict(record.headers), record.key, record.value or b""), told)
    ours = _microseconds(lambda: record_of(event, 0, source, "bench", 0))
    theirs = _microseconds(lambda: to_binary(known, told))
    return {"record_vs_cloudevents": round(ours / theirs, 3)}, {"record_us": ours, "cloudevents_us": theirs}


def _microseconds(act: Callable[[], object], times: int = 5000) -> float:
    taken = []
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(times):
            act()
        taken.append((time.perf_counter() - began) / times * 1e6)
    return round(statistics.median(taken), 2)
