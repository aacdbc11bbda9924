"""
K-mer profiles of the proteins of a FASTA file, by many workers on the ledger, some of which are killed.

    python -m docs.examples.kmers run FILE --workers 4 --kill 2

    fasta.py       the file: cut in parts, read part by part
    profile.py     the computation
    parcel.py      the files that pass from one step to the next
    rows.py        the user's own tables
    operations.py  the operations that workers run
    crew.py        starts workers and kills some
    check.py       checks that nothing is lost, doubled or wrong
    story.py       the output for the user

`chloroplast.faa`, beside this file, holds the 85 proteins of the chloroplast of Arabidopsis thaliana (NCBI
Reference Sequence NC_000932, which is free of restrictions). It is the default FILE.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import psycopg

import ledger
from docs.examples.kmers.check import faults, histories
from docs.examples.kmers.crew import Crew, CrewFailed
from docs.examples.kmers.operations import COMPUTE
from docs.examples.kmers.story import say, tell
from ledger.errors import JobUnsuccessful
from ledger.jobs import Job, Jobs

SHIPPED: Final = Path(__file__).with_name("chloroplast.faa")
PAUSE: Final = 0.005
"""Seconds between two looks at the log."""
MOST: Final = 10
"""Number of words that are printed at the end."""


NUMBERS: Final = (
    ("-k", 1, 6, 3, "letters of a word"),
    ("--shuffles", 0, 10_000, 20, "random shuffles of each protein, as a baseline"),
    ("--batch", 1, 100_000, 5, "proteins in a batch"),
    ("--workers", 1, 100, 4, "worker processes"),
    ("--slots", 1, 100, 1, "operations at once in each worker"),
    ("--kill", 0, 100, 2, "how many to kill: in turn a worker, and a process that computes"),
)
"""Options: name, minimum, maximum, default, and meaning."""


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m docs.examples.kmers", description="K-mer profiles of proteins, by jobs."
    )
    run = parser.add_subparsers(required=True, metavar="run").add_parser(
        "run", help="all of it, and the check"
    )
    add = run.add_argument
    add("file", type=Path, nargs="?", default=SHIPPED, metavar="FILE", help="proteins in FASTA, also gzipped")
    for name, least, most, default, told in NUMBERS:
        add(name, type=number(least, most), default=default, metavar="N", help=f"{told} ({default})")
    add("--lease-seconds", type=float, default=2.0, metavar="S", help="when a dead worker is noticed (2)")
    add(
        "--out", type=Path, metavar="FOLDER", help="where parcels go between the steps (else a temporary one)"
    )
    add("--dsn", help="where the ledger lies (else LEDGER_DSN, else libpq's PG* variables, else embedded)")
    add("--json", action="store_true", help="print the result as JSON, on the last line")
    return parser.parse_args(arguments)


def number(least: int, most: int) -> Any:
    def parse(text: str) -> int:
        if not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text} is not a number from {least} to {most}")
        return int(text)

    return parse


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it. Returns 0: done and correct, 1: it failed or the check found faults, 130: stopped by Ctrl-C."""
    options = parsed(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with tempfile.TemporaryDirectory(prefix="kmers-") as folder, ledger.connect(options.dsn) as log:
            return run(options, log, (options.out or Path(folder)).absolute())
    except (ledger.LedgerError, CrewFailed, OSError, psycopg.Error) as wrong:
        return say(f"kmers: {wrong}", 1)
    except KeyboardInterrupt:
        return say("kmers: stopped", 130)


def run(options: argparse.Namespace, log: ledger.Ledger, out: Path) -> int:
    """The run itself: two jobs, one after the other, then the check."""
    began, jobs = time.monotonic(), Jobs(log)
    payload = {
        "path": str(options.file.absolute()), "out": str(out), "k": options.k, "shuffles": options.shuffles,
        "per_batch": options.batch,
    }  # fmt: skip
    environment = os.environ | ({"LEDGER_DSN": options.dsn} if options.dsn else {})
    crew = Crew(log, environment, out, slots=options.slots, lease=options.lease_seconds)
    cut = jobs.submit("kmers.cut", payload, queue=COMPUTE)
    say(f"job {cut}: {options.file}")
    try:
        for _ in range(options.workers):
            crew.hire()
        work(jobs, crew, cut, options.kill)
        summed = jobs.submit(
            "kmers.sum", {"run": cut, "shuffles": options.shuffles, "most": MOST}, queue=COMPUTE
        )
        work(jobs, crew, summed, 0)
    except BaseException:
        jobs.cancel(cut, "the run was stopped")
        raise
    finally:
        crew.dismiss()
    return report(options, log, jobs.get(cut), jobs.result(summed), crew, time.monotonic() - began)


def work(jobs: Jobs, crew: Crew, job: str, kills: int) -> None:
    """Let the crew work until a job is over, and kill at equal distances. Raises JobUnsuccessful."""
    while jobs.status(job) in ("queued", "running"):
        crew.look(job)
        total = jobs.get(job).batches if kills else 0
        due = 1 + crew.computed * kills // total if total and crew.computed else 0
        if len(crew.killed) < min(due, kills) and crew.kill():
            say(f"killed {crew.killed[-1]}")
        time.sleep(PAUSE)
    crew.look(job)
    if (over := jobs.get(job)).status != "succeeded":
        raise JobUnsuccessful(job, str(over.status), over.error_code, over.error_message)


def report(
    options: argparse.Namespace, log: ledger.Ledger, job: Job, total: Any, crew: Crew, seconds: float
) -> int:
    """Print the result, and check it."""
    with psycopg.connect(log.address.conninfo) as connection:
        wrong = list(faults(log, connection, job, total, MOST))
    batches = histories(log, job)
    claims = sum(event.topic == "batch.started" for history in batches.values() for event in history)
    tell(job, total, batches, crew.killed, wrong)
    if options.json:
        told = {
            "job": job.id, "batches": len(batches), "claims": claims, "killed": crew.killed, "faults": wrong,
            "words": total["words"], "unusual": [dict(one) for one in total["unusual"]],
            "seconds": round(seconds, 2),
        }  # fmt: skip
        print(json.dumps(told))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
