"""
A batch of a job: a part of its work, computed by one worker and, where it has a second step, written by one.

    queued -> running -> completed | failed | cancelled
              running -> computed -> writing -> completed | failed | cancelled     (spec S1-41)
    running -> queued, writing -> computed     put off, given back, failed with attempts left, worker vanished
    failed -> queued | computed                redriven by somebody

Its stream is `batch/JOB/NR`; NR counts from 1, in a second round of the same job as `2.1`. What it needs is
in its payload, as it was when the batch was made (spec S1-44): nobody reads rows that may change meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Self

from ..frozen import changed
from ..moves import Moves
from . import facts
from .checking import check_offered, made, queue_name
from .facts import Json, WorkFact
from .work import OpenWork, Work, evolve_work, facts_of


class BatchStatus(StrEnum):
    """The statuses of a batch."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPUTED = "computed"
    WRITING = "writing"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


S = BatchStatus
BATCH_TERMINAL: Final = frozenset({S.COMPLETED, S.FAILED, S.CANCELLED})
BATCH_MOVES = Moves(
    {
        None: {S.QUEUED},
        S.QUEUED: {S.RUNNING, S.CANCELLED, S.QUEUED},
        S.RUNNING: {S.QUEUED, S.COMPUTED, S.COMPLETED, S.FAILED, S.CANCELLED},
        S.COMPUTED: {S.WRITING, S.CANCELLED, S.COMPUTED},
        S.WRITING: {S.COMPUTED, S.COMPLETED, S.FAILED, S.CANCELLED},
        S.FAILED: {S.QUEUED, S.COMPUTED},
    }
)


class BatchQueued(WorkFact, topic="batch.queued", to=S.QUEUED):
    """It was handed out. under: the round of its job, from 1. Fields as in JobCreated."""

    under: int
    operation: str
    queue: str
    payload: Json = {}
    priority: int = 0
    max_attempts: int = 3
    max_retries: int = 20
    max_requeues: int = 3
    timeout_seconds: float | None = None


class BatchStarted(facts.Started, topic="batch.started", to_field="step"):
    """step: `running`, or `writing` for its second step."""

    step: S = S.RUNNING


class BatchReported(facts.Reported, topic="batch.reported"): ...


class BatchComputed(WorkFact, topic="batch.computed", to=S.COMPUTED):
    """Its first step is done; operation, queue and payload are of the second (spec S1-41)."""

    token: int
    operation: str
    queue: str
    payload: Json = {}
    result: Json = {}


class BatchCompleted(facts.Ended, topic="batch.completed", to=S.COMPLETED): ...


class BatchFailed(facts.Failed, topic="batch.failed", to=S.FAILED): ...


class BatchAttemptFailed(facts.AttemptFailed, topic="batch.attempt_failed", to_field="waits"):
    """waits: `queued`, or `computed` for its second step; as in those below."""

    waits: S = S.QUEUED


class BatchRetryLater(facts.RetryLater, topic="batch.retry_later", to_field="waits"):
    waits: S = S.QUEUED


class BatchReleased(facts.Released, topic="batch.released", to_field="waits"):
    waits: S = S.QUEUED


class BatchLeaseExpiredRequeue(
    facts.LeaseExpiredRequeue, topic="batch.lease_expired_requeue", to_field="waits"
):
    waits: S = S.QUEUED


class BatchLeaseExpired(facts.LeaseExpired, topic="batch.lease_expired", to=S.FAILED): ...


class BatchStallRequeue(facts.StallRequeue, topic="batch.queue_stall_requeue", to_field="waits"):
    waits: S = S.QUEUED


class BatchCancelled(facts.Cancelled, topic="batch.cancelled", to=S.CANCELLED): ...


class BatchLateResult(facts.LateResult, topic="batch.late_result"): ...


class BatchRedriven(facts.Redriven, topic="batch.redriven", to_field="waits"):
    waits: S = S.QUEUED


class BatchDiscarded(facts.Discarded, topic="batch.discarded"): ...


@dataclass(frozen=True, slots=True)
class Batch(Work):
    """What is true of a batch. step: `running` or `writing`, the one that it is at or comes to next."""

    job: str = ""
    nr: str = ""
    under: int = 0
    step: str = S.RUNNING.value


def evolve(batch: Batch, event: WorkFact, at: datetime) -> Batch:
    """Apply a fact. No rules here: the past is not up for debate."""
    match event:
        case BatchQueued():
            same = (
                "under", "operation", "queue", "priority", "max_attempts", "max_retries", "max_requeues",
                "timeout_seconds",
            )  # fmt: skip
            given = {name: getattr(event, name) for name in same}
            return changed(batch, status=S.QUEUED.value, created_at=at, offered_at=at, **given)
        case BatchComputed():
            return changed(
                batch, status=S.COMPUTED.value, operation=event.operation, queue=event.queue,
                step=S.WRITING.value, token=None, worker=None, started_at=None, offered_at=at,
                failures=0, retries=0,
            )  # fmt: skip
        case _:
            return evolve_work(batch, event, at, _leads_to(event))


def _leads_to(event: WorkFact) -> str | None:
    to = event.to if event.to_field is None else getattr(event, event.to_field)
    return None if to is None else str(to)


class OpenBatch(OpenWork[Batch, WorkFact]):
    """A batch open for change; its key is the id of its job, and its number there."""

    CATEGORY, MOVES, STATE, STATE_SCHEMA = "batch", BATCH_MOVES, Batch, 1
    RUNNING, WAITING = frozenset({S.RUNNING, S.WRITING}), frozenset({S.QUEUED, S.COMPUTED})
    evolve = staticmethod(evolve)
    FACTS = MappingProxyType(
        facts_of(
            BatchStarted, BatchReported, BatchCompleted, BatchFailed, BatchAttemptFailed, BatchRetryLater,
            BatchReleased, BatchLeaseExpiredRequeue, BatchLeaseExpired, BatchStallRequeue, BatchCancelled,
            BatchLateResult, BatchRedriven, BatchDiscarded,
        )
    )  # fmt: skip

    @classmethod
    def initial(cls, *key: str | int) -> Batch:
        return Batch(job=str(key[0]), nr=str(key[1])) if len(key) > 1 else Batch()

    @staticmethod
    def number(round: int, nr: int) -> str:
        """The last part of its key: the number, from the second round on after that of the round."""
        return str(nr) if round == 1 else f"{round}.{nr}"

    def queue(self, under: int, operation: str, queue: str, **fields: Any) -> None:
        """Hand it out in a round of its job: as the fields of BatchQueued."""
        self._check_new()
        given = {"under": under, "operation": operation, "queue": queue_name(queue), **fields}
        queued = made(BatchQueued, f"a batch of {operation!r}", given)
        check_offered(queued)
        self.record(queued)

    def start(self, worker: str) -> Self:
        facts = {"worker": worker, "token": self.next_version, "attempt": self.state.attempt + 1}
        self._say("Started", step=self.state.step, **facts)
        return self

    def waiting_status(self) -> str:
        return S.COMPUTED if self.state.step == S.WRITING else S.QUEUED

    def computed(self, operation: str, queue: str, payload: Json, result: Json | None = None) -> None:
        """Its first step is done, and what its second one needs is in `payload`."""
        self.record(
            BatchComputed(
                token=self._token(), operation=operation, queue=queue, payload=payload, result=result or {}
            )
        )

    def complete(self, result: Json | None = None) -> None:
        """It was done."""
        self._say("Ended", token=self._token(), result=result or {})

    def _back(self) -> dict[str, Any]:
        return {"waits": self.waiting_status()}
