"""How soon a view has an event, with all views followed by a projector in another process."""

from __future__ import annotations

import multiprocessing
import statistics
import threading
import time
from typing import Any

import psycopg

import ledger
from ledger import Ledger
from projections.engine.projector import Projector
from projections.shipped import load
from tests.lamp import LampSwitchedOn

WRITERS = 2
AT_ONCE = 4
"""Events an append, so that the appends leave the machine room to follow them."""


def _projector(dsn: str, pipe: Any) -> None:
    load()
    with ledger.connect(dsn, create=False) as log, Projector(log):
        pipe.send("ready")
        pipe.recv()


def follower_lag(dsn: str, seconds: float, rate: int) -> dict[str, float]:
    """Milliseconds from a commit to the row being there, the projector in a process of its own."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    follower = context.Process(target=_projector, args=(dsn, there))
    follower.start()
    here.recv()
    committed: dict[int, float] = {}
    seen: dict[str, list[tuple[float, int]]] = {"in_state": [], "all": []}
    stop = threading.Event()
    watcher = threading.Thread(target=_watch, args=(dsn, stop, seen))
    with ledger.connect(dsn, create=False) as log:
        Projector(log).catch_up()
        watcher.start()
        begin = time.monotonic() + 0.5
        total = int(seconds * rate)
        threads = [
            threading.Thread(target=_pace, args=(log, n, begin, rate, total, committed))
            for n in range(WRITERS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        end = log.bound()
    deadline = time.monotonic() + 30
    while (not seen["all"] or seen["all"][-1][1] < end) and time.monotonic() < deadline:
        time.sleep(0.01)
    stop.set()
    watcher.join()
    here.send("stop")
    follower.join()
    delays = _delays(committed, seen["in_state"])
    whole = _delays(committed, seen["all"])
    span = max(committed.values()) - min(committed.values())
    return {
        "follower_lag_p99_ms": round(delays[int(len(delays) * 0.99)], 1),
        "follower_lag_median_ms": round(statistics.median(delays), 1),
        "all_views_lag_p99_ms": round(whole[int(len(whole) * 0.99)], 1),
        "follower_rate_per_s": round(len(committed) / span),
    }


def _delays(committed: dict[int, float], seen: list[tuple[float, int]]) -> list[float]:
    delays, looks = [], iter(seen)
    at, upto = next(looks)
    for position, when in sorted(committed.items()):
        while upto < position:
            at, upto = next(looks)
        delays.append(max(0.0, (at - when) * 1e3))
    return sorted(delays)


def _watch(dsn: str, stop: threading.Event, seen: dict[str, list[tuple[float, int]]]) -> None:
    """How far InState and the slowest view are, looked at every few milliseconds."""
    wanted = (
        "SELECT min(c.position) FILTER (WHERE v.name = 'in_state'), min(c.position) "
        "FROM ledger.views v JOIN ledger.view_copies c ON c.view = v.name AND c.copy = v.live"
    )
    with psycopg.connect(dsn, autocommit=True) as connection:
        while not stop.wait(0.003):
            (positions,) = connection.execute(wanted, prepare=True).fetchall()
            for known, position in zip(seen.values(), positions, strict=True):
                if position is not None and (not known or known[-1][1] < position):
                    known.append((time.monotonic(), position))


def _pace(log: Ledger, writer: int, begin: float, rate: int, total: int, committed: dict[int, float]) -> None:
    for number in range(writer * AT_ONCE, total, WRITERS * AT_ONCE):
        wait = begin + number / rate - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        done = log.append(f"lamp/paced-{writer}-{number % 200}", *[LampSwitchedOn()] * AT_ONCE)
        now = time.monotonic()
        committed.update(dict.fromkeys(range(done.first_position, done.last_position + 1), now))
