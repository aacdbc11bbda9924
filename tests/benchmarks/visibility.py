"""How soon a follower in another process sees a commit, while an unrelated write transaction stays open."""

from __future__ import annotations

import multiprocessing
import statistics
import threading
import time
from typing import Any

import psycopg

import ledger
from projections import Follower
from tests.lamp import LampRead


def visibility(dsn: str, seconds: float, rate: int = 1000) -> tuple[dict[str, float], dict[str, float]]:
    """Milliseconds from a commit to a follower in another process, while a write transaction stays open."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    watcher = context.Process(target=_watch, args=(dsn, there, int(seconds * rate)))
    watcher.start()
    here.recv()
    with psycopg.connect(dsn) as unrelated, ledger.connect(dsn, create=False) as log:
        unrelated.execute("CREATE TABLE unrelated AS SELECT 1")
        committed = {}
        begin = time.monotonic()
        threads = [
            threading.Thread(target=_pace, args=(log, k, 4, begin, rate, int(seconds * rate), committed))
            for k in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seen = here.recv()
        unrelated.rollback()
    watcher.join()
    delays = sorted((seen[position] - at) * 1e3 for position, at in committed.items())
    achieved = len(committed) / (max(committed.values()) - min(committed.values()))
    figures = {
        "visible_median_ms": round(statistics.median(delays), 3),
        "visible_max_ms": round(delays[-1], 3),
        "visible_rate_per_s": round(achieved),
    }
    return {"visible_p99_ms": round(delays[int(len(delays) * 0.99)], 3)}, figures


def _pace(
    log: ledger.Ledger,
    writer: int,
    writers: int,
    begin: float,
    rate: int,
    total: int,
    committed: dict[int, float],
) -> None:
    for number in range(writer, total, writers):
        wait = begin + number / rate - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        done = log.append(f"visible/{writer}", LampRead(value=number))
        committed[done.last_position] = time.monotonic()


def _watch(dsn: str, pipe: Any, total: int) -> None:
    seen: dict[int, float] = {}
    with ledger.connect(dsn, create=False) as log:
        follower = Follower(log, after=log.bound())
        pipe.send("ready")
        for batch in follower.batches():
            now = time.monotonic()
            seen.update((event.position, now) for event in batch)
            if len(seen) >= total:
                break
    pipe.send(seen)
