"""
Dead letters: jobs and batches that failed, until somebody offers them anew or puts them aside (W1-19).

What failed says why, in its own stream. A job is redriven at any time; a batch only while its job is running
and still at the same round, since nobody would count it any more.
"""

from __future__ import annotations

from typing import Any

from ..append import Append, append_of
from ..errors import GuardFailed, MoveNotAllowed, Refused, StreamConflict, StreamNotFound
from ..expected import Guard
from ..names import split_name
from ..recorded import Recorded
from ..store.ledger import Ledger
from .batch import OpenBatch
from .facts import Failed, LeaseExpired
from .job import OpenJob, Status
from .jobs import Jobs
from .submitting import TRIES
from .work import OpenWork

_RUNNING = Guard(frozenset({Status.RUNNING.value}))


def redrive(ledger: Ledger, stream: str, reason: str | None = None) -> None:
    """Offer a dead letter anew, as from the beginning.

    Raises Refused where it is none, or where it is a batch of a job that is not running any more;
    DuplicateJob, StreamNotFound.
    """
    for _ in range(TRIES):
        opened = dead_letter(ledger, stream)
        if why := why_not(ledger, opened):
            raise Refused(why)
        try:
            if isinstance(opened, OpenBatch):
                opened.redrive(reason)
                parent = Append(OpenJob.name_of(opened.state.job), [], _RUNNING)
                ledger.append_all([append_of(opened), parent])
            else:
                Jobs(ledger).retry(opened.state.id, reason)
            return
        except (StreamConflict, GuardFailed, MoveNotAllowed):
            continue  # somebody changed it, or its job, since it was looked at
    raise StreamConflict(stream, "a dead letter that nobody else changes", 0)


def discard(ledger: Ledger, stream: str, reason: str | None = None) -> None:
    """Put a dead letter aside: it stays failed, and nobody shall look at it any more. Raises Refused."""
    for _ in range(TRIES):
        opened = dead_letter(ledger, stream)
        if not opened.discard(reason):
            raise Refused(_no_letter(opened))
        try:
            ledger.commit(opened)
            return
        except StreamConflict:
            continue
    raise StreamConflict(stream, "a dead letter that nobody else changes", 0)


def why_not(ledger: Ledger, opened: OpenWork[Any, Any]) -> str | None:
    """Why it cannot be redriven, in a sentence; None where it can."""
    if opened.state.status != "failed" or opened.state.discarded:
        return _no_letter(opened)
    if not isinstance(opened, OpenBatch):
        return None
    job = ledger.load(OpenJob, opened.state.job).state
    if job.status != Status.RUNNING:
        return f"{opened.name} counts no more, since its job is {job.status}: redrive the job"
    if job.rounds != opened.state.under:
        return f"{opened.name} counts no more, since its job handed out its batches anew"
    return None


def dead_letter(ledger: Ledger, stream: str) -> OpenWork[Any, Any]:
    """The job or batch of a stream's name, opened. Raises StreamNotFound, also for any other stream."""
    category, key = split_name(stream)
    kinds: dict[str, type[OpenWork[Any, Any]]] = {"job": OpenJob, "batch": OpenBatch}
    if category not in kinds:
        raise StreamNotFound(stream)
    opened = ledger.load(kinds[category], *key)
    if not opened.version:
        raise StreamNotFound(stream)
    return opened


def cause(ledger: Ledger, stream: str) -> Recorded | None:
    """The fact by which it failed last, with all that is known of the error; None where it never did."""
    for event in ledger.read(stream, backwards=True):
        if isinstance(event.event, Failed | LeaseExpired):
            return event
    return None


def _no_letter(opened: OpenWork[Any, Any]) -> str:
    is_ = "discarded" if opened.state.discarded else opened.state.status
    return f"{opened.name} is no dead letter: it is {is_}"
