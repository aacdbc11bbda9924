"""
What a worker records: claims and outcomes, many in one append, each under its own condition.

A claim expects exactly the version that was read, an outcome the guard of its claim. When one is refused, the
log is read to find out whether this worker recorded it itself, in an append whose answer was lost.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import uniform
from typing import Any, Final

from ledger import Ledger, acting
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
from ledger.jobs import OpenBatch, OpenJob
from ledger.jobs.jobs import job_within
from ledger.jobs.work import OpenWork
from ledger.log.append import Append

from .claim import Claim, Offer, claim
from .messages import (
    AlreadyRecorded,
    Deferred,
    Failed,
    Outcome,
    Prepared,
    RetryLater,
    Stopped,
    Succeeded,
    UnknownHere,
)

FIRST_DELAY: Final = 1.0
"""Seconds until failed work with attempts left runs again; doubled each time."""
TRANSIENT_ATTEMPTS: Final = 3
"""Attempts after failures of the infrastructure, even where max_attempts is less."""
TRANSIENT_DELAY: Final = 10.0
"""Maximum seconds until such an attempt, before the jitter of 0.3."""
_RETRIED: Final = (LedgerBusy, StorageFull, ReadOnly, NoPermission, AppendUncertain)
"""Errors that are not caused by what is recorded."""
_NO_END: Final = frozenset({"reported", "dispatching", "late_result"})
"""Facts with the token of a claim that do not end the claim."""

_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class Part:
    """The part of one stream in an append: its claim (then `taken` is the offer), or its outcome.

    recorded: None until it is appended; then whether it is in the log. claimed: it must now be run.
    """

    claim: Claim
    appends: list[Append]
    taken: Offer | None = None
    outcome: Outcome | None = None
    claimed: bool = False
    recorded: bool | None = None
    streams: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.streams = frozenset(append.stream for append in self.appends)


def claim_part(offer: Offer, worker: str) -> Part:
    """The claim of an offer."""
    appends, claimed = claim(offer, worker)
    return Part(Claim(offer.work, offer.token), appends, taken=offer, claimed=claimed)


def outcome_part(claim: Claim, outcome: Outcome) -> Part:
    """The outcome of a claim. One that cannot be recorded becomes a failure with the reason."""
    if isinstance(outcome, AlreadyRecorded):
        return Part(claim, [], outcome=outcome, recorded=True)
    work, before = claim.work, claim.work.state
    try:
        decide(work, outcome)
        appends = [work.under_lease(claim.token), *(_append_of(claim, outcome, job) for job in outcome.jobs)]
    except (LedgerError, ValueError, TypeError) as error:
        work.restore(before, work.version)
        work.news.clear()
        outcome = unrecordable(claim, error)
        decide(work, outcome)
        appends = [work.under_lease(claim.token)]
    return Part(claim, appends, outcome=outcome)


def unrecordable(claim: Claim, error: BaseException) -> Failed:
    """The failure of a claim whose outcome cannot be recorded."""
    message = f"the outcome cannot be recorded: {error}"
    return Failed(claim.work.name, claim.token, error_code=type(error).__name__, message=message)


def decide(work: OpenWork[Any, Any], outcome: Outcome) -> None:
    """Record the outcome of a task on its stream. Raises ClaimLost, MoveNotAllowed, TypeError."""
    match outcome:
        case Succeeded():
            _succeed(work, outcome)
        case Deferred() if isinstance(work, OpenJob):
            children = [job.id for job in outcome.jobs]
            work.dispatch(
                outcome.batches, children, failure_ratio=outcome.failure_ratio, result=dict(outcome.result)
            )
        case RetryLater():
            work.retry_later(outcome.reason, outcome.delay_seconds)
        case Failed(transient=True):  # spec S1-29
            delay = min(FIRST_DELAY * 2.0 ** min(work.state.failures, 20), TRANSIENT_DELAY)
            work.attempt_failed(
                outcome.error_code, outcome.message, outcome.details,
                delay=delay * uniform(0.7, 1.3), at_least=TRANSIENT_ATTEMPTS,
            )  # fmt: skip
        case Failed():
            delay = FIRST_DELAY * 2.0 ** min(work.state.failures, 20)
            work.attempt_failed(outcome.error_code, outcome.message, outcome.details, delay=delay)
        case Stopped():
            work.release("unknown_operation" if isinstance(outcome, UnknownHere) else "shutdown")
        case _:
            raise TypeError(f"{type(outcome).__name__} is not a possible outcome of {work.name}")


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


class Recorder:
    """Records the parts of a worker; for a claim that is over, a late result that changes nothing (W1-03).

    The actor is the worker, as in the events that its operations record.
    """

    def __init__(self, ledger: Ledger, worker: str) -> None:
        self.ledger, self.worker = ledger, worker

    def record(self, parts: Sequence[Part]) -> None:
        """Record those that are not recorded yet, in one append where possible.

        Raises ServerUnavailable and the like; it may then be called again with the same parts: nothing is
        recorded twice, even if the answer to an append was lost.
        """
        with acting(actor=self.worker):
            while waiting := [part for part in parts if part.recorded is None]:
                self._record(waiting)

    def _record(self, waiting: Sequence[Part]) -> None:
        try:
            self._append(waiting)
        except (GuardFailed, StreamConflict) as error:
            self._settle_refusal(next(part for part in waiting if error.stream in part.streams), error.stream)
        except _RETRIED:
            raise
        except (Refused, BadInput) as error:
            if len(waiting) > 1:  # find out which one it is
                for part in waiting:
                    self.record([part])
            else:
                self._unrecordable(waiting[0], error)

    def _append(self, parts: Sequence[Part]) -> None:
        appended = self.ledger.append_all([append for part in parts for append in part.appends])
        for part in parts:
            part.claim.work.settle(appended.recorded_at)
            part.recorded = True

    def _settle_refusal(self, part: Part, stream: str) -> None:
        """One part was refused: another writer came first, the claim is over, or it is recorded already."""
        work, token = part.claim
        if part.outcome is None:
            part.recorded = part.claimed and self._is_ours(part)
        elif stream != work.name and not self._has_ended(
            part.claim
        ):  # the id of a job that it submits is taken
            self._replace_outcome(part, unrecordable(part.claim, StreamConflict(stream, "a new stream", 1)))
        else:
            part.recorded = self._has_ended(part.claim)
            if not part.recorded and not isinstance(part.outcome, Stopped):
                word = type(part.outcome).__name__.lower()
                fact = work.late(token, word, **_late_fields(part.outcome))
                self.ledger.append(work.name, fact, command=f"late:{work.name}:{token}")

    def _unrecordable(self, part: Part, error: LedgerError) -> None:
        """It can never be recorded: its job fails, if that can be recorded; else its lease runs out."""
        _log.error("%s: %s", part.claim.work.name, error)
        if part.outcome is None or isinstance(part.outcome, Failed | Stopped):
            part.recorded = False
        else:
            self._replace_outcome(part, unrecordable(part.claim, error))

    def _replace_outcome(self, part: Part, outcome: Outcome) -> None:
        """Replace the outcome of a claim, if the claim still holds in the log."""
        work = self.ledger.load(type(part.claim.work), *part.claim.work.key)
        if work.state.token != part.claim.token:
            part.recorded = False
            return
        other = outcome_part(Claim(work, part.claim.token), outcome)
        part.claim, part.appends, part.outcome = other.claim, other.appends, other.outcome
        part.streams = other.streams

    def _is_ours(self, part: Part) -> bool:
        """Whether the claim is in the log after all."""
        work = self.ledger.load(type(part.claim.work), *part.claim.work.key)
        if work.state.token != part.claim.token or work.state.worker != self.worker:
            return False
        assert part.taken is not None
        part.taken = part.taken._replace(work=work)
        part.claim = Claim(work, part.claim.token)
        return True

    def _has_ended(self, claim: Claim) -> bool:
        """Whether an outcome of this claim is in the log already."""
        for recorded in self.ledger.read(claim.work.name, after=claim.token):
            if recorded.topic.partition(".")[2] not in _NO_END:
                return getattr(recorded.event, "token", None) == claim.token and _ours(recorded.topic)
        return False


def _ours(topic: str) -> bool:
    """Whether a worker records this at the end of a claim: it is not a cancel or the reaper's decision."""
    return topic.partition(".")[2] not in ("lease_expired", "lease_expired_requeue")


def _append_of(claim: Claim, outcome: Outcome, job: Prepared) -> Append:
    """The append of a job that an operation prepared; of a deferred job it is a child."""
    fields = dict(job.fields)
    if isinstance(outcome, Deferred):
        fields.setdefault("parent", claim.work.state.id)
    return job_within(job.operation, job.payload, id=job.id, **fields).append


def _late_fields(outcome: Outcome) -> dict[str, Any]:
    match outcome:
        case Succeeded() | Deferred():
            return {"result": dict(outcome.result)}
        case Failed():
            return {"error_code": outcome.error_code, "message": outcome.message}
        case RetryLater():
            return {"message": outcome.reason}
        case _:
            return {}
