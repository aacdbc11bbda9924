"""The processes of `dev.py bench kafka`: what NAME says, with settings as JSON. See `process`."""

from __future__ import annotations

import gc
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import ledger
from consumers.kafka import Consumer, KafkaFeed, consumer
from consumers.kafka.cluster import Cluster
from consumers.kafka.consumer_group.handler import Connection, Handler
from consumers.kafka.relay.relay import Relay
from ledger import Body, Ledger, Recorded
from projections import Projector, views_named
from tests.benchmarks.kafka_relay import PARTITIONS, Bench

ROOT: Final = Path(__file__).parents[2]
COUNTS: Final = """
CREATE TABLE IF NOT EXISTS counts (stream text PRIMARY KEY, n bigint NOT NULL, version bigint NOT NULL)"""
COUNT: Final = """
INSERT INTO counts AS c SELECT s, count(*), max(v) FROM unnest(%s::text[], %s::bigint[]) u (s, v) GROUP BY s
ON CONFLICT (stream) DO UPDATE SET n = c.n + excluded.n, version = greatest(c.version, excluded.version)"""
STRIP: Final = Body("lsm.strip.completed", 1, '{"tiles":4}')
STRIPS: Final = 500


def process(name: str, bench: Bench, **more: Any) -> subprocess.Popen[str]:
    """A process of this module, on the server, the ledger and the cluster of a part."""
    given = {"dsn": bench.dsn, "schema": bench.log.schema, "bootstrap": bench.cluster.bootstrap}
    settings = given | {"prefix": bench.name, **more}
    return subprocess.Popen(
        [sys.executable, "-m", __name__, name, json.dumps(settings)], cwd=ROOT, text=True,
        stdout=subprocess.PIPE,
    )  # fmt: skip


@contextmanager
def running(name: str, bench: Bench, **more: Any) -> Iterator[None]:
    """The process while the block runs."""
    with process(name, bench, **more) as one:
        try:
            yield
        finally:
            one.terminate()


def counter(topic: str, group: str) -> Handler:
    """Counts events by stream, with one statement a round."""

    @consumer(topics=[topic], group=group, batch=True)
    def count(events: Sequence[Recorded], transaction: Connection) -> None:
        streams, versions = [one.stream for one in events], [one.version for one in events]
        transaction.execute(COUNT, [streams, versions])

    return count


def relay(log: Ledger, cluster: Cluster, given: Mapping[str, Any], stop: threading.Event) -> None:
    """Publish until SIGTERM."""
    Relay(log, cluster, prefix=given["prefix"], partitions=PARTITIONS).run(stop)


def append(log: Ledger, cluster: Cluster, given: Mapping[str, Any], stop: threading.Event) -> None:
    """Append events at an even rate."""
    began = time.perf_counter()
    for nr in range(int(given["rate"] * given["seconds"])):
        time.sleep(max(0.0, began + nr / given["rate"] - time.perf_counter()))
        log.append(f"lsm.strip/{nr % STRIPS}", STRIP)


def keep(log: Ledger, cluster: Cluster, given: Mapping[str, Any], stop: threading.Event) -> None:
    """Keep the view `work` until SIGTERM."""
    Projector(log, views_named(["work"])).run(stop)


def catch_up_relay(log: Ledger, cluster: Cluster, given: Mapping[str, Any], stop: threading.Event) -> None:
    """Publish the whole log; print how much memory it takes."""
    told = Memory(given["events"])
    one = Relay(log, cluster, prefix=given["prefix"], partitions=PARTITIONS)
    one.run(stop, log.bound(), lambda done: told.at(done.events))


def catch_up_consumer(log: Ledger, cluster: Cluster, given: Mapping[str, Any], stop: threading.Event) -> None:
    """Consume the whole topic; print how much memory it takes."""
    told, done = Memory(given["events"]), 0
    one = Consumer(cluster, counter(f"{given['prefix']}.jobs", given["prefix"]), given["dsn"], batch=2000)
    apply = one.processing.apply

    def counted(wanted: Any) -> Any:
        nonlocal done
        outcome = apply(wanted)
        done += len(wanted.deliveries)
        told.at(done)
        if done >= given["events"]:
            stop.set()
        return outcome

    one.processing.apply = counted  # type: ignore[method-assign]
    one.run(stop)


def catch_up_feed(log: Ledger, cluster: Cluster, given: Mapping[str, Any], stop: threading.Event) -> None:
    """Feed the view activity with the whole log; print how much memory it takes."""
    told = Memory(given["events"])
    with ledger.connect(given["dsn"], schema="bench_fed", create=True) as place:
        fed = KafkaFeed(place, views_named(["activity"]), cluster, given["prefix"])
        fed.run(stop, log.bound(), lambda position: told.at(fed.events))


class Memory:
    """Prints the resident memory in MiB, and the time, after each tenth of so many events."""

    def __init__(self, events: int) -> None:
        self.events, self.tenth = events, 1

    def at(self, done: int) -> None:
        """So many are done."""
        if done * 10 >= self.tenth * self.events:
            self.tenth = done * 10 // self.events + 1
            status = Path("/proc/self/status").read_text(encoding="ascii")
            kib = int(status.partition("VmRSS:")[2].split()[0])
            print(json.dumps([done, round(kib / 1024, 1), time.time()]), flush=True)


ROLES: Final[dict[str, Callable[[Ledger, Cluster, Mapping[str, Any], threading.Event], None]]] = {
    "relay": relay,
    "append": append,
    "keep": keep,
    "catch-up-relay": catch_up_relay,
    "catch-up-consumer": catch_up_consumer,
    "catch-up-feed": catch_up_feed,
}

if __name__ == "__main__":
    gc.set_threshold(100_000)  # as `pledger` does
    settings = json.loads(sys.argv[2])
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    with ledger.connect(settings["dsn"], schema=settings["schema"], actor="bench") as opened:
        ROLES[sys.argv[1]](opened, Cluster.of(settings["bootstrap"]), settings, stopped)
