"""
Work that is offered, claimed under a lease, and ended: what jobs and batches have in common.

Every claim has a token, the version of the fact that began it. What a worker records, it records under the
guard of that token (`under_lease`): after a takeover, a cancel or an expiry the guard refuses it, whatever
the worker believes. Reports, heartbeats and a cancel do not conflict, since no version is expected.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

from ..append import Append, append_of
from ..errors import ClaimLost, MoveNotAllowed
from ..expected import Guard
from ..frozen import changed
from ..stream import E, Stream
from .facts import (
    AttemptFailed,
    Cancelled,
    Discarded,
    Ended,
    Failed,
    LateResult,
    LeaseExpired,
    LeaseExpiredRequeue,
    Redriven,
    Reported,
    RetryLater,
    StallRequeue,
    Started,
    WorkFact,
)

LONGEST_DELAY: Final = 600.0
"""Seconds that work waits at most before it is tried again (spec S1-27)."""
MESSAGE: Final = 2000
"""Characters of an error's text that are kept in a state; the fact holds all of it (spec S1-26)."""
LEASE_EXPIRED: Final = "lease_expired"
"""The error code of work whose workers vanished too often."""


@dataclass(frozen=True, slots=True)
class Work:
    """What is true of a piece of work.

    token: of the claim that holds now, None without one. attempt: the number of the present or last claim;
    failures: how many of them failed and did not end it, of which max_attempts are allowed, the last one
    included; retries: how often it was put off in a row; requeues: how often its worker vanished. A redrive
    begins them anew. stalls: how often it was offered again because it waited. offered_at, delay_seconds: it
    is not claimed before the one and the other after it (`due_at`). late: how many results came after their
    claim was over. discarded: failed, and no dead letter any more.
    """

    status: str | None = None
    operation: str = ""
    queue: str = ""
    priority: int = 0
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    offered_at: datetime | None = None
    delay_seconds: float = 0.0
    worker: str | None = None
    token: int | None = None
    attempt: int = 0
    failures: int = 0
    retries: int = 0
    requeues: int = 0
    stalls: int = 0
    late: int = 0
    max_attempts: int = 1
    max_retries: int = 20
    max_requeues: int = 3
    timeout_seconds: float | None = None
    error_code: str | None = None
    error_message: str | None = None
    discarded: bool = False

    @property
    def due_at(self) -> datetime | None:
        """Not claimed before; None for what does not wait."""
        return None if self.offered_at is None else self.offered_at + timedelta(seconds=self.delay_seconds)


W = TypeVar("W", bound=Work)
U = TypeVar("U", bound="OpenWork[Any, Any]")


def evolve_work(work: W, event: WorkFact, at: datetime, status: str | None) -> W:
    """Apply one of the shared facts, which led to `status`. No rules here."""
    match event:
        case Started():
            return changed(
                work, status=status, started_at=at, worker=event.worker, token=event.token,
                attempt=event.attempt, offered_at=None, delay_seconds=0.0,
            )  # fmt: skip
        case Reported() | LateResult() | Discarded() | StallRequeue():
            return _noted(work, event)
        case Ended():
            return _over(work, status, at, error_code=None, error_message=None)
        case Failed():
            return _over(work, status, at, error_code=event.error_code, error_message=event.message[:MESSAGE])
        case LeaseExpired():
            return _over(work, status, at, error_code=LEASE_EXPIRED, error_message=_vanished(event))
        case Cancelled():
            return _over(work, status, at)
        case _:
            return _offered(work, event, at, status)


def _over(work: W, status: str | None, at: datetime, **changes: Any) -> W:
    return changed(
        work, status=status, finished_at=at, token=None, offered_at=None, delay_seconds=0.0, **changes
    )


def _noted(work: W, event: WorkFact) -> W:
    match event:
        case LateResult():
            return changed(work, late=work.late + 1)
        case Discarded():
            return changed(work, discarded=True)
        case StallRequeue():
            return changed(work, stalls=work.stalls + 1)
        case _:
            return work


