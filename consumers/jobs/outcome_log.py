"""The log of a worker: one line for each job or batch that it ended, with the outcome."""

from __future__ import annotations

import logging
from typing import Any, Final

from ledger.jobs import OpenBatch, OpenJob
from ledger.jobs.work import OpenWork

from .record import Part

ERROR: Final = 300
"""Maximum length of an error's message in a line; the job's history holds all of it."""

_log = logging.getLogger(__name__)


def log_outcome(part: Part, worker: str, seconds: float) -> None:
    """Log an outcome: a success at INFO, a retry at WARNING, a failure at ERROR.

    The fields of the record are those of the line: job, batch, operation, queue, attempt, status, seconds,
    error_code, error_message, worker.
    """
    work = part.claim.work
    level = _level(part)
    if not _log.isEnabledFor(level):
        return
    state, batch = work.state, work.state.nr if isinstance(work, OpenBatch) else None
    failed = level > logging.INFO
    told = {
        "job": state.job if isinstance(work, OpenBatch) else state.id, "batch": batch,
        "operation": state.operation, "queue": state.queue, "attempt": state.attempt,
        "status": state.status if part.recorded else "lost", "seconds": round(seconds, 3),
        "error_code": state.error_code if failed else None,
        "error_message": state.error_message if failed else None, "worker": worker,
    }  # fmt: skip
    name = f"{told['job']}/{batch}" if batch else f"{told['job']}"
    what = "batch" if batch else "job"
    line = f"{what} {name} {state.operation} {_became(part, work)} after {seconds:.3g} s{_error(told)}"
    _log.log(level, "%s", line, extra={"told": told})


def _level(part: Part) -> int:
    """The level of the log line."""
    state = part.claim.work.state
    if not part.recorded:
        return logging.WARNING
    if state.status == "failed":
        return logging.ERROR
    return logging.WARNING if state.status in ("queued", "computed") and state.failures else logging.INFO


def _became(part: Part, work: OpenWork[Any, Any]) -> str:
    """The outcome in words."""
    state = work.state
    if not part.recorded:
        return "was lost: cancelled, or given to another worker,"
    if isinstance(work, OpenJob) and state.dispatched:
        return f"handed out {state.batches} batches and {len(state.children)} child jobs"
    if state.status != "queued":
        return str(state.status)
    if state.retries:
        return f"was put off for {state.delay_seconds:g} s"
    return f"failed, to be tried again in {state.delay_seconds:g} s," if state.failures else "was given back"


def _error(told: dict[str, Any]) -> str:
    """The error on one line; empty where there is none."""
    if told["error_code"] is None:
        return ""
    message = " ".join((told["error_message"] or "").split())[:ERROR]
    return f": {told['error_code']}: {message}" if message else f": {told['error_code']}"
