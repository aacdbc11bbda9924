"""
A job: offered, claimed by one worker under a lease, run to one end.

    queued -> running -> succeeded | failed | cancelled
    queued -> cancelled
    running -> queued       put off, given back, failed with attempts left, or its worker vanished
    running -> running      dispatched: its batches and child jobs go on, no worker has it (spec S1-40)
    queued -> queued        offered again, since it waits for long
    failed -> queued        redriven by somebody

A cancel is final at once: what its worker has to say afterwards is kept as `job.late_result` and changes
nothing. A dispatched job is closed by the set of its batches and children, counted in the order of the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Self

from pydantic import JsonValue

from ..errors import BadInput
from ..frozen import FrozenDict, changed
from ..moves import Moves
from ..sets import Total, UnitSet, know
from ..state import TREE
from . import facts
from .checking import check_offered, made, moment, queue_name, seconds_of
from .facts import Json, WorkFact
from .work import OpenWork, Work, evolve_work, facts_of


class Status(StrEnum):
    """The statuses of a job (spec S1-01)."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


TERMINAL: Final = frozenset({Status.SUCCEEDED, Status.FAILED, Status.CANCELLED})
ACTIVE: Final = frozenset({Status.QUEUED, Status.RUNNING})
"""The statuses in which a deduplication key is taken (spec S1-71)."""

MOVES = Moves(
    {
        None: {Status.QUEUED},
        Status.QUEUED: {Status.RUNNING, Status.CANCELLED, Status.QUEUED},
        Status.RUNNING: {Status.QUEUED, Status.SUCCEEDED, Status.FAILED, Status.CANCELLED},
        Status.FAILED: {Status.QUEUED},
    }
)

# Facts: what happened, and the status it leads to.


class JobCreated(WorkFact, topic="job.created", to=Status.QUEUED):
    """It was submitted (spec S1-01). max_attempts: how often it may fail in all.

    run_at: not before; delay_seconds: not before so long after it was recorded, by the database's clock.
    max_retries: how often in a row it may be put off; max_requeues: how often its worker may vanish.
    timeout_seconds: an attempt is ended after it. parent: the id of the job that it is a child of.
    """

    operation: str
    queue: str = "default"
    payload: Json = {}
    meta: Json = {}
    priority: int = 0
    parent: str | None = None
    description: str | None = None
    tags: tuple[str, ...] = ()
    dedup_key: str | None = None
    run_at: datetime | None = None
    delay_seconds: float = 0.0
    max_attempts: int = 1
    max_retries: int = 20
    max_requeues: int = 3
    timeout_seconds: float | None = None


class JobStarted(facts.Started, topic="job.started", to=Status.RUNNING): ...


class JobReported(facts.Reported, topic="job.reported"): ...


class JobDispatching(WorkFact, topic="job.dispatching"):
    """Its operation begins to hand out batches: the set of them begins anew. round: from 1."""

    token: int
    round: int


class JobDispatched(WorkFact, topic="job.dispatched"):
    """Its operation is over, and `batches` batches and the child jobs `children` go on without it (S1-40).

    failure_ratio: it fails as soon as so large a part of them all failed; 1: when all did (spec S1-45).
    """

    token: int
    batches: int = 0
    children: tuple[str, ...] = ()
    failure_ratio: float = 1.0
    result: Json = {}


class JobChildAdded(WorkFact, topic="job.child_added"):
    """Another job was submitted as a child of this one."""

    child: str


class JobSucceeded(facts.Ended, topic="job.succeeded", to=Status.SUCCEEDED):
    """via: `last_batch_stored` where the last of its set closed it. failed: how many of the set failed."""

    progress_current: int | None = None
    progress_total: int | None = None
    via: str | None = None
    failed: int = 0


class JobFailed(facts.Failed, topic="job.failed", to=Status.FAILED):
    """via: `child_failure_aggregate` where its set closed it; reason: `all_children_failed` (spec 2.3)."""

    reason: str | None = None
    via: str | None = None


class JobAttemptFailed(facts.AttemptFailed, topic="job.attempt_failed", to=Status.QUEUED): ...


class JobRetryLater(facts.RetryLater, topic="job.retry_later", to=Status.QUEUED): ...


class JobReleased(facts.Released, topic="job.released", to=Status.QUEUED): ...


