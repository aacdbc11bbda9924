"""
Dead letters: jobs and batches that failed, until they are redriven or discarded (W1-19).

The stream of each holds the reason. A job can be redriven at any time; if it handed out batches, only those
that did not complete run again. A batch can be redriven alone while its job is running, or has succeeded
without it, and is still in the same round; then it is counted again.
"""

from __future__ import annotations

from typing import Any, Final

from ..errors import BadInput, GuardFailed, MoveNotAllowed, Refused, StreamConflict, StreamNotFound
from ..log.append import Append, Guard, append_of
from ..log.ledger import Ledger
from ..log.recorded import Recorded
from ..log.retry import retry_conflicts
from .batch import OpenBatch
from .facts import Failed, LeaseExpired
from .job import OpenJob, Status
from .jobs import Jobs
from .work import OpenWork, work_at

_COUNTS: Final = frozenset({Status.RUNNING.value, Status.SUCCEEDED.value})
"""Statuses of a job in which its batches are counted."""


def redrive(ledger: Ledger, stream: str, reason: str | None = None, *, whole: bool = False) -> None:
    """Offer a dead letter again. whole: a job with all its batches, from the beginning (see Jobs.retry).

    Raises Refused for what is not a dead letter, or for a batch that its job no longer counts;
    DuplicateJob, StreamNotFound.
    """

    def decide() -> None:
        opened = dead_letter(ledger, stream)
        if why := why_not(ledger, opened):
            raise Refused(why)
        try:
            if isinstance(opened, OpenBatch):
                opened.redrive(reason)
                parent = Append(OpenJob.name_of(opened.state.job), [], Guard(_COUNTS))
                ledger.append_all([append_of(opened), parent])
            else:
                Jobs(ledger).retry(opened.state.id, reason, whole=whole)
        except (GuardFailed, MoveNotAllowed) as error:  # it, or its job, changed since it was read
            raise StreamConflict(stream, "an unchanged dead letter", 0) from error

    retry_conflicts(decide)


def discard(ledger: Ledger, stream: str, reason: str | None = None) -> None:
    """Discard a dead letter: it stays failed, and is no longer listed. Raises Refused."""

    def decide() -> None:
        opened = dead_letter(ledger, stream)
        if not opened.discard(reason):
            raise Refused(_no_letter(opened))
        ledger.commit(opened)

    retry_conflicts(decide)


def why_not(ledger: Ledger, opened: OpenWork[Any, Any]) -> str | None:
    """Why it cannot be redriven, as a sentence; None if it can."""
    if opened.state.status != "failed" or opened.state.discarded:
        return _no_letter(opened)
    if not isinstance(opened, OpenBatch):
        return None
    job = ledger.load(OpenJob, opened.state.job).state
    if job.rounds != opened.state.under:
        return f"{opened.name} no longer counts: its job has handed out new batches"
    if job.status in _COUNTS:
        return None
    if job.status == Status.FAILED and not job.discarded:
        return f"{opened.name} can only be redriven with its job, which failed: redrive job/{job.id}"
    is_ = "discarded" if job.discarded else job.status
    return f"{opened.name} no longer counts: its job is {is_}; discard it"


def dead_letter(ledger: Ledger, stream: str) -> OpenWork[Any, Any]:
    """The job or batch with this stream, opened. Raises StreamNotFound, also for any other stream."""
    try:
        (opened,) = ledger.load_each([work_at(stream)])
    except BadInput:
        raise StreamNotFound(stream) from None
    if not opened.version:
        raise StreamNotFound(stream)
    return opened


def cause(ledger: Ledger, stream: str) -> Recorded | None:
    """The fact of its last failure, with all details of the error; None if it never failed."""
    for event in ledger.read(stream, backwards=True):
        if isinstance(event.event, Failed | LeaseExpired):
            return event
    return None


def _no_letter(opened: OpenWork[Any, Any]) -> str:
    is_ = "discarded" if opened.state.discarded else opened.state.status
    return f"{opened.name} is not a dead letter: it is {is_}"
