"""
A job: offered, claimed by one worker under a lease, run to one end.

    queued -> running -> succeeded | failed | cancelled
    queued -> cancelled
    running -> queued       put off, given back, failed with attempts left, or its worker vanished
    running -> running      dispatched: its batches and child jobs go on, no worker has it (spec S1-40)
    queued -> queued        offered again, because it has waited for long
    failed -> queued        redriven by command
    failed -> running       reopened by command: the members of its set that did not complete are redriven

A cancel is final at once: a later result of its worker is kept as `job.late_result` and changes nothing. A
dispatched job is closed by its set of batches and children, counted in the order of the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Self

from ..domain.frozen import FrozenDict, changed
from ..domain.moves import Moves
from ..domain.sets import Total, UnitSet
from ..domain.state import TREE
from ..errors import BadInput, MoveNotAllowed
from . import facts
from .facts import Json, WorkFact
from .work import OpenWork, Work, check_offered, evolve_work, facts_of, made, moment, queue_name, seconds_of


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
        Status.FAILED: {Status.QUEUED, Status.RUNNING},
    }
)

# Facts: what happened, and the status it leads to.


class JobCreated(WorkFact, topic="job.created", to=Status.QUEUED):
    """It was submitted (spec S1-01). max_attempts: how often it may fail in all.

    run_at: not before this time; delay_seconds: not before this delay after the database recorded it.
    max_retries: how often in a row it may be put off; max_requeues: how often its worker may vanish.
    timeout_seconds: an attempt is ended after this time. parent: the id of its parent job.
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
    """Its operation begins to hand out batches: the set of them starts from empty. round: from 1."""

    token: int
    round: int


class JobDispatched(WorkFact, topic="job.dispatched"):
    """Its operation is over; `batches` batches and the child jobs `children` go on without it (S1-40).

    failure_ratio: it fails as soon as this share of all members failed; 1: when all failed (spec S1-45).
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
    """via: `last_batch_stored` where the last member of its set closed it. failed: how many failed."""

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


class JobReopened(WorkFact, topic="job.reopened", to=Status.RUNNING):
    """It had failed and its set goes on: members that did not complete are redriven, others are kept.

    round: of the set; nth: how often the job was reopened, from 1. reason: as given.
    """

    round: int
    nth: int
    reason: str | None = None


class JobRecounted(WorkFact, topic="job.recounted"):
    """It had succeeded although members failed; members that were redriven since are over."""

    progress_current: int
    progress_total: int
    failed: int


class JobDiscarded(facts.Discarded, topic="job.discarded"): ...


class JobDeleted(WorkFact, topic="job.deleted"):
    """Lists show it no more; its history stays."""


class JobCommented(WorkFact, topic="job.commented"):
    """A comment (spec S1-03)."""

    text: str
    author: str | None = None


class JobDescribed(WorkFact, topic="job.described"):
    """Description, findings, tags; only the given ones change."""

    description: str | None = None
    findings: str | None = None
    tags: tuple[str, ...] | None = None


def job_created(operation: str, **fields: Any) -> JobCreated:
    """The fact of a new job: the fields of JobCreated. Raises BadInput for a job that no worker could run."""
    fields["run_at"], fields["delay_seconds"] = (
        moment(fields.get("run_at")),
        seconds_of(fields.get("delay_seconds")),
    )
    if "queue" in fields:
        fields["queue"] = queue_name(fields["queue"])
    created = made(JobCreated, f"a job of {operation!r}", {"operation": operation, **fields})
    check_offered(created)
    return created


# State: what is true now.


@dataclass(frozen=True, slots=True)
class Job(Work):
    """The state of a job. payload and meta are filled in when one job is read, and not kept with it.

    rounds: how often batches were handed out. dispatched: its operation is over, its set is not. split: its
    operation is over, and its set determines its progress, also at the end. reopened: how often. batches: how
    many it expects; children: ids of its child jobs. failure_ratio: as in JobDispatched. deleted: lists show
    it no more.
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
    split: bool = False
    reopened: int = 0
    batches: int = 0
    children: tuple[str, ...] = ()
    failure_ratio: float = 1.0
    comments: int = 0
    deleted: bool = False
    payload: Mapping[str, Any] = field(default=FrozenDict(), metadata=TREE)
    meta: Mapping[str, Any] = field(default=FrozenDict(), metadata=TREE)


def evolve(job: Job, event: WorkFact, at: datetime) -> Job:
    """Apply a fact. It applies no rules: recorded facts are never refused."""
    match event:
        case JobCreated():
            return _created(job, event, at)
        case JobReported() | JobRecounted():
            return _progress(job, event)
        case JobDispatching():
            return changed(job, rounds=event.round, split=False)
        case JobDispatched():
            return _dispatched(job, event)
        case JobChildAdded():
            return job if event.child in job.children else changed(job, children=(*job.children, event.child))
        case JobReopened():
            return _reopened(job, event)
        case JobSucceeded():
            return _moved(_progress(job, event), event, at)
        case JobCommented():
            return changed(job, comments=job.comments + 1)
        case JobDeleted():
            return changed(job, deleted=True)
        case JobDescribed():
            return _described(job, event)
        case _:
            return _moved(job, event, at)