class JobLeaseExpiredRequeue(
    facts.LeaseExpiredRequeue, topic="job.lease_expired_requeue", to=Status.QUEUED
): ...


class JobLeaseExpired(facts.LeaseExpired, topic="job.lease_expired", to=Status.FAILED): ...


class JobStallRequeue(facts.StallRequeue, topic="job.queue_stall_requeue", to=Status.QUEUED): ...


class JobCancelled(facts.Cancelled, topic="job.cancelled", to=Status.CANCELLED): ...


class JobLateResult(facts.LateResult, topic="job.late_result"): ...


class JobRedriven(facts.Redriven, topic="job.redriven", to=Status.QUEUED): ...


class JobDiscarded(facts.Discarded, topic="job.discarded"): ...


class JobCommented(WorkFact, topic="job.commented"):
    """Somebody's words on it (spec S1-03)."""

    text: str
    author: str | None = None


class JobDescribed(WorkFact, topic="job.described"):
    """What it is about, and what was found; only what is given changes."""

    description: str | None = None
    findings: str | None = None
    tags: tuple[str, ...] | None = None


# State: what is true now.


def _nothing() -> Mapping[str, JsonValue]:
    return FrozenDict()


@dataclass(frozen=True, slots=True)
class Job(Work):
    """What is true of a job. payload and meta are filled in when one job is read, and not kept with it.

    rounds: how often batches were handed out. dispatched: its operation is over, its set is not. batches: how
    many it expects; children: ids of its child jobs. failure_ratio: as in JobDispatched.
    """

    id: str = ""
    parent: str | None = None
    description: str | None = None
    findings: str | None = None
    tags: tuple[str, ...] = ()
    dedup_key: str | None = None
    progress_current: int | None = None
    progress_total: int | None = None
    rounds: int = 0
    dispatched: bool = False
    batches: int = 0
    children: tuple[str, ...] = ()
    failure_ratio: float = 1.0
    comments: int = 0
    payload: Mapping[str, JsonValue] = field(default_factory=_nothing, metadata=TREE)
    meta: Mapping[str, JsonValue] = field(default_factory=_nothing, metadata=TREE)


def evolve(job: Job, event: WorkFact, at: datetime) -> Job:
    """Apply a fact. No rules here: the past is not up for debate."""
    match event:
        case JobCreated():
            return _created(job, event, at)
        case JobReported():
            return _reported(job, event)
        case JobDispatching():
            return changed(job, rounds=event.round)
        case JobDispatched():
            return _dispatched(job, event)
        case JobChildAdded():
            return job if event.child in job.children else changed(job, children=(*job.children, event.child))
        case JobSucceeded():
            return _moved(_progress(job, event), event, at)
        case JobCommented():
            return changed(job, comments=job.comments + 1)
        case JobDescribed():
            given = {
                k: v for k in ("description", "findings", "tags") if (v := getattr(event, k)) is not None
            }
            return changed(job, **given)
        case _:
            return _moved(job, event, at)


def _created(job: Job, event: JobCreated, at: datetime) -> Job:
    same = (
        "operation", "queue", "payload", "meta", "priority", "parent", "description", "tags", "dedup_key",
        "max_attempts", "max_retries", "max_requeues", "timeout_seconds", "delay_seconds",
    )  # fmt: skip
    given = {name: getattr(event, name) for name in same}
    return changed(job, status=Status.QUEUED.value, created_at=at, offered_at=event.run_at or at, **given)


def _reported(job: Job, event: JobReported) -> Job:
    return _progress(job, event)


def _progress(job: Job, event: JobReported | JobSucceeded) -> Job:
    """Each number overwrites its field; None leaves it (spec S1-23)."""
    names = ("progress_current", "progress_total")
    given = {name: value for name in names if (value := getattr(event, name)) is not None}
    return changed(job, **given) if given else job


def _dispatched(job: Job, event: JobDispatched) -> Job:
    children = (*job.children, *(child for child in event.children if child not in job.children))
    return changed(
        job, dispatched=True, token=None, batches=event.batches, children=children,
        failure_ratio=event.failure_ratio, progress_current=0, progress_total=event.batches + len(children),
    )  # fmt: skip


