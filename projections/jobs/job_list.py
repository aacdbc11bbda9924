"""The view `jobs`: one row per job, for lists; and dead letters."""

from __future__ import annotations

from typing import Final

from ledger.jobs.job import JobCreated, OpenJob

from ..engine.state_view import StateView
from ..engine.view import parts

_SQL = parts(__package__, "jobs")
_FAILED: Final = ("failed", "lease_expired", "redriven", "discarded")


class JobList(StateView):
    """Jobs and dead letters: tables `jobs`, `job_sets`, `dead_letters`; view `job_counts`, `job_tree`.

    A row of a job is its state. Batches are not in it: the view `in_state` has each, `progress` counts them;
    those that failed are dead letters as well.
    """

    name = "jobs"
    streams = (OpenJob,)
    born = (JobCreated.topic,)
    topics = tuple(f"batch.{word}" for word in _FAILED)
    tables = _SQL["tables"]
    picks = {"due_at": _SQL["due_at"]}
    indexes = _SQL["indexes"]
    statements = (_SQL["apply_sets"], _SQL["apply_dead"], _SQL["apply_superseded"])
    forget = (_SQL["forget_jobs"],)
    reads = _SQL["reads"]