def _offered(work: W, event: WorkFact, at: datetime, status: str | None) -> W:
    """It waits for a claim again (spec S1-27, S1-62)."""
    work = changed(
        work, status=status, token=None, worker=None, started_at=None, offered_at=at, delay_seconds=0.0
    )
    match event:
        case RetryLater():
            return changed(work, retries=event.retry_count, delay_seconds=event.delay_seconds)
        case AttemptFailed():
            return changed(
                work, retries=0, failures=work.failures + 1, delay_seconds=event.delay_seconds,
                error_code=event.error_code, error_message=event.message[:MESSAGE],
            )  # fmt: skip
        case LeaseExpiredRequeue():
            return changed(work, requeues=work.requeues + 1)
        case Redriven():
            return changed(
                work, operation=event.operation, queue=event.queue, priority=event.priority, finished_at=None,
                attempt=0, failures=0, retries=0, requeues=0, stalls=0, discarded=False,
            )  # fmt: skip
        case _:
            return work


def _vanished(event: LeaseExpired) -> str:
    return f"nothing was heard of its worker, {event.prior_requeues + 1} times: {event.worker or 'unknown'}"


class OpenWork(Stream[W, E], Generic[W, E]):
    """A piece of work opened for change. FACTS: which class of facts each shape has here, by its name."""

    FACTS: ClassVar[Mapping[str, type[WorkFact]]]
    RUNNING: ClassVar[frozenset[str]]
    """The statuses in which somebody has a claim."""
    WAITING: ClassVar[frozenset[str]]
    """The statuses in which it may be claimed."""

    @property
    def over(self) -> bool:
        """Whether it came to its end."""
        return self.state.status is not None and self.state.finished_at is not None

    @property
    def next_version(self) -> int:
        """The version that the next fact will have."""
        return self.version + len(self.news) + 1

    _leased = False

    def lease(self) -> int | None:
        return (self.state.token or 0) if self._leased else None

    @classmethod
    def token_in(cls, state: W) -> int | None:
        return state.token or 0

    def record(self, event: E) -> None:
        """As in Stream; facts that say in a field where they lead are checked too. Raises MoveNotAllowed."""
        before = self.state.token
        if event.to_field is not None:
            self.MOVES.check(self.state.status, getattr(event, event.to_field))
        super().record(event)
        self._leased |= self.state.token != before

    def settle(self, at: datetime) -> None:
        super().settle(at)
        self._leased = False

    @abstractmethod
    def start(self, worker: str) -> Self:
        """Claim it for a worker; the token is `state.token` then. Raises MoveNotAllowed."""

    @abstractmethod
    def waiting_status(self) -> str:
        """The status to which it goes when it is offered again."""

    # While it is claimed

    def report(self, event: str, **fields: Any) -> None:
        """What the operation says: as the fields of Reported."""
        self._say("Reported", token=self._token(), event=event, **fields)

    def fail(self, error_code: str, message: str = "", details: Mapping[str, Any] | None = None) -> None:
        """It failed for good."""
        facts = {"error_code": error_code, "message": message, "details": dict(details or {})}
        self._say("Failed", token=self.state.token, **facts, **self._what())

    def attempt_failed(
        self,
        error_code: str,
        message: str = "",
        details: Mapping[str, Any] | None = None,
        *,
        delay: float = 0,
        at_least: int = 1,
    ) -> None:
        """This attempt failed: offered again after `delay` seconds, or failed, if it was the last one.

        at_least: attempts that may be made even where max_attempts is less.
        """
        if self.state.failures + 1 >= max(self.state.max_attempts, at_least):
            self.fail(error_code, message, details)
            return
        facts = {"error_code": error_code, "message": message, "details": dict(details or {})}
        self._again(
            "AttemptFailed", attempt=self.state.attempt, delay_seconds=min(delay, LONGEST_DELAY), **facts
        )

    def retry_later(self, reason: str, delay_seconds: float = 60) -> None:
        """What it needs is busy: offered again after the delay, doubled each time in a row (spec S1-27).

        Failed with `RetriesExhausted` where that was tried max_retries times (W1-05).
        """
        tried = self.state.retries
        if tried >= self.state.max_retries:
            self.fail("RetriesExhausted", f"put off {tried} times in a row, at last because: {reason}")
            return
        delay = min(max(0.0, delay_seconds) * 2.0 ** min(tried, 64), LONGEST_DELAY)
        self._again("RetryLater", reason=reason, delay_seconds=delay, retry_count=tried + 1)

    def release(self, reason: str = "shutdown") -> None:
        """Give it back unfinished."""
        self._again("Released", reason=reason)

    def expire(self) -> None:
        """Its worker vanished: offered again within the budget, then failed (spec S1-62)."""
        facts = {
            "token": self._token(), "worker": self.state.worker,
            "prior_requeues": self.state.requeues, "max_requeues": self.state.max_requeues,
        }  # fmt: skip
        if self.state.requeues >= self.state.max_requeues:
            self._say("LeaseExpired", **facts, **self._what())
        else:
            self._again("LeaseExpiredRequeue", **facts)

    def under_lease(self, token: int) -> Append:
        """The append of the news, under the guard of a claim: refused once that is over."""
        guard = Guard(self.RUNNING, token)
        return append_of(self)._replace(expected=guard)

    def check_lease(self, token: int) -> None:
        """Raise ClaimLost unless the claim with this token holds."""
        if self.state.token != token:
            raise ClaimLost(self.name, f"the claim with token {token}")

    # While it is not

    def offer_again(self) -> None:
        """It waits for long though it is due (spec S1-63). Raises MoveNotAllowed where it does not wait."""
        if self.state.status not in self.WAITING:
            raise MoveNotAllowed(self.state.status, self.waiting_status())
        self._say("StallRequeue", **self._back(), queue=self.state.queue, prior_requeues=self.state.stalls)

    def cancel(self, reason: str | None = None) -> bool:
        """It shall not be done; False where it is over already: that is left as it is (spec C1-2)."""
        if self.over:
            return False
        self._say("Cancelled", reason=reason)
        return True

    def redrive(self, reason: str | None = None) -> None:
        """Offer anew what failed. Raises MoveNotAllowed for anything else, and for what was discarded."""
        now = self.state
        if now.status != "failed" or now.discarded:
            raise MoveNotAllowed("discarded" if now.discarded else now.status, self.waiting_status())
        facts = {"queue": now.queue, "operation": now.operation, "priority": now.priority, "reason": reason}
        self._say("Redriven", **self._back(), **facts)

    def discard(self, reason: str | None = None) -> bool:
        """It failed, and nobody shall look at it any more; False where it is no dead letter."""
        if self.state.status != "failed" or self.state.discarded:
            return False
        self._say("Discarded", reason=reason)
        return True

    def late(self, token: int, outcome: str, **facts: Any) -> LateResult:
        """The fact of a result that came too late; to be appended whatever the stream is at."""
        fact: LateResult = self._fact("LateResult", token=token, outcome=outcome, **facts)
        return fact

    # Recording

    def _what(self) -> dict[str, Any]:
        return {"operation": self.state.operation, "queue": self.state.queue}

    def _check_new(self) -> None:
        if self.state.status is not None:
            raise MoveNotAllowed(self.state.status, self.waiting_status())

    def _token(self) -> int:
        if self.state.token is None:
            raise ClaimLost(self.name, "the claim")
        return self.state.token

    def _again(self, shape: str, **facts: Any) -> None:
        self._say(shape, **{"token": self._token(), **self._back(), **facts})

    def _back(self) -> dict[str, Any]:
        """The field that says where it waits then, for facts whose topic does not say it."""
        return {}

    def _say(self, shape: str, **facts: Any) -> None:
        self.record(self._fact(shape, **facts))

    def _fact(self, shape: str, **facts: Any) -> Any:
        kind: type[Any] = self.FACTS[shape]
        return kind(**facts)


def facts_of(*kinds: type[WorkFact]) -> dict[str, type[WorkFact]]:
    """Fact classes by the name of their shape, the class that they extend."""
    return {kind.__mro__[1].__name__: kind for kind in kinds}