def _moved(job: Job, event: WorkFact, at: datetime) -> Job:
    """The shared facts; whatever begins or ends an attempt ends the dispatch of the one before."""
    to = None if event.to is None else str(event.to)
    moved = evolve_work(job, event, at, to)
    if isinstance(event, JobRedriven):  # a new life: the children of the former one do not count in it
        return changed(moved, dispatched=False, children=())
    return changed(moved, dispatched=False) if job.dispatched and to is not None else moved


# Decisions: what may happen next.


class OpenJob(OpenWork[Job, WorkFact]):
    """A job open for change; its key is its id, a UUID in its usual spelling."""

    CATEGORY, MOVES, STATE, STATE_SCHEMA = "job", MOVES, Job, 1
    RUNNING, WAITING = frozenset({Status.RUNNING}), frozenset({Status.QUEUED})
    evolve = staticmethod(evolve)
    FACTS = MappingProxyType(
        facts_of(
            JobStarted, JobReported, JobSucceeded, JobFailed, JobAttemptFailed, JobRetryLater, JobReleased,
            JobLeaseExpiredRequeue, JobLeaseExpired, JobStallRequeue, JobCancelled, JobLateResult,
            JobRedriven, JobDiscarded,
        )
    )  # fmt: skip

    @classmethod
    def initial(cls, *key: str | int) -> Job:
        return Job(id=str(key[0]) if key else "")

    def create(self, operation: str, **fields: Any) -> None:
        """Submit it: as the fields of JobCreated. Raises BadInput for what nobody could run."""
        self._check_new()
        if "queue" in fields:
            fields["queue"] = queue_name(fields["queue"])
        if fields.get("run_at") is not None:
            fields["run_at"] = moment(fields["run_at"])
        created = made(JobCreated, f"a job of {operation!r}", {"operation": operation, **fields})
        check_offered(created)
        if created.delay_seconds:
            seconds_of(created.delay_seconds)
        self.record(created)

    def start(self, worker: str) -> Self:
        self._say("Started", worker=worker, token=self.next_version, attempt=self.state.attempt + 1)
        return self

    def waiting_status(self) -> str:
        return Status.QUEUED

    def succeed(self, result: Json | None = None, **progress: int | None) -> None:
        """It was done. progress: progress_current, progress_total (spec S1-23)."""
        self._say("Ended", token=self._token(), result=result or {}, **progress)

    def begin_dispatch(self) -> int:
        """Begin to hand out batches; the number of this round."""
        self.record(JobDispatching(token=self._token(), round=self.state.rounds + 1))
        return self.state.rounds

    def dispatch(
        self,
        batches: int,
        children: Sequence[str] = (),
        *,
        failure_ratio: float = 1.0,
        result: Json | None = None,
    ) -> None:
        """Its operation is over, its set goes on. Raises BadInput for an empty set: that is a success."""
        if batches + len(children) < 1 or not 0 < failure_ratio <= 1:
            raise BadInput(
                "a deferred job needs batches or children, and a failure_ratio above 0, up to 1; one without "
                "anything to do succeeds instead (spec S1-40)"
            )
        self.record(
            JobDispatched(
                token=self._token(),
                batches=batches,
                children=tuple(children),
                failure_ratio=failure_ratio,
                result=result or {},
            )
        )

    def add_child(self, child: str) -> None:
        """Another job becomes a child of this one. Raises BadInput once it is over."""
        if self.over:
            raise BadInput(f"{self.name} is {self.state.status}: it takes no more child jobs")
        self.record(JobChildAdded(child=child))

    def comment(self, text: str, author: str | None = None) -> None:
        """Say something on it (spec S1-03). Raises BadInput for nothing."""
        if not text.strip():
            raise BadInput("a comment must say something")
        self.record(JobCommented(text=text.strip(), author=author))

    def describe(self, **fields: Any) -> None:
        """Say what it is about: description, findings, tags."""
        self.record(JobDescribed(**fields))


BATCHES: Final = UnitSet(
    "batch",
    parent="job",
    done=frozenset({"completed"}),
    failed=frozenset({"failed"}),
    running=frozenset({"running", "writing"}),
    gone=frozenset({"cancelled"}),
    life=JobDispatching.topic,
    born="batch.queued",
    total=Total(JobDispatched.topic, ("batches",), reset=JobDispatching.topic),
)
"""The set of a job's batches, as the view `progress` counts it."""
know(BATCHES)
