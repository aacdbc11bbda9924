"""
A real LSM pipeline on the ledger, from one command: several worker processes compress, check and archive the
strips of a microscopy image, make each channel's projection, and record every step.

    python docs/examples/lsm_pipeline/run.py -h

    run.py      the command line, and the order of things
    plan.py     what is to be done, and where the files lie
    image.py    images, and how they are cut
    archive.py  a strip on disk: compressed, checked, safe; a channel's projection
    worker.py   one worker: claims a strip in the ledger, does the work, records it
    crew.py     starting, watching, killing, replacing workers
    show.py     the output for the user
    past.py     the project as it was
    kafka_copy.py  with --kafka: a relay, a consumer, a view in another database

Each run makes another project. If you name an interrupted project, the run continues it; completed work is
not done again.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING

from archive import sweep
from crew import Crew, CrewFailed
from image import BadImage
from plan import RUNS, STRIPS, BadPlan, Plan, check_files, hold, planned, settled
from show import Progress, near, print_copied, print_story

import ledger
from ledger.pipelines import LSMStateService

if TYPE_CHECKING:
    from kafka_copy import KafkaCopy


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="run.py",
        description="Run an LSM pipeline on a microscopy image: worker processes compress, check, archive "
        "and stitch its strips, and record every step in the ledger. One worker is killed half-way.",
        epilog="Without --input: the immunohistochemistry image of scikit-image, its stains as channels. "
        "If you name an interrupted project, the run continues it.",
    )
    add = parser.add_argument
    add(
        "--input", type=Path, metavar="FOLDER", help="your own images (TIFF, PNG, JPEG): each file is a slice"
    )
    add("--out", type=Path, metavar="FOLDER", help=f"where archive and projections go (else {RUNS}/PROJECT)")
    add("--project", metavar="NAME", help="the project's name (else a new one, of date, time and chance)")
    add("--workers", type=positive, default=4, metavar="N", help="worker processes (4)")
    add("--strips", type=positive, metavar="N", help=f"strips that each channel is cut into ({STRIPS})")
    add("--no-kill", action="store_true", help="do not kill a worker half-way")
    add("--seed", type=int, default=0, metavar="N", help="of the lot by which workers choose strips (0)")
    add("--dsn", help="where the ledger lies: postgresql://… or embedded:PATH (else LEDGER_DSN, else libpq's "
        "PG* variables, else the embedded server)")  # fmt: skip
    add("--kafka", action="store_true", help="also publish the ledger to a Kafka broker, count strips by a "
        "consumer, and feed a view in another database (LEDGER_KAFKA: a cluster to use instead)")  # fmt: skip
    add("--json", action="store_true", help="print the result as JSON, on the last line")
    return parser.parse_args(arguments)


def positive(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 1000:
        raise argparse.ArgumentTypeError(f"{number} is not a number from 1 to 1000")
    return number


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; 0: all is done, 1: it could not go on, 2: wrong use, 130: stopped by Ctrl-C."""
    options = parsed(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        plan, out = planned(options.project, options.out, options.input, options.strips)
        with hold(out) as lock:
            settled(plan, out)
            return run(options, plan, out, lock)
    except (BadPlan, BadImage) as wrong:
        return say(f"run.py: {wrong}", 2)
    except (ledger.LedgerError, CrewFailed, TimeoutError, OSError) as wrong:
        return say(f"run.py: {wrong}", 1)
    except KeyboardInterrupt:
        return say("run.py: stopped", 130)


def run(options: argparse.Namespace, plan: Plan, out: Path, lock: IO[bytes]) -> int:
    """The run itself, from the server's start to the last line."""
    began = time.monotonic()
    strips = plan.all_strips()
    say(f"project {plan.project}: {len(strips)} strips of {len(plan.channels)} slices, in {near(out)}")
    environment = os.environ | ({"LEDGER_DSN": options.dsn} if options.dsn else {})  # argv is for all to see
    with ledger.connect(options.dsn, actor="crew") as log, ExitStack() as stack:
        say(f"ledger {log.address.printable}")
        check_files(plan, out, LSMStateService(log).read_project(plan.project))
        copy = stack.enter_context(copy_through_kafka(log, plan)) if options.kafka else None
        with Progress(len(strips)) as progress:
            crew = Crew(log, plan, out, progress)
            crew.begin(kill=not options.no_kill)
            try:
                crew.run(options.workers, lock=lock, environment=environment, seed=options.seed)
            except BaseException:
                progress.say(f"to go on with it, add to the same command: --project {plan.project}")
                raise
            crew.end()
            sweep(out)
        events = print_story(log, plan, out, crew.lost[0] if crew.lost else max(crew.strips))
        copied = print_copied(copy.finish(len(strips))) if copy else {}
        if options.json:
            told = result(log, plan, crew, events=events, workers=options.workers, began=began)
            print(json.dumps(told | copied))
    return 0


def copy_through_kafka(log: ledger.Ledger, plan: Plan) -> KafkaCopy:
    from kafka_copy import KafkaCopy

    say("a Kafka broker, a relay, a consumer, and another database start")
    return KafkaCopy(log, plan.project, say)


def result(
    log: ledger.Ledger, plan: Plan, crew: Crew, *, events: int, workers: int, began: float
) -> dict[str, object]:
    """The result, read from the ledger."""
    strips = list(LSMStateService(log).read_project(plan.project).iter_strips())
    return {
        "project": plan.project,
        "strips": len(strips),
        "completed": sum(strip.succeeded for strip in strips),
        "events": events,
        "workers": workers,
        "killed": crew.killed,
        "seconds": round(time.monotonic() - began, 2),
        "dsn": log.address.printable,
    }


def say(text: str, code: int = 0) -> int:
    print(text, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
