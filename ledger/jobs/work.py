"""
Work that is offered, claimed under a lease, and ended: the common part of jobs and batches.

Every claim has a fencing token, the version of the fact that began it. A worker's appends are guarded by
that token (`under_lease`): after a takeover, a cancel or an expiry the guard refuses them. Reports, renewals
of leases and a cancel do not conflict, because they expect no version.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, ClassVar, Final, Generic, Protocol, Self, TypeVar

from pydantic import BaseModel, ValidationError

from ..domain.frozen import changed
from ..domain.known import KNOWN
from ..domain.names import split_name, stream_name
from ..domain.stream import E, Stream
from ..errors import BadInput, ClaimLost, MoveNotAllowed, shown
from ..log.append import Append, Guard, append_of
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
"""Maximum seconds before work that was put off is tried again (spec S1-27)."""
MESSAGE: Final = 2000
"""Characters of an error's text that a state keeps; the fact holds all of it (spec S1-26)."""
LEASE_EXPIRED: Final = "lease_expired"
"""The error code of work whose workers vanished too often."""
FURTHEST: Final = timedelta(days=36525)
"""The longest delay of work: a hundred years, so that every time can be shown in every zone."""
_FURTHEST: Final = FURTHEST.total_seconds()
LARGEST: Final = 2**31 - 1
"""Largest priority and budget; the smallest priority is one below its negative."""
MAX_WRONGS: Final = 5
"""Maximum number of wrong fields that an error lists."""


