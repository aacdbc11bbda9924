"""
The shapes of facts that jobs and batches share: work that is offered, claimed, reported on, and ended.

Each shape is the base of two topics, `job.started` and `batch.started`, declared in `job.py` and `batch.py`.
Match on the shapes where job and batch need no distinction. `token` is the fencing token of the claim: the
version of the fact that began it. A fact with a token was recorded while that claim held.
"""

from __future__ import annotations

from pydantic import JsonValue

from ..domain.event import Event

Json = dict[str, JsonValue]


class WorkFact(Event):
    """A fact of a job or a batch."""


class Started(WorkFact):
    """A worker claimed it (spec S1-21). attempt: from 1, since it was offered or redriven."""

    worker: str
    token: int
    attempt: int


class Reported(WorkFact):
    """The operation reported while it ran (spec S1-15). event: a name with dots, such as `page.done`."""

    token: int
    event: str
    level: str = "info"
    message: str | None = None
    fields: Json = {}
    progress_current: int | None = None
    progress_total: int | None = None


class Ended(WorkFact):
    """It succeeded; with its result."""

    token: int | None = None
    result: Json = {}


class Failed(WorkFact):
    """It failed. error_code: the name of the error's class, or of the rule (spec S1-25).

    details: further facts: `traceback`, `exit_code`, `signal`, `output` (the end of what was printed).
    operation, queue: those at the time of the failure, so that a dead letter has them (W1-19).
    """

    token: int | None = None
    error_code: str
    message: str = ""
    details: Json = {}
    operation: str | None = None
    queue: str | None = None


class AttemptFailed(WorkFact):
    """An attempt failed; another may be made after delay_seconds."""

    token: int
    attempt: int
    error_code: str
    message: str = ""
    delay_seconds: float = 0
    details: Json = {}


class RetryLater(WorkFact):
    """A resource is busy: it is offered again after delay_seconds (spec S1-27). retry_count: from 1."""

    token: int
    reason: str
    delay_seconds: float
    retry_count: int


class Released(WorkFact):
    """Its worker gave it back unfinished, because the worker is stopping (spec S1-32)."""

    token: int
    reason: str = "shutdown"


class LeaseExpiredRequeue(WorkFact):
    """Its worker vanished: offered again (spec S1-62). token: of the claim that is over."""

    token: int
    worker: str | None = None
    prior_requeues: int
    max_requeues: int


class LeaseExpired(WorkFact):
    """Its workers vanished too often: failed, with the error code `lease_expired`.

    operation, queue: as in Failed.
    """

    token: int
    worker: str | None = None
    prior_requeues: int
    max_requeues: int
    operation: str | None = None
    queue: str | None = None


class StallRequeue(WorkFact):
    """It was due for long and not claimed: offered once more (spec S1-63)."""

    queue: str
    prior_requeues: int


class Cancelled(WorkFact):
    """It was cancelled. reason: `parent_cancelled`, or as given."""

    reason: str | None = None


class LateResult(WorkFact):
    """A worker's result after its claim was over; it changes nothing (spec W1-03).

    outcome: the last word of the refused topic (`succeeded`, `failed`, …).
    """

    token: int
    outcome: str
    result: Json = {}
    error_code: str | None = None
    message: str | None = None


class Redriven(WorkFact):
    """It had failed, and is offered again, from the beginning. reason: as given."""

    queue: str
    operation: str
    priority: int = 0
    reason: str | None = None


class Discarded(WorkFact):
    """It had failed and stays failed; it is no longer a dead letter."""

    reason: str | None = None
