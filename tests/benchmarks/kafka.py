"""
Kafka: relay, consumers, hints and catch-up, with one broker and one server: `dev.py bench kafka`.

    relay_vs_producer    events/s of a relay, which reads the log too, by those of a bare producer of the same
                         records in the same blocks (kafka-python)
    relay_vs_confluent   the same by confluent-kafka, the yardstick (librdkafka; not a dependency)
    record_vs_cloudevents  time to make a record, by that of the package `cloudevents`
    consumer_vs_poll     events/s of a consumer with effects, by those of a bare poll loop (kafka-python)
    consumer_vs_confluent  the same by a poll loop of confluent-kafka
    effect_p50_ms, _p99  from an append to its committed effect, at --rate events/s: a relay, a consumer and
                         who appends, each in a process of its own
    effect3_p50_ms, _p99 the same on three nodes
    hints_vs_log         created → started of single jobs (median): a worker woken by hints, by one that asks
    relay_memory_growth, consumer_memory_growth, feed_memory_growth
                         resident memory at the end of a catch-up by that after its first tenth

The catch-up is left out unless `--only catch-up` asks for it: it takes minutes.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from collections.abc import Callable
from typing import Final

import ledger
from consumers.kafka.broker import Broker
from consumers.kafka.cluster import Cluster
from ledger.embedded import throwaway
from tests.benchmarks import kafka_catch_up, kafka_consumers, kafka_hints, kafka_relay
from tests.benchmarks.kafka_relay import Bench, Figures

PARTS: Final[dict[str, Callable[[Bench], tuple[Figures, Figures]]]] = {
    "relay": kafka_relay.relay,
    "envelope": kafka_relay.envelope,
    "consumer": kafka_consumers.rates,
    "effect": kafka_consumers.effect,
    "effect3": kafka_consumers.effect_on_three,
    "hints": kafka_hints.hints,
    "catch-up": kafka_catch_up.catch_up,
}
"""Each returns ratios, and figures of this machine."""


def main() -> None:
    """Run the parts and print what they found."""
    gc.set_threshold(100_000)  # as `pledger` does: a relay of default settings publishes a third less
    parser = argparse.ArgumentParser(
        prog="dev.py bench kafka", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one object as the last line")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--events", type=int, default=20_000, help="of one round")
    parser.add_argument("--rate", type=int, default=500, help="appends a second, of the effect's latency")
    parser.add_argument("--seconds", type=float, default=10, help="for which they are appended")
    parser.add_argument("--log", type=int, default=1_000_000, help="events of the catch-up")
    parser.add_argument("--only", nargs="*", default=[*PARTS][:-1], choices=[*PARTS])
    options = parser.parse_args()
    ratios: Figures = {}
    figures: Figures = {"cpus": os.cpu_count() or 0}
    with throwaway(durable=True) as server, Broker() as broker:
        for name in options.only:
            schema = f"bench_{name.replace('-', '_')}"
            with ledger.connect(server.dsn(), schema=schema, create=True, actor="bench") as log:
                bench = Bench(log, Cluster.of(broker.bootstrap), server.dsn(), f"bench-{name}", options)
                found, absolute = PARTS[name](bench)
            ratios |= found
            figures |= absolute
            for title, value in (found | absolute).items():
                out = sys.stderr if options.json else sys.stdout
                print(f"{title:28} {value:>12}", file=out, flush=True)
    if options.json:
        print(json.dumps(ratios | {"figures": figures}))


if __name__ == "__main__":
    main()
