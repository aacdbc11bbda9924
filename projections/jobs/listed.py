"""The view `jobs`: what lists of jobs show, one row a job; and dead letters."""

from __future__ import annotations

from typing import Final

from ..sql import view as parts
from ..views.view import View

_SQL = parts("jobs")
_FAILED: Final = ("failed", "lease_expired", "redriven", "discarded")


class JobList(View):
    """Jobs and dead letters: tables `jobs`, `job_children`, `dead_letters`; view `job_counts`, `job_tree`.

    A row of a job is what `evolve` makes of its stream. Batches are not in it: the view `in_state` has each,
    `progress` counts them; those that failed are dead letters as well.
    """

    name = "jobs"
    topics = (
        "job.created", "job.started", "job.reported", "job.dispatched", "job.succeeded", "job.attempt_failed",
        "job.retry_later", "job.released", "job.lease_expired_requeue", "job.cancelled", "job.described",
        "job.child_added", *(f"{kind}.{word}" for kind in ("job", "batch") for word in _FAILED),
    )  # fmt: skip
    tables = _SQL["tables"]
    indexes = _SQL["indexes"]
    statements = (_SQL["apply_children"], _SQL["apply_jobs"], _SQL["apply_dead"])
    forget = (_SQL["forget_jobs"],)
    reads = _SQL["reads"]