@dataclass(frozen=True, slots=True)
class Work:
    """The state of a piece of work.

    token: of the claim that holds now, None without one. attempt: the number of the present or last claim;
    failures: how many attempts failed without ending it; max_attempts is their limit, including the last;
    retries: how often it was put off in a row; requeues: how often its worker vanished. A redrive resets
    them. stalls: how often it was offered again because it waited. offered_at, delay_seconds: it
    is not claimed before the one and the other after it (`due_at`). late: how many results came after their
    claim was over. discarded: it failed, and is no longer a dead letter.
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
        """The time before which it is not claimed; None for work that does not wait."""
        return None if self.offered_at is None else self.offered_at + timedelta(seconds=self.delay_seconds)


W = TypeVar("W", bound=Work)
M = TypeVar("M", bound=BaseModel)


def evolve_work(work: W, event: WorkFact, at: datetime, status: str | None) -> W:
    """Apply one of the shared facts, which led to `status`. It applies no rules."""
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
    return f"its worker vanished {event.prior_requeues + 1} times, at last {event.worker or 'an unknown one'}"


class OpenWork(Stream[W, E], Generic[W, E]):
    """A piece of work open for change. FACTS: the class of facts for each shape, by the shape's name."""

    FACTS: ClassVar[Mapping[str, type[WorkFact]]]
    RUNNING: ClassVar[frozenset[str]]
    """The statuses in which a worker has a claim."""
    WAITING: ClassVar[frozenset[str]]
    """The statuses in which it may be claimed."""

    @property
    def over(self) -> bool:
        """Whether it has ended."""
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
        """As in Stream; also checks facts whose field names the next status. Raises MoveNotAllowed."""
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
        """Claim it for a worker; the token is then `state.token`. Raises MoveNotAllowed."""

    @abstractmethod
    def waiting_status(self) -> str:
        """The status that it gets when it is offered again."""

    # While it is claimed

    def report(self, event: str, **fields: Any) -> None:
        """Record a report of the operation: the fields of Reported."""
        self._record_fact("Reported", token=self._token(), event=event, **fields)

    def fail(self, error_code: str, message: str = "", details: Mapping[str, Any] | None = None) -> None:
        """Record that it failed for good."""
        facts = {"error_code": error_code, "message": message, "details": dict(details or {})}
        self._record_fact("Failed", token=self.state.token, **facts, **self._identity())

    def attempt_failed(
        self,
        error_code: str,
        message: str = "",
        details: Mapping[str, Any] | None = None,
        *,
        delay: float = 0,
        at_least: int = 1,
    ) -> None:
        """Record that this attempt failed: offered again after `delay` seconds, or failed if it was the last.

        at_least: attempts that may be made even if max_attempts is smaller.
        """
        if self.state.failures + 1 >= max(self.state.max_attempts, at_least):
            self.fail(error_code, message, details)
            return
        facts = {"error_code": error_code, "message": message, "details": dict(details or {})}
        self._again(
            "AttemptFailed", attempt=self.state.attempt, delay_seconds=min(delay, LONGEST_DELAY), **facts
        )

    def retry_later(self, reason: str, delay_seconds: float = 60) -> None:
        """Put it off, because a resource is busy; the delay doubles each time in a row (spec S1-27).

        It fails with `RetriesExhausted` after max_retries times (W1-05).
        """
        tried = self.state.retries
        if tried >= self.state.max_retries:
            self.fail("RetriesExhausted", f"put off {tried} times in a row; the last reason: {reason}")
            return
        delay = min(max(0.0, delay_seconds) * 2.0 ** min(tried, 64), LONGEST_DELAY)
        self._again("RetryLater", reason=reason, delay_seconds=delay, retry_count=tried + 1)

    def release(self, reason: str = "shutdown") -> None:
        """Give it back unfinished."""
        self._again("Released", reason=reason)

    def expire(self) -> None:
        """Record that its worker vanished: offered again within the budget, else failed (spec S1-62)."""
        facts = {
            "token": self._token(), "worker": self.state.worker,
            "prior_requeues": self.state.requeues, "max_requeues": self.state.max_requeues,
        }  # fmt: skip
        if self.state.requeues >= self.state.max_requeues:
            self._record_fact("LeaseExpired", **facts, **self._identity())
        else:
            self._again("LeaseExpiredRequeue", **facts)

    def under_lease(self, token: int) -> Append:
        """The append of the news, guarded by a claim: refused once the claim is over."""
        guard = Guard(self.RUNNING, token)
        return append_of(self)._replace(expected=guard)

    def check_lease(self, token: int) -> None:
        """Raise ClaimLost unless the claim with this token holds."""
        if self.state.token != token:
            raise ClaimLost(self.name, f"the claim with token {token}")

    # Without a claim

    def offer_again(self) -> None:
        """Offer it again: it is long due (spec S1-63). Raises MoveNotAllowed if it is not waiting."""
        if self.state.status not in self.WAITING:
            raise MoveNotAllowed(self.state.status, self.waiting_status())
        self._record_fact(
            "StallRequeue", **self._back(), queue=self.state.queue, prior_requeues=self.state.stalls
        )

    def cancel(self, reason: str | None = None) -> bool:
        """Cancel it; False if it is over already, and stays as it is (spec C1-2)."""
        if self.over:
            return False
        self._record_fact("Cancelled", reason=reason)
        return True

    def redrive(self, reason: str | None = None) -> None:
        """Offer failed work again. Raises MoveNotAllowed for any other work, also for discarded work."""
        now = self.state
        if now.status != "failed" or now.discarded:
            raise MoveNotAllowed("discarded" if now.discarded else now.status, self.waiting_status())
        facts = {"queue": now.queue, "operation": now.operation, "priority": now.priority, "reason": reason}
        self._record_fact("Redriven", **self._back(), **facts)

    def discard(self, reason: str | None = None) -> bool:
        """Discard a dead letter; False if it is not one."""
        if self.state.status != "failed" or self.state.discarded:
            return False
        self._record_fact("Discarded", reason=reason)
        return True

    def late(self, token: int, outcome: str, **facts: Any) -> LateResult:
        """The fact of a late result; append it without an expected version."""
        fact: LateResult = self._fact("LateResult", token=token, outcome=outcome, **facts)
        return fact

    # Record

    def _identity(self) -> dict[str, Any]:
        return {"operation": self.state.operation, "queue": self.state.queue}

    def _check_new(self) -> None:
        if self.state.status is not None:
            raise MoveNotAllowed(self.state.status, self.waiting_status())

    def _token(self) -> int:
        if self.state.token is None:
            raise ClaimLost(self.name, "the claim")
        return self.state.token

    def _again(self, shape: str, **facts: Any) -> None:
        self._record_fact(shape, **{"token": self._token(), **self._back(), **facts})

    def _back(self) -> dict[str, Any]:
        """The field with the status in which it waits then, for facts whose topic does not determine it."""
        return {}

    def _record_fact(self, shape: str, **facts: Any) -> None:
        self.record(self._fact(shape, **facts))

    def _fact(self, shape: str, **facts: Any) -> Any:
        kind: type[Any] = self.FACTS[shape]
        return kind(**facts)


