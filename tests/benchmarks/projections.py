"""
What views cost: rebuilding them from a million events, following the log, verifying; what that costs appends.

    rebuild_vs_stock_runner   all views together, in events/s, beside the stock library's ProjectionRunner
                              with a counting view, one transaction an event, on the first of them
    rebuild_vs_raw_cursor     InState and progress together, beside reading the same rows by a raw server-side
                              cursor
    rebuild_all_vs_raw_cursor all views together, beside the same
    rebuild_peak_mb           memory of the process that rebuilds, and of its children
    append_during_rebuild     appends a second of 4 writers while all views are rebuilt, beside without that
    follower_lag_p99_ms       from the commit of an event to its row in InState being there to be seen, with
                              all views followed by one projector, at 2,000 events/s
    verify_vs_raw_cursor      folding all streams and comparing them with their heads, beside the raw cursor

All are rates, ours by theirs, but for the megabytes and milliseconds.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psutil
import psycopg

import ledger
from ledger import Ledger
from ledger.domain.known import KNOWN
from ledger.embedded import Embedded, throwaway
from ledger.log.install import init
from projections.engine.projector import views_named
from projections.engine.rebuild import rebuild
from projections.shipped import load
from projections.verify import verify
from tests.benchmarks.lag import WRITERS, follower_lag
from tests.benchmarks.mixed_log import fill
from tests.benchmarks.stock_runner import stock_rate
from tests.lamp import LampSwitchedOn

RAW = """
SELECT position, stream, version, topic, schema, data::text, raw, meta::text, recorded_at
  FROM ledger.events ORDER BY position
"""
MAIN = ("in_state", "progress")


def raw_rate(dsn: str) -> float:
    """Rows a second of a raw server-side cursor over the whole log."""
    with psycopg.connect(dsn) as connection, connection.cursor(name="raw") as cursor:
        cursor.itersize = 5000
        begin = time.perf_counter()
        many = sum(1 for _ in cursor.execute(RAW))
        return many / (time.perf_counter() - begin)


def rebuild_rate(log: Ledger, names: tuple[str, ...]) -> float:
    """Events a second of rebuilding these views, two at a time, each from the whole log."""
    begin = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda view: rebuild(log, view), views_named(names)))
    return max(one.events for one in made) / (time.perf_counter() - begin)


def verify_rate(log: Ledger, events: int) -> float:
    """Events a second of verifying all streams."""
    begin = time.perf_counter()
    verify(log)
    return events / (time.perf_counter() - begin)


@contextmanager
def watched() -> Iterator[Callable[[], float]]:
    """The most memory that this process and its children have while the block runs, in MB."""
    me, peak, stop = psutil.Process(), [0.0], threading.Event()

    def look() -> None:
        while not stop.wait(0.05):
            whole = me.memory_info().rss
            for child in me.children(recursive=True):
                try:
                    if "postgres" not in child.name():
                        whole += child.memory_info().rss
                except psutil.NoSuchProcess:
                    pass
            peak[0] = max(peak[0], whole / 1e6)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield lambda: round(peak[0], 1)
    finally:
        stop.set()
        thread.join()


def _writer(dsn: str, number: int, pipe: Any) -> None:
    """Append until told to stop, and say how many a second whenever asked."""
    with ledger.connect(dsn, create=False) as log:
        done, begin = 0, time.perf_counter()
        pipe.send("ready")
        while True:
            if pipe.poll():
                if pipe.recv() == "stop":
                    return
                pipe.send(done / (time.perf_counter() - begin))
                done, begin = 0, time.perf_counter()
            log.append(f"lamp/bench-{number}-{done % 50}", LampSwitchedOn())
            done += 1


def append_during_rebuild(
    dsn: str, log: Ledger, rounds: int, seconds: float
) -> tuple[float, dict[str, float]]:
    """Appends a second of some writers while views are rebuilt, by that without, in turns."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(WRITERS)]
    crew = [context.Process(target=_writer, args=(dsn, n, pipe[1])) for n, pipe in enumerate(pipes)]
    for process in crew:
        process.start()
    ends = [pipe[0] for pipe in pipes]
    for end in ends:
        end.recv()

    def rate() -> float:
        for end in ends:
            end.send("rate")
        return sum(float(end.recv()) for end in ends)

    alone, beside = [], []
    for _ in range(rounds):
        rate()
        time.sleep(seconds)
        alone.append(rate())
        with ThreadPoolExecutor(2) as pool:
            made = [pool.submit(rebuild, log, view) for view in views_named(MAIN)]
            rate()
            time.sleep(seconds)
            beside.append(rate())
            for one in made:
                one.result()
    for end in ends:
        end.send("stop")
    for process in crew:
        process.join()
    figures = {
        "appends_alone_per_s": statistics.median(alone),
        "appends_beside_per_s": statistics.median(beside),
    }
    found = statistics.median(b / a for a, b in zip(alone, beside, strict=True))
    return round(found, 3), {name: round(value) for name, value in figures.items()}


