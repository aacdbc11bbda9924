"""Shared parts of the commands of jobs: options and their values, jobs by id, how jobs are shown."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ..errors import Misuse, NotThere
from ..freshness import make_missing, say_how_fresh
from ..output import is_terminal
from ..session import Session

if TYPE_CHECKING:
    from ledger import Ledger
    from ledger.jobs import Job, Jobs
    from projections.jobs import JobQueries

SHORTEST: Final = 4
"""Minimum number of hexadecimal digits of an id."""
DIGITS: Final = 32
"""Hexadecimal digits of a whole id."""
WHICH: Final = "`pledger jobs list` lists the jobs"
KEEPER: Final = "run a worker"
"""What keeps the view of jobs up to date."""
TOLD: Final = 3
"""Maximum number of jobs that are listed if the beginning of an id fits several."""

One = Annotated[str, typer.Argument(metavar="ID", help="The job's id, or its first digits, at least 4.")]
Many = Annotated[
    list[str], typer.Argument(metavar="ID", help="Ids of jobs, or the first digits of each, at least 4.")
]
Whole = Annotated[
    bool,
    typer.Option(
        "--whole", help="Run all of a job with batches again: its operation makes its batches anew."
    ),
]
Reason = Annotated[str | None, typer.Option(metavar="TEXT", help="The reason; it is recorded.")]


@contextmanager
def jobs_of(session: Session) -> Iterator[Jobs]:
    """The jobs of the ledger, for one command. Raises NotThere for a job that does not exist."""
    with session.ledger() as log:
        from ledger.errors import StreamNotFound
        from ledger.jobs import Jobs

        try:
            yield Jobs(log)
        except StreamNotFound as error:
            category, _, id = error.stream.partition("/")
            if category not in ("job", "batch"):
                raise
            raise NotThere(f"there is no {category} {id}; {WHICH}", id=id) from None


def found(log: Ledger, given: str) -> str:
    """The whole id of a given job. Raises Misuse for an invalid or ambiguous id; NotThere."""
    start = _spelled(given)
    if len(start) == DIGITS + 4:
        return start
    ids = [info.stream.partition("/")[2] for info in log.streams(f"job/{start}", limit=TOLD + 1)]
    if not ids:
        raise NotThere(f"no job id begins with {given}; {WHICH}", id=given)
    if len(ids) > 1:
        more = " and others" if len(ids) > TOLD else ""
        raise Misuse(f"{given} may be {', '.join(ids[:TOLD])}{more}: give more digits")
    return ids[0]


def each_found(log: Ledger, given: list[str]) -> list[str]:
    """The whole ids, each once, in the given order; all are looked up before one is used."""
    return list(dict.fromkeys(found(log, one) for one in given))


def _spelled(given: str) -> str:
    """An id, or the beginning of one, with dashes in their places. Raises Misuse."""
    digits = given.strip().lower().removeprefix("job/").replace("-", "")
    if not re.fullmatch(f"[0-9a-f]{{{SHORTEST},{DIGITS}}}", digits):
        raise Misuse(f"{given!r} is not a job id: give a UUID, or at least its first {SHORTEST} digits")
    ends = (0, 8, 12, 16, 20, DIGITS)
    parts = [digits[start:end] for start, end in pairwise(ends)]
    return "-".join(part for part in parts if part)


def short(id: str | None) -> str:
    """An id for display: its first digits at a terminal, else the whole id."""
    return (id or "")[:8] if is_terminal() else id or ""


STDIN: Final = "-"


def payload_of(text: str | None, file: str | None, pairs: Iterable[str]) -> dict[str, Any]:
    """The payload from the options; single fields override the object. Raises Misuse."""
    if text is not None and file is not None:
        raise Misuse("`--payload` and `--payload-file` exclude each other")
    if file is not None:
        text = _text_of(file)
    payload = {} if text is None else object_of(text, "the payload")
    return payload | dict(_pair(pair) for pair in pairs)


def meta_of(given: Iterable[str]) -> dict[str, Any]:
    """Metadata from JSON objects and single fields; later ones override earlier ones. Raises Misuse."""
    meta: dict[str, Any] = {}
    for text in given:
        meta |= object_of(text, "--meta") if text.lstrip().startswith("{") else dict([_pair(text)])
    return meta


def object_of(text: str, what: str) -> dict[str, Any]:
    """A JSON object. Raises Misuse for anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Misuse(f'{what} is no JSON: {error}; give an object such as {{"n": 1}}') from None
    if not isinstance(value, dict):
        raise Misuse(f'{what} must be a JSON object such as {{"n": 1}}, not {_kind(value)}')
    return value


