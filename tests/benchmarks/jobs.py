"""
What a job costs from its submission to its end, beside Procrastinate: `dev.py bench jobs`.

    jobs_vs_procrastinate_1, _8, _16   jobs a second with so many slots: submitted one by one while a worker
                                       runs them (they do nothing), until the last one is done
    submit_to_start_p99_ms             from before a job is submitted, one every 50 ms, until its operation
                                       begins in another process
    batches_vs_bulk_append, fan_in_growth, closes
                                       as in batches.py

Ours by theirs: the rates shall be high. Both on one server, durable, in turns; the worker whose turn it is
not is halted. Ours keeps the full history and runs operations in processes of their own, with all services of
a worker; theirs runs coroutines in the process of its worker. figures: the absolute numbers.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg

import ledger
from ledger.embedded import Embedded, throwaway
from ledger.jobs import Jobs
from ledger.log.install import init
from tests.benchmarks import batches
from tests.benchmarks.rounds import median, ratio

ROOT: Final = Path(__file__).parents[2]
EVERY: Final = 0.05
"""Seconds between two jobs of a worker that idles."""
DONE: Final = {
    "ours": "SELECT count(*) FROM ledger.heads WHERE status = 'succeeded' AND stream LIKE 'job/%'",
    "procrastinate": "SELECT count(*) FROM procrastinate_jobs WHERE status = 'succeeded'",
}
AT_WORK: Final = "from tests.benchmarks.jobs_at_work import take_part; take_part()"
LONGEST: Final = 120.0
"""Seconds until a turn must be over."""


class Way:
    """A worker in a process of its own, and a process that submits jobs to it."""

    def __init__(self, name: str, dsn: str, slots: int) -> None:
        self.name = name
        self.counting = psycopg.connect(dsn, autocommit=True)
        self.done = 0
        command = [sys.executable, "-c", AT_WORK]
        self.worker = subprocess.Popen([*command, "work", name, dsn, str(slots)], cwd=ROOT)
        self.submitter = subprocess.Popen(
            [*command, "submit", name, dsn], cwd=ROOT, stdin=subprocess.PIPE, text=True
        )

    def turn(self, jobs: int) -> float:
        """Let it run so many jobs; how many a second."""
        self.worker.send_signal(signal.SIGCONT)
        began = time.perf_counter()
        self._submit(jobs)
        while self._count() < self.done + jobs:
            if time.perf_counter() > began + LONGEST or self.worker.poll() is not None:
                raise SystemExit(f"{self.name}: {self._count() - self.done} of {jobs} jobs are done")
            time.sleep(0.02)
        took = time.perf_counter() - began
        self.done += jobs
        self.worker.send_signal(signal.SIGSTOP)
        return jobs / took

    def close(self) -> None:
        """End both processes."""
        self.counting.close()
        assert self.submitter.stdin is not None
        self.submitter.stdin.close()
        self.submitter.wait()
        self.worker.send_signal(signal.SIGCONT)
        self.worker.terminate()
        self.worker.wait()

    def _submit(self, jobs: int) -> None:
        assert self.submitter.stdin is not None
        self.submitter.stdin.write(f"{jobs}\n")
        self.submitter.stdin.flush()

    def _count(self) -> int:
        row = self.counting.execute(DONE[self.name]).fetchone()
        assert row is not None
        return int(row[0])


def rates(server: Embedded, slots: int, rounds: int, jobs: int) -> tuple[dict[str, float], dict[str, float]]:
    """Jobs a second with so many slots."""
    with database(server, "ours_jobs") as dsn, database(server, "their_jobs") as theirs:
        ways = [Way("ours", dsn, slots), Way("procrastinate", theirs, slots)]
        found: dict[str, list[float]] = {way.name: [] for way in ways}
        try:
            for number in range(rounds + 1):  # the first one warms up
                for way in ways:
                    rate = way.turn(jobs if number else jobs // 4)
                    if number:
                        found[way.name].append(rate)
                print(f"\r{slots} slots: round {number} of {rounds}", end="", file=sys.stderr, flush=True)
        finally:
            print(file=sys.stderr)
            for way in ways:
                way.close()
    return {f"jobs_vs_procrastinate_{slots}": ratio(found, "ours", "procrastinate")}, {
        f"{name}_{slots}_jobs_per_s": median(found[name]) for name in found
    }


def submit_to_start(server: Embedded, jobs: int) -> tuple[dict[str, float], dict[str, float]]:
    """How long an idle worker takes to begin with a job, in milliseconds."""
    with database(server, "ours_jobs") as dsn, ledger.connect(dsn, create=False) as log:
        way = Way("ours", dsn, 2)
        try:
            way.turn(10)
            way.worker.send_signal(signal.SIGCONT)
            submitting, waits = Jobs(log), []
            for _ in range(jobs):
                time.sleep(EVERY)
                began = time.time()
                job = submitting.submit("clock")
                submitting.wait(job, seconds=LONGEST)
                waits.append((submitting.result(job)["began"] - began) * 1000)
        finally:
            way.close()
    found = statistics.quantiles(waits, n=100)
    return {"submit_to_start_p99_ms": round(found[98], 1)}, {"submit_to_start_p50_ms": round(found[49], 1)}


@contextmanager
def database(server: Embedded, name: str) -> Iterator[str]:
    """A database with a ledger, and Procrastinate's tables; it is dropped at the end."""
    with psycopg.connect(server.admin_dsn(), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {name} OWNER pledger")
        dsn = server.dsn(name)
        with psycopg.connect(dsn, autocommit=True) as inside:
            init(inside)
            lay(inside)
        yield dsn
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def lay(connection: psycopg.Connection[Any]) -> None:
    """Procrastinate's tables, beside a ledger."""
    import procrastinate

    schema = Path(procrastinate.__file__).parent / "sql" / "schema.sql"
    connection.execute(schema.read_text().encode())


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All ratios, and the figures that they come of."""
    ratios: dict[str, float] = {}
    figures: dict[str, float] = {"cpus": os.cpu_count() or 0}
    with throwaway(durable=True) as server:
        parts: list[Callable[[], tuple[dict[str, float], dict[str, float]]]] = []
        if "rate" in options.only:
            for slots in options.slots:
                parts.append(lambda n=slots: rates(server, n, options.rounds, options.jobs))
        if "start" in options.only:
            parts.append(lambda: submit_to_start(server, options.starts))
        if "batches" in options.only:
            parts.append(lambda: batches.measure(options.batches, options.writers, options.batch_rounds))
        for part in parts:
            found, absolute = part()
            ratios |= found
            figures |= absolute
            for name, value in (found | absolute).items():
                print(f"{name:28} {value:>12}", file=sys.stderr if options.json else sys.stdout, flush=True)
    return ratios | {"figures": figures}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run it all and print the ratios."""
    parser = argparse.ArgumentParser(
        prog="dev.py bench jobs", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one object as the last line")
    parser.add_argument("--rounds", type=int, default=7, help="how often each way has its turn")
    parser.add_argument("--jobs", type=int, default=2000, help="in one turn")
    parser.add_argument("--slots", type=int, nargs="*", default=[1, 8, 16])
    parser.add_argument("--starts", type=int, default=400, help="jobs for an idle worker")
    parser.add_argument("--batches", type=int, default=100_000, help="of one parent")
    parser.add_argument("--writers", type=int, default=16, help="that complete them")
    parser.add_argument("--batch-rounds", type=int, default=3, help="parents, one after the other")
    parser.add_argument("--only", nargs="*", default=["rate", "start", "batches"])
    options = parser.parse_args(arguments)
    found = measure(options)
    if options.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