def _described(job: Job, event: JobDescribed) -> Job:
    names = ("description", "findings", "tags")
    return changed(job, **{name: v for name in names if (v := getattr(event, name)) is not None})


def _created(job: Job, event: JobCreated, at: datetime) -> Job:
    given = {**vars(event)}
    due = given.pop("run_at") or at
    return changed(job, status=Status.QUEUED.value, created_at=at, offered_at=due, **given)


def _reopened(job: Job, event: JobReopened) -> Job:
    return changed(
        job, status=Status.RUNNING.value, dispatched=True, reopened=event.nth, token=None, finished_at=None,
        discarded=False,
    )  # fmt: skip


def _progress(job: Job, event: JobReported | JobSucceeded | JobRecounted) -> Job:
    """Each number overwrites its field; None leaves it (spec S1-23)."""
    names = ("progress_current", "progress_total")
    given = {name: value for name in names if (value := getattr(event, name)) is not None}
    return changed(job, **given) if given else job


def _dispatched(job: Job, event: JobDispatched) -> Job:
    children = (*job.children, *(child for child in event.children if child not in job.children))
    return changed(
        job, dispatched=True, split=True, token=None, batches=event.batches, children=children,
        failure_ratio=event.failure_ratio, progress_current=0, progress_total=event.batches + len(children),
    )  # fmt: skip


def _moved(job: Job, event: WorkFact, at: datetime) -> Job:
    """Apply a shared fact; one that begins or ends an attempt also ends the dispatch of the one before."""
    to = None if event.to is None else str(event.to)
    moved = evolve_work(job, event, at, to)
    if isinstance(event, JobRedriven):  # children from before the redrive no longer count
        return changed(moved, dispatched=False, split=False, children=())
    if to is None or not (job.dispatched or job.split):
        return moved
    return changed(moved, dispatched=False, split=job.split and moved.finished_at is not None)


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
        """Submit it; `fields` as in `job_created`. Raises BadInput, and MoveNotAllowed where it exists."""
        self._check_new()
        self.record(job_created(operation, **fields))

    def start(self, worker: str) -> Self:
        if self.state.status == Status.FAILED:  # only a reopened job runs after that
            raise MoveNotAllowed(self.state.status, Status.RUNNING, {Status.QUEUED})
        self._record_fact("Started", worker=worker, token=self.next_version, attempt=self.state.attempt + 1)
        return self

    def waiting_status(self) -> str:
        return Status.QUEUED

    def succeed(self, result: Json | None = None, **progress: int | None) -> None:
        """Record its success. progress: progress_current, progress_total (spec S1-23)."""
        self._record_fact("Ended", token=self._token(), result=result or {}, **progress)

    def begin_dispatch(self) -> int:
        """Begin to hand out batches; returns the number of this round."""
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
        """End its operation; its set goes on. Raises BadInput for an empty set, which is a success."""
        if batches + len(children) < 1 or not 0 < failure_ratio <= 1:
            raise BadInput(
                "a deferred job needs batches or children, and a failure_ratio above 0 and at most 1; a job "
                "without anything to do succeeds instead (spec S1-40)"
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

    @property
    def reopens(self) -> bool:
        """Whether it failed with its set, of which batches can be redriven without its operation."""
        now = self.state
        return now.status == Status.FAILED and now.split and now.batches > 0 and not now.discarded

    def reopen(self, reason: str | None = None) -> None:
        """Let its set go on; completed members are kept (see JobReopened). Raises MoveNotAllowed."""
        if not self.reopens:
            raise MoveNotAllowed(self.state.status, Status.RUNNING)
        self.record(JobReopened(round=self.state.rounds, nth=self.state.reopened + 1, reason=reason))

    def add_child(self, child: str) -> None:
        """Add another job as a child. Raises BadInput if this job is over."""
        if self.over:
            raise BadInput(f"{self.name} is {self.state.status}: it takes no more child jobs")
        self.record(JobChildAdded(child=child))

    def delete(self) -> bool:
        """Take it out of the lists; False if it is out already. One that waits is cancelled, a dead letter is
        discarded (spec 2.7).

        Raises MoveNotAllowed while it runs.
        """
        if self.state.deleted:
            return False
        if self.state.status == Status.RUNNING:
            raise MoveNotAllowed(self.state.status, "deleted", TERMINAL | {Status.QUEUED})
        self.cancel("deleted")
        self.discard("deleted")
        self.record(JobDeleted())
        return True

    def comment(self, text: str, author: str | None = None) -> None:
        """Comment on it (spec S1-03). Raises BadInput for an empty text."""
        if not text.strip():
            raise BadInput("a comment must not be empty")
        self.record(JobCommented(text=text.strip(), author=author))

    def describe(self, **fields: Any) -> None:
        """Change description, findings, tags."""
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