def seconds_of(text: str | None, option: str) -> float | None:
    """A time span in seconds, from a number or a text such as `90s`, `1h30m`. Raises Misuse."""
    if text is None:
        return None
    from ledger import BadInput
    from projections.audit.moments import parse_span

    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parse_span(text).total_seconds()
        except BadInput as error:
            raise Misuse(f"{option}: {error}") from None
    if not 0 <= seconds < float("inf"):
        raise Misuse(f"{option} {text!r} must be 0 or more")
    return seconds


def _pair(text: str) -> tuple[str, Any]:
    """NAME=VALUE: the value is read as JSON if it is valid JSON, else as text."""
    name, sign, value = text.partition("=")
    if not (name and sign):
        raise Misuse(f"{text!r} must be NAME=VALUE; give a whole object with --payload")
    try:
        return name, json.loads(value)
    except (ValueError, RecursionError):
        return name, value


def _text_of(file: str) -> str:
    try:
        read = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
        return read.decode()
    except OSError as error:
        raise Misuse(f"--payload-file {file!r} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise Misuse(f"--payload-file {file!r} is no UTF-8") from None


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a truth value"
        case list():
            return "a list"
        case str():
            return "a text"
        case _:
            return "a number"


STATUSES: Final[Mapping[str, str]] = {
    "succeeded": "green", "completed": "green", "running": "yellow", "writing": "yellow", "failed": "red",
    "cancelled": "magenta", "queued": "dim", "computed": "dim", "paused": "red", "open": "green",
}  # fmt: skip
"""Statuses of jobs, batches and queues, and their styles."""
LEVELS: Final[Mapping[str, str]] = {"warning": "yellow", "error": "bold red"}
CELLS: Final = 24
"""Cells of a bar."""


def share(done: int | None, total: int | None) -> str:
    """The progress, in words: `3 of 12, 25 %`."""
    if total is None:
        return "" if done is None else str(done)
    percent = f", {100 * (done or 0) // total} %" if total > 0 else ""
    return f"{done or 0} of {total}{percent}"


def bar(done: int | None, total: int | None) -> str:
    """A bar of so many cells, for a terminal; empty if the total is not known."""
    if not total or total < 0:
        return ""
    full = min(CELLS, max(0, CELLS * (done or 0) // total))
    return "█" * full + "░" * (CELLS - full)


MOST: Final = 100
"""Maximum number of jobs checked for why they wait."""


def progress_of(jobs: Jobs, id: str) -> tuple[int | None, int | None]:
    """Done and total of a job; for one that was split, how many batches and child jobs have succeeded."""
    job = jobs.get(id)
    return job.progress_current, job.progress_total


def unclaimed_reason(log: Ledger, ids: Sequence[str]) -> str:
    """Why jobs wait that no worker takes, in a line; empty if there is none."""
    from ledger.jobs import OpenJob
    from ledger.jobs.leases import Leases
    from projections.jobs.unclaimed import NO_WORKER, why_unclaimed

    workers = Leases(log).workers()
    whys = Counter[str]()
    for job in (one.state for one in log.load_each(OpenJob(id) for id in ids[:MOST])):
        if job.status == "queued" and (why := why_unclaimed(workers, job.queue, job.operation)):
            whys[why] += 1
        elif job.dispatched and not any(worker.state == "here" for worker in workers):
            whys[NO_WORKER] += 1
    advice = "; start one with `pledger worker run --operations MODULE:NAME`" if NO_WORKER in whys else ""
    told = ", ".join(f"{many} of {len(ids)} jobs wait: {why}" for why, many in sorted(whys.items()))
    return f"{told}{advice}" if told else ""


def waits_because(log: Ledger, job: Job) -> str | None:
    """Why no worker takes a waiting job; None if one will, as soon as it is due and a slot is free."""
    from ledger.jobs.leases import Leases
    from projections.jobs.unclaimed import why_unclaimed

    return why_unclaimed(Leases(log).workers(), job.queue, job.operation) if job.status == "queued" else None


@contextmanager
def queries_of(session: Session) -> Iterator[tuple[Ledger, JobQueries]]:
    """The queries of the view, which is made if missing; at the end stderr shows how far it is behind.

    Raises SchemaMismatch if it is missing and the login may not make it.
    """
    from projections.jobs import JobQueries
    from projections.jobs.job_list import JobList  # a view that is not imported is looked for in all domains

    views = [JobList.name]
    with session.ledger() as log:
        make_missing(session, log, views, KEEPER)
        yield log, JobQueries(log)
        say_how_fresh(session, log, views, KEEPER)
