"""
What many threads of one process append together: `dev.py bench flood`.

One event an append, durable commits, and the threads share one `Ledger`:

    raw       psycopg, autocommit, prepared: INSERT of the finished row; a connection a thread, at most 16
    shared    `log.append`: appends that wait share a commit
    apart     the same append past the committer: each has a commit of its own, as one alone has

flood_vs_raw_pipeline_N: shared by raw with N threads. flood_p99_ms: how long one append of the most threads
takes. append_alone_vs_before: shared by apart with a single writer, where nothing waits.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from threading import Barrier, Thread
from typing import Any
from uuid import uuid4

import psycopg

import ledger
from ledger import Body, Ledger, acting
from ledger.embedded import throwaway
from tests.benchmarks.append import BODY, META, RAW, STREAMS, TOPIC, prepare
from tests.benchmarks.rounds import median, ratio

CONNECTIONS = 16
WAYS = ("raw", "shared", "apart")
Act = Callable[[str, int], object]
"""Appends an event to a stream, which has so many."""


class Flood:
    """The ways of appending an event, for threads of this process."""

    def __init__(self, dsn: str, log: Ledger, past: Ledger, threads: int) -> None:
        self.log, self.past = log, past
        past.committer.append = lambda append, meta: past.appender.append((append,), meta)  # type: ignore[method-assign]
        self.bodies, self.data, self.meta = (
            [Body(TOPIC, 1, json.dumps(BODY))],
            json.dumps(BODY),
            json.dumps(META),
        )
        self.cursors: SimpleQueue[psycopg.Cursor[Any]] = SimpleQueue()
        for _ in range(min(threads, CONNECTIONS)):
            self.cursors.put(psycopg.connect(dsn, autocommit=True).cursor(binary=True))

    def raw(self, stream: str, version: int) -> None:
        cursor = self.cursors.get()
        cursor.execute(RAW, (version + 1, 1, stream, TOPIC, self.data, self.meta), prepare=True)
        cursor.fetchone()
        self.cursors.put(cursor)

    def shared(self, stream: str, _: int) -> None:
        self.log.append(stream, self.bodies[0])

    def apart(self, stream: str, _: int) -> None:
        self.past.append(stream, self.bodies[0])


def turn(act: Act, mark: str, threads: int, seconds: float, first: int) -> tuple[int, float, list[float]]:
    """So many threads append for so long; how often each did at most, the rate, and how long each took."""
    ready, taken = Barrier(threads + 1), [list[float]() for _ in range(threads)]
    made = [first] * threads

    def work(nth: int) -> None:
        streams, times = [f"{mark}/{nth}/{i}" for i in range(STREAMS)], taken[nth]
        with acting(**META):
            ready.wait()
            begin = time.perf_counter()
            end = begin + seconds
            while begin < end:
                act(streams[made[nth] % STREAMS], made[nth] // STREAMS)
                made[nth] += 1
                now = time.perf_counter()
                times.append(now - begin)
                begin = now

    workers = [Thread(target=work, args=(nth,)) for nth in range(threads)]
    for worker in workers:
        worker.start()
    ready.wait()
    begin = time.perf_counter()
    for worker in workers:
        worker.join()
    times = sorted(each for one in taken for each in one)
    return max(made), len(times) / (time.perf_counter() - begin), times


def flood(
    dsn: str, ways: Sequence[str], threads: int, rounds: int, seconds: float
) -> tuple[Mapping[str, list[float]], Mapping[str, float]]:
    """Appends per second of each way in each round, and the 99th percentile of how long each took, in ms."""
    mark = uuid4().hex[:6]
    with ledger.connect(dsn, create=False) as log, ledger.connect(dsn, create=False) as past:
        means = Flood(dsn, log, past, threads)
        found: dict[str, list[float]] = {way: [] for way in ways}
        slow: dict[str, list[float]] = {way: [] for way in ways}
        made = dict.fromkeys(ways, 0)
        for number in range(rounds + 1):  # the first one warms up
            for way in ways:
                made[way], rate, times = turn(
                    getattr(means, way), f"{way}/{mark}", threads, seconds if number else 0.5, made[way]
                )
                if number:
                    found[way].append(rate)
                    slow[way].append(times[len(times) * 99 // 100] * 1e3)
            print(f"\r{threads} threads: round {number} of {rounds}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found, {way: round(statistics.median(slow[way]), 2) for way in ways}


def main() -> None:
    """Run it all and print the ratios."""
    parser = argparse.ArgumentParser(
        prog="dev.py bench flood", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one object as the last line")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5, help="length of one turn")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 4, 16, 64])
    parser.add_argument("--ways", nargs="*", default=WAYS)
    options = parser.parse_args()
    ratios: dict[str, float] = {}
    figures: dict[str, float] = {"cpus": os.cpu_count() or 0}
    with throwaway(durable=True) as server:
        for threads in options.threads:
            found, slow = flood(prepare(server), options.ways, threads, options.rounds, options.seconds)
            figures |= {f"{way}_{threads}_per_s": median(found[way]) for way in found}
            figures |= {f"{way}_{threads}_p99_ms": slow[way] for way in slow}
            if {"raw", "shared"} <= found.keys():
                ratios[f"flood_vs_raw_pipeline_{threads}"] = ratio(found, "shared", "raw")
                ratios["flood_p99_ms"] = slow["shared"]
            if {"apart", "shared"} <= found.keys():
                name = f"flood_vs_apart_{threads}" if threads > 1 else "append_alone_vs_before"
                ratios[name] = ratio(found, "shared", "apart")
    for name, value in (ratios | figures).items():
        print(f"{name:28} {value:>12}", file=sys.stderr if options.json else sys.stdout, flush=True)
    if options.json:
        print(json.dumps(ratios | {"figures": figures}))


if __name__ == "__main__":
    main()
