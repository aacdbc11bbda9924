"""
What a worker records: claims, and what came of them, many in one append, each under its own condition.

A claim is appended exactly at the version that was seen; an outcome under the guard of its claim. One that is
refused is told apart from what this worker recorded itself in an append whose answer was lost.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import uniform
from typing import Any, Final, NamedTuple

from ledger import Ledger
from ledger.append import Append, append_of
from ledger.errors import (
    AppendUncertain,
    BadInput,
    GuardFailed,
    LedgerBusy,
    LedgerError,
    NoPermission,
    ReadOnly,
    Refused,
    StorageFull,
    StreamConflict,
)
from ledger.jobs import OpenBatch, OpenJob, OpenWork
from ledger.jobs.submitting import job_within

from .messages import Broken, Deferred, Outcome, Prepared, PutOff, Recorded, Stopped, Succeeded
from .taking import Taken

FIRST_DELAY: Final = 1.0
"""Seconds until work is tried again that failed with attempts left; doubled each time."""
TRANSIENT_ATTEMPTS: Final = 3
"""Attempts where those before failed by the infrastructure, even where max_attempts is less."""
TRANSIENT_DELAY: Final = 10.0
"""Seconds until such an attempt, at most, but for the jitter of 0.3."""
OVER: Final = frozenset({"cancelled", "failed"})
"""Statuses of a job whose batches and children are not run any more (spec S1-22, S1-43)."""
_LATER: Final = (LedgerBusy, StorageFull, ReadOnly, NoPermission, AppendUncertain)
"""Refusals that are not about what is recorded."""
_SAYS_NOTHING: Final = frozenset({"reported", "dispatching", "late_result"})
"""Facts with the token of a claim that do not end it."""

_log = logging.getLogger(__name__)


class Claimed(NamedTuple):
    """A claim of this worker's: the stream as it was when it was claimed."""

    work: OpenWork[Any, Any]
    token: int


@dataclass(eq=False, slots=True)
class Part:
    """What one stream adds to an append: its claim (then `taken` is what was taken), or what came of it.

    recorded: None as long as it is to be appended; then whether that is in the log. claimed: it is to be run.
    """

    claim: Claimed
    appends: list[Append]
    taken: Taken | None = None
    outcome: Outcome | None = None
    claimed: bool = False
    recorded: bool | None = None
    streams: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.streams = frozenset(append.stream for append in self.appends)


def claiming(taken: Taken, worker: str) -> Part:
    """The claim of what was taken; where its job is over, its cancel instead."""
    claimed = taken.parent_status not in OVER
    if claimed:
        taken.work.start(worker)
    else:
        taken.work.cancel(f"parent_{taken.parent_status}")
    return Part(Claimed(taken.work, taken.token), [append_of(taken.work)], taken=taken, claimed=claimed)


def ending(claim: Claimed, outcome: Outcome) -> Part:
    """What came of a claim. An outcome that cannot be recorded is recorded as a failure that says why."""
    if isinstance(outcome, Recorded):
        return Part(claim, [], outcome=outcome, recorded=True)
    work, before = claim.work, claim.work.state
    try:
        decide(work, outcome)
        appends = [work.under_lease(claim.token), *(append_of(_job(claim, outcome, j)) for j in outcome.jobs)]
    except (LedgerError, ValueError, TypeError) as error:
        work.restore(before, work.version)
        work.news.clear()
        outcome = broken(claim, error)
        decide(work, outcome)
        appends = [work.under_lease(claim.token)]
    return Part(claim, appends, outcome=outcome)


def broken(claim: Claimed, error: BaseException) -> Broken:
    """The failure of a claim whose outcome cannot be recorded."""
    message = f"what came of it cannot be recorded: {error}"
    return Broken(claim.work.name, claim.token, error_code=type(error).__name__, message=message)


def decide(work: OpenWork[Any, Any], outcome: Outcome) -> None:
    """Let the stream record what came of its task. Raises ClaimLost, MoveNotAllowed, TypeError."""
    match outcome:
        case Succeeded():
            _succeed(work, outcome)
        case Deferred() if isinstance(work, OpenJob):
            children = [job.id for job in outcome.jobs]
            work.dispatch(
                outcome.batches, children, failure_ratio=outcome.failure_ratio, result=dict(outcome.result)
            )
        case PutOff():
            work.retry_later(outcome.reason, outcome.delay_seconds)
        case Broken(transient=True):  # spec S1-29
            delay = min(FIRST_DELAY * 2.0 ** min(work.state.failures, 20), TRANSIENT_DELAY)
            work.attempt_failed(
                outcome.error_code, outcome.message, outcome.details,
                delay=delay * uniform(0.7, 1.3), at_least=TRANSIENT_ATTEMPTS,
            )  # fmt: skip
        case Broken():
            delay = FIRST_DELAY * 2.0 ** min(work.state.failures, 20)
            work.attempt_failed(outcome.error_code, outcome.message, outcome.details, delay=delay)
        case Stopped():
            work.release()
        case _:
            raise TypeError(f"{type(outcome).__name__} is no outcome of {work.name}")