def prepare(server: Embedded, events: int) -> tuple[str, int]:
    """A database with a mixed log, and how many events it has."""
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE projections")
    dsn = server.dsn("projections")
    with psycopg.connect(dsn, autocommit=True) as connection:
        init(connection)
    with ledger.connect(dsn) as log:
        made = fill(log, events)
    with psycopg.connect(server.admin_dsn("projections"), autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
    return dsn, made.events


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """All figures and ratios."""
    load()
    every = tuple(sorted(KNOWN.views))
    with throwaway(durable=True) as server:
        dsn, events = prepare(server, arguments.events)
        with ledger.connect(dsn, create=False) as log:
            log.tail.close()
            stock = stock_rate(server.admin_dsn("projections"), log.log(0, log.bound(), arguments.stock))
            rounds: dict[str, list[float]] = {"raw": [], "main": [], "all": [], "verify": []}
            with watched() as peak:
                for number in range(arguments.rounds):
                    rounds["raw"].append(raw_rate(dsn))
                    rounds["main"].append(rebuild_rate(log, MAIN))
                    rounds["all"].append(rebuild_rate(log, every))
                    rounds["verify"].append(verify_rate(log, events))
                    print(f"\rround {number + 1} of {arguments.rounds}", end="", file=sys.stderr, flush=True)
                print(file=sys.stderr)
                memory = peak()
            appends, appended = append_during_rebuild(dsn, log, arguments.rounds, arguments.seconds)
        lag = follower_lag(dsn, arguments.seconds * 3, 2000)
    by_raw = {
        name: round(statistics.median(a / b for a, b in zip(rounds[name], rounds["raw"], strict=True)), 3)
        for name in ("main", "all", "verify")
    }
    return {
        "rebuild_vs_stock_runner": round(statistics.median(rounds["all"]) / stock, 1),
        "rebuild_vs_raw_cursor": by_raw["main"],
        "rebuild_all_vs_raw_cursor": by_raw["all"],
        "rebuild_peak_mb": memory,
        "append_during_rebuild": appends,
        "follower_lag_p99_ms": lag.pop("follower_lag_p99_ms"),
        "verify_vs_raw_cursor": by_raw["verify"],
        "figures": {
            "events": events,
            "stock_per_s": round(stock),
            **{f"{name}_per_s": round(statistics.median(values)) for name, values in rounds.items()},
            **appended,
            **lag,
        },
    }


def main() -> None:
    """Measure and print; the last line of stdout is JSON with --json."""
    parser = argparse.ArgumentParser(
        prog="dev.py bench projections", description=__doc__.strip().split("\n")[0]
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--events", type=int, default=1_000_000, help="how long the log is")
    parser.add_argument("--stock", type=int, default=20_000, help="how many of them the stock runner gets")
    parser.add_argument("--rounds", type=int, default=3, help="how often each way has its turn")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long a turn of appending takes")
    found = measure(parser.parse_args())
    if "--json" in sys.argv:
        print(json.dumps(found))
        return
    for name, value in found.items():
        if name != "figures":
            print(f"{name:28} {value}")
    for name, value in found["figures"].items():
        print(f"  {name:26} {value}")


if __name__ == "__main__":
    main()
