"""How far a job is, from the streams alone: no view is needed, and none can be behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ledger import Ledger
    from ledger.jobs import Job, Jobs

PAGE: Final = 1000


def progress_of(jobs: Jobs, id: str) -> tuple[int | None, int | None]:
    """Done and total of a job: of one that is dispatched the set of its batches and child jobs."""
    job = jobs.get(id)
    if not job.dispatched:
        return job.progress_current, job.progress_total
    return over_of(jobs.ledger, job), job.batches + len(job.children)


def over_of(log: Ledger, job: Job) -> int:
    """How many of its batches and child jobs are over."""
    from ledger.jobs.batch import BATCH_TERMINAL
    from ledger.jobs.job import TERMINAL

    batches, children = batches_of(log, job), children_of(log, job)
    over = sum(many for status, many in batches.items() if status in BATCH_TERMINAL)
    return over + sum(many for status, many in children.items() if status in TERMINAL)


def batches_of(log: Ledger, job: Job) -> Counter[str]:
    """How many batches of its present round are in each status."""
    if job.rounds == 0:
        return Counter()
    return Counter(_statuses(log, job))


def _statuses(log: Ledger, job: Job) -> Iterator[str]:
    stem = f"batch/{job.id}/"
    prefix, after = (stem if job.rounds == 1 else f"{stem}{job.rounds}."), ""
    while page := log.streams(prefix, after=after, limit=PAGE):
        for info in page:
            if job.rounds > 1 or "." not in info.stream.removeprefix(stem):
                yield info.status or ""
        after = page[-1].stream


def children_of(log: Ledger, job: Job) -> Counter[str]:
    """How many of its child jobs are in each status."""
    if not job.children:
        return Counter()
    from ledger.jobs import OpenJob

    opened = log.load_each(OpenJob(child) for child in job.children)
    return Counter(str(one.state.status) for one in opened)