def _succeed(work: OpenWork[Any, Any], outcome: Succeeded) -> None:
    match work:
        case OpenBatch() if outcome.then is not None:
            operation, queue, payload = outcome.then
            work.computed(operation, queue, dict(payload), dict(outcome.result))
        case OpenBatch():
            work.complete(dict(outcome.result))
        case OpenJob():
            progress = {
                "progress_current": outcome.progress_current,
                "progress_total": outcome.progress_total,
            }
            work.succeed(dict(outcome.result), **progress)


class Recording:
    """Records the parts of a worker; of a claim that is over, a late result that changes nothing (W1-03)."""

    def __init__(self, ledger: Ledger, worker: str) -> None:
        self.ledger, self.worker = ledger, worker

    def record(self, parts: Sequence[Part]) -> None:
        """Record those that are not yet, in one append where that is possible.

        Raises ServerUnavailable and the like, after which it may be called again with the same parts: nothing
        is recorded twice, also where the answer to an append was lost.
        """
        while waiting := [part for part in parts if part.recorded is None]:
            try:
                self._append(waiting)
            except (GuardFailed, StreamConflict) as error:
                self._refused(next(part for part in waiting if error.stream in part.streams), error.stream)
            except _LATER:
                raise
            except (Refused, BadInput) as error:
                if len(waiting) > 1:  # find out which one it is
                    for part in waiting:
                        self.record([part])
                else:
                    self._impossible(waiting[0], error)

    def _append(self, parts: Sequence[Part]) -> None:
        appended = self.ledger.append_all([append for part in parts for append in part.appends])
        for part in parts:
            part.claim.work.settle(appended.recorded_at)
            part.recorded = True

    def _refused(self, part: Part, stream: str) -> None:
        """One is not as it was expected: another was first, the claim is over, or it is recorded already."""
        work, token = part.claim
        if part.outcome is None:
            part.recorded = part.claimed and self._is_ours(part)
        elif stream != work.name and not self._has_ended(
            part.claim
        ):  # the id of a job that it submits is taken
            self._becomes(part, broken(part.claim, StreamConflict(stream, "a new stream", 1)))
        else:
            part.recorded = self._has_ended(part.claim)
            if not part.recorded and not isinstance(part.outcome, Stopped):
                word = type(part.outcome).__name__.lower()
                fact = work.late(token, word, **_said(part.outcome))
                self.ledger.append(work.name, fact, command=f"late:{work.name}:{token}")

    def _impossible(self, part: Part, error: LedgerError) -> None:
        """It can never be recorded: its job fails, where that can be; else its lease will be over."""
        _log.error("%s: %s", part.claim.work.name, error)
        if part.outcome is None or isinstance(part.outcome, Broken | Stopped):
            part.recorded = False
        else:
            self._becomes(part, broken(part.claim, error))

    def _becomes(self, part: Part, outcome: Outcome) -> None:
        """Another outcome of the same claim, as it stands in the log."""
        work = self.ledger.load(type(part.claim.work), *part.claim.work.key)
        if work.state.token != part.claim.token:
            part.recorded = False
            return
        other = ending(Claimed(work, part.claim.token), outcome)
        part.claim, part.appends, part.outcome = other.claim, other.appends, other.outcome
        part.streams = other.streams

    def _is_ours(self, part: Part) -> bool:
        """Whether the claim is in the log after all: then the stream is as it left it."""
        work = self.ledger.load(type(part.claim.work), *part.claim.work.key)
        if work.state.token != part.claim.token or work.state.worker != self.worker:
            return False
        assert part.taken is not None
        part.taken = part.taken._replace(work=work)
        part.claim = Claimed(work, part.claim.token)
        return True

    def _has_ended(self, claim: Claimed) -> bool:
        """Whether an outcome of this claim is in the log already."""
        for recorded in self.ledger.read(claim.work.name, after=claim.token):
            if recorded.topic.partition(".")[2] not in _SAYS_NOTHING:
                return getattr(recorded.event, "token", None) == claim.token and _ours(recorded.topic)
        return False


def _ours(topic: str) -> bool:
    """Whether a worker records this at the end of a claim: no cancel, and no verdict of the reaper."""
    return topic.partition(".")[2] not in ("lease_expired", "lease_expired_requeue")


def _job(claim: Claimed, outcome: Outcome, job: Prepared) -> OpenJob:
    """A job that an operation prepared; of a deferred job it is a child."""
    fields = dict(job.fields)
    if isinstance(outcome, Deferred):
        fields.setdefault("parent", claim.work.state.id)
    return job_within(job.operation, job.payload, id=job.id, **fields)


def _said(outcome: Outcome) -> dict[str, Any]:
    match outcome:
        case Succeeded() | Deferred():
            return {"result": dict(outcome.result)}
        case Broken():
            return {"error_code": outcome.error_code, "message": outcome.message}
        case PutOff():
            return {"message": outcome.reason}
        case _:
            return {}
