"""
A batch of a job: a part of its work, computed by one worker and, where it has a second step, written by one.

    queued -> running -> completed | failed | cancelled
              running -> computed -> writing -> completed | failed | cancelled     (spec S1-41)
    running -> queued, writing -> computed     put off, given back, failed with attempts left, worker vanished
    failed -> queued | computed                redriven by command
    cancelled -> queued | computed             its job, which had failed, was reopened

Its stream is `batch/JOB/NR`; NR counts from 1, and in the second round of its job it is `2.1`, `2.2`, …. All
that it needs is in its payload, fixed when the batch was made (spec S1-44): it reads no rows that may change
meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Self

from ..domain.frozen import changed
from ..domain.moves import Moves
from ..errors import MoveNotAllowed
from . import facts
from .facts import Json, WorkFact
from .work import OpenWork, Work, check_offered, evolve_work, facts_of, made, payload_of, queue_name


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
JOB_REOPENED: Final = "job_reopened"
"""The reason of a redrive together with its job."""
BATCH_MOVES = Moves(
    {
        None: {S.QUEUED},
        S.QUEUED: {S.RUNNING, S.CANCELLED, S.QUEUED},
        S.RUNNING: {S.QUEUED, S.COMPUTED, S.COMPLETED, S.FAILED, S.CANCELLED},
        S.COMPUTED: {S.WRITING, S.CANCELLED, S.COMPUTED},
        S.WRITING: {S.COMPUTED, S.COMPLETED, S.FAILED, S.CANCELLED},
        S.FAILED: {S.QUEUED, S.COMPUTED},
        S.CANCELLED: {S.QUEUED, S.COMPUTED},
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
    """waits: `queued`, or `computed` for its second step; also in the facts below."""

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
    """payload_version: of the fact that holds its payload; None where it was not cancelled before."""

    waits: S = S.QUEUED
    payload_version: int | None = None


class BatchDiscarded(facts.Discarded, topic="batch.discarded"): ...


@dataclass(frozen=True, slots=True)
class Batch(Work):
    """The state of a batch. step: `running` or `writing`, the present or next one."""

    job: str = ""
    nr: str = ""
    under: int = 0
    step: str = S.RUNNING.value


def evolve(batch: Batch, event: WorkFact, at: datetime) -> Batch:
    """Apply a fact. It applies no rules: recorded facts are never refused."""
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
    """A batch open for change; its key is the id of its job and its number within the job."""

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
        """The last part of its key: the number, with the round before it from the second round on."""
        return str(nr) if round == 1 else f"{round}.{nr}"

    def queue(self, under: int, operation: str, queue: str, **fields: Any) -> None:
        """Hand it out in a round of its job: the fields of BatchQueued."""
        self._check_new()
        given = {"under": under, "operation": operation, "queue": queue_name(queue), **fields}
        given["payload"] = payload_of(f"a batch of {operation!r}", fields.get("payload"))
        queued = made(BatchQueued, f"a batch of {operation!r}", given)
        check_offered(queued)
        self.record(queued)

    def start(self, worker: str) -> Self:
        facts = {"worker": worker, "token": self.next_version, "attempt": self.state.attempt + 1}
        self._record_fact("Started", step=self.state.step, **facts)
        return self

    def waiting_status(self) -> str:
        return S.COMPUTED if self.state.step == S.WRITING else S.QUEUED

    def computed(self, operation: str, queue: str, payload: Json, result: Json | None = None) -> None:
        """Record that its first step is done; `payload` is for its second step."""
        self.record(
            BatchComputed(
                token=self._token(), operation=operation, queue=queue, payload=payload, result=result or {}
            )
        )

    def complete(self, result: Json | None = None) -> None:
        """Record that it was done."""
        self._record_fact("Ended", token=self._token(), result=result or {})

    def redrive_with_job(self, payload_version: int) -> None:
        """Offer it again after its job was reopened, because it failed or was cancelled with its job.

        payload_version: as in BatchRedriven. Raises MoveNotAllowed for one that completed or is not over.
        """
        now = self.state
        if not self.over:
            raise MoveNotAllowed(now.status, self.waiting_status())
        facts = {"queue": now.queue, "operation": now.operation, "priority": now.priority}
        self._record_fact(
            "Redriven", **self._back(), **facts, payload_version=payload_version, reason=JOB_REOPENED
        )

    def _back(self) -> dict[str, Any]:
        return {"waits": self.waiting_status()}
