"""
A parent of many batches, completed by many writers in groups: `python -m tests.benchmarks.batches`.

    batches_vs_bulk_append    batches per second beside bulk appends per second, as `bench append` measures
                              these: one writer, 1000 events an append, no heads
    fan_in_growth             what a batch costs the fan-in in the last tenth of them, by what in the first
    closes                    how often the parent was closed

Each batch is claimed and completed: two events under the version of its head. A fan-in runs meanwhile, in a
process of its own; the time is over when the last writer is.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import time
from typing import Any
from uuid import uuid4

import ledger
from consumers.jobs.claim import Claim
from consumers.jobs.context import OperationContext
from consumers.jobs.dispatch import outcome_of
from consumers.jobs.fan_in import TOPICS, FanIn, fan_in
from consumers.jobs.messages import Task
from consumers.jobs.operation import OperationResult
from consumers.jobs.record import outcome_part
from ledger import Append, Body, Exact, Ledger
from ledger.embedded import throwaway
from ledger.jobs import Batches, Jobs, OpenJob
from projections import Follower
from tests.benchmarks.append import BODY, META, TOPIC, prepare

GROUP = 500


def dispatched(log: Ledger, batches: int) -> str:
    """A job that was dispatched with so many batches."""
    job = Jobs(log).submit("split")
    work = log.load(OpenJob, job)
    work.start("bench")
    log.commit(work)
    session = OperationContext(Task(work.name, 2, 2, "split", "{}", job, 1), lambda: log)
    messages = (("default", {"operation": "part", "payload": {"n": n}}) for n in range(batches))
    outcome = outcome_of(session, OperationResult(deferred=True, publish_operations=messages))
    log.append_all(outcome_part(Claim(log.load(OpenJob, job), 2), outcome).appends)
    return job


def _write(dsn: str, job: str, writer: int, writers: int, batches: int, pipe: Any) -> None:
    """A writer: completes its share, group by group; says when it began and when it ended."""
    with ledger.connect(dsn, create=False, max_size=1) as log:
        mine = [str(nr) for nr in range(writer + 1, batches + 1, writers)]
        group = Batches(log, f"writer-{writer}")
        log.bound()
        pipe.send("ready")
        pipe.recv()
        began = time.monotonic()
        for first in range(0, len(mine), GROUP):
            done = group.complete(job, {nr: {"rows": int(nr)} for nr in mine[first : first + GROUP]})
            assert not done.others, done.others
        pipe.send((began, time.monotonic()))


def _count(dsn: str, pipe: Any) -> None:
    """The fan-in: runs until it is told to stop."""
    with ledger.connect(dsn, create=False, max_size=2) as log:
        with fan_in(log):
            pipe.send("ready")
            pipe.recv()
        pipe.send("done")


def complete(dsn: str, job: str, batches: int, writers: int) -> float:
    """Batches per second of writer processes, while a fan-in follows them."""
    context = multiprocessing.get_context("spawn")
    ends: list[Any] = []
    processes: list[Any] = []
    crew: list[tuple[Any, ...]] = [
        (_count, dsn),
        *((_write, dsn, job, n, writers, batches) for n in range(writers)),
    ]
    for target, *given in crew:
        here, there = context.Pipe()
        processes.append(context.Process(target=target, args=(*given, there)))
        processes[-1].start()
        ends.append(here)
    for end in ends:
        end.recv()
    for end in ends[1:]:
        end.send("go")
    times = [end.recv() for end in ends[1:]]
    with ledger.connect(dsn, create=False) as log:
        Jobs(log).wait(job, seconds=600)
    ends[0].send("stop")
    ends[0].recv()
    for process in processes:
        process.join()
    spent: float = max(end for _, end in times) - min(begin for begin, _ in times)
    return batches / spent


def bulk(dsn: str, seconds: float) -> float:
    """Events per second of bulk appends, as `bench append` makes them."""
    with ledger.connect(dsn, create=False) as log:
        bodies, mark, done = [Body(TOPIC, 1, json.dumps(BODY))] * 1000, uuid4().hex[:6], 0
        begin = time.perf_counter()
        while time.perf_counter() < begin + seconds:
            log.append_all([Append(f"bulk/{mark}/{done}", bodies, Exact(0), head=False)], **META)
            done += 1000
        return done / (time.perf_counter() - begin)


def growth(log: Ledger, job: str, batches: int) -> float:
    """What a batch costs the fold in the last tenth of the set, by what in the first; processor time."""
    reaction, costs, spent, seen = FanIn(log), [], 0.0, 0
    follower = Follower(log, topics=TOPICS)
    while events := follower.poll():
        mine = [event for event in events if event.stream.startswith(f"batch/{job}/")]
        begin = time.process_time()
        for event in events:
            reaction(event)
        spent += time.process_time() - begin
        seen += len(mine)
        if seen >= batches // 10:
            costs.append(spent / seen)
            spent, seen = 0.0, 0
    return round(costs[-1] / costs[0], 3) if len(costs) > 1 else 1.0


def measure(
    batches: int, writers: int, rounds: int, seconds: float = 2.0
) -> tuple[dict[str, float], dict[str, float]]:
    """Ratios and figures; every round has a parent of its own, bulk appends before and after it."""
    ratios, rates, bulks, growths, closes = [], [], [], [], []
    with throwaway(durable=True) as server:
        for number in range(rounds):
            dsn = prepare(server)
            with ledger.connect(dsn, create=False) as log:
                bulk(dsn, 0.5)
                before = bulk(dsn, seconds)
                job = dispatched(log, batches)
                rate = complete(dsn, job, batches, writers)
                beside = (before + bulk(dsn, seconds)) / 2
                events = Jobs(log).events(job)
                closes.append(sum(e.topic in ("job.succeeded", "job.failed") for e in events))
                growths.append(growth(log, job, batches))
            ratios.append(rate / beside)
            rates.append(rate)
            bulks.append(beside)
            print(
                f"round {number + 1}: {rate:.0f} batches/s, bulk {beside:.0f}/s", file=sys.stderr, flush=True
            )
    return {
        "batches_vs_bulk_append": round(statistics.median(ratios), 3),
        "fan_in_growth": round(statistics.median(growths), 3),
        "closes": max(closes),
    }, {
        "batches_per_s": round(statistics.median(rates), 1),
        "bulk_per_s": round(statistics.median(bulks), 1),
        "cpus": os.cpu_count() or 0,
    }  # fmt: skip


def main() -> None:
    """Measure, and print the ratios."""
    parser = argparse.ArgumentParser(
        prog="dev.py bench batches", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one object as the last line")
    parser.add_argument("--batches", type=int, default=100_000)
    parser.add_argument("--writers", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    ratios, figures = measure(options.batches, options.writers, options.rounds)
    for name, value in (ratios | figures).items():
        print(f"{name:28} {value:>12}", file=sys.stderr if options.json else sys.stdout)
    if options.json:
        print(json.dumps(ratios | {"figures": figures}))


if __name__ == "__main__":
    main()