def work_at(stream: str) -> OpenWork[Any, Any]:
    """The job or batch with this name, as it is before its first fact. Raises BadInput for another stream."""
    category, key = split_name(stream)
    kind = KNOWN.streams.get(category)
    if kind is None or not issubclass(kind, OpenWork) or not key:
        raise BadInput(f"{stream} is not the stream of a job (job/ID) or a batch (batch/ID/NR)")
    return kind(*key)


def facts_of(*kinds: type[WorkFact]) -> dict[str, type[WorkFact]]:
    """Fact classes by the name of their shape, the class that they extend."""
    return {kind.__mro__[1].__name__: kind for kind in kinds}


# Checks before work is recorded


class Offered(Protocol):
    """A fact that offers work, such as JobCreated and BatchQueued."""

    @property
    def operation(self) -> str: ...
    @property
    def queue(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def timeout_seconds(self) -> float | None: ...


def made(kind: type[M], what: str, fields: Mapping[str, Any]) -> M:
    """A fact with these fields. Raises BadInput, which names invalid fields and their place."""
    try:
        return kind(**fields)
    except ValidationError as error:
        wrongs = [
            f"{'.'.join(map(str, one['loc'][:4]))}: {one['msg']}" for one in error.errors()[:MAX_WRONGS]
        ]
        raise BadInput(f"{what} is not as it should be: {'; '.join(dict.fromkeys(wrongs))}") from None
    except TypeError as error:  # a field name that is not text
        raise BadInput(f"{what} is not as it should be: {error}") from None


def check_offered(fact: Offered) -> None:
    """Refuse work that no worker could claim. Raises BadInput, BadName."""
    if not fact.operation or not fact.queue:
        raise BadInput("a job needs an operation and a queue, each a name that is not empty")
    _check_name("operation", fact.operation)
    _check_name("queue", fact.queue)
    if not -LARGEST - 1 <= fact.priority <= LARGEST:
        raise BadInput(f"priority {shown(fact.priority)} must be an integer of 32 bits; the default is 0")
    for name, least in (("max_attempts", 1), ("max_retries", 0), ("max_requeues", 0)):
        if not least <= getattr(fact, name) <= LARGEST:
            raise BadInput(f"{name} {shown(getattr(fact, name))} must be from {least} to {LARGEST}")
    if fact.timeout_seconds is not None and not fact.timeout_seconds > 0:
        raise BadInput("timeout_seconds must be more than 0; leave it out for no limit")


@lru_cache(maxsize=1024)
def _check_name(category: str, name: str) -> None:
    """Raise BadName for a name that cannot be part of a stream's name."""
    stream_name(category, name)


def payload_of(what: str, payload: object) -> Mapping[str, Any]:
    """The payload of `what`, empty for None. Raises BadInput for a value that is not a mapping."""
    if payload is None:
        return {}
    if not isinstance(payload, Mapping):
        kind = type(payload).__name__
        raise BadInput(
            f"the payload {shown(payload)} of {what} must be a mapping such as {{'n': 1}}, not a {kind}"
        )
    return payload


def queue_name(queue: object) -> str:
    """A queue's canonical name, without surrounding space (spec 2.7). Raises BadInput, BadName."""
    if not isinstance(queue, str) or not queue.strip():
        raise BadInput(f"queue {shown(queue)} must be text that is not empty")
    stream_name("queue", queue.strip())
    return queue.strip()


def seconds_of(delay: object) -> float:
    """A delay in seconds, 0 for None. Raises BadInput for an invalid delay."""
    if delay is None:
        return 0.0
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if isinstance(seconds, int | float) and type(seconds) is not bool and 0 <= seconds <= _FURTHEST:
        return float(seconds)
    raise BadInput(f"delay {shown(delay)} must be a timedelta or a number of seconds, from 0 to 100 years")


def moment(run_at: object) -> datetime | None:
    """A time in UTC. Raises BadInput for one without a zone, or that some zone cannot show."""
    if run_at is None:
        return None
    if not isinstance(run_at, datetime) or run_at.utcoffset() is None:
        raise BadInput(
            f"run_at {shown(run_at)} must be a datetime with a time zone, such as datetime.now(UTC)"
        )
    try:
        at = run_at.astimezone(UTC)
    except OverflowError:
        at = datetime.max.replace(tzinfo=UTC)
    if not 1970 <= at.year < 9000:
        raise BadInput(f"run_at {run_at.isoformat()} must lie between the years 1970 and 9000")
    return at
