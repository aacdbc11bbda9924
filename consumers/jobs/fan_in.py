"""
The fan-in: closes a dispatched job when its set is complete, once, by its failure policy.

    fan_in(log).run()

It folds the log in order, set by set: which batches and child jobs are over, and how (`Barrier`). Two workers
that end the last two batches at once do not see each other, but in the log one of their events comes after
the other. The close expects a running job and has a command id made of the job and its round, so any number
of fan-ins, however far behind, close it once. No row holds a count, so no append waits for another. If a job
succeeded although some members failed, and those are redriven later, it is counted again.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any, Final

from ledger import Ledger, Recorded
from ledger.domain.barrier import Barrier, Outcome
from ledger.jobs import Job, OpenBatch, OpenJob
from ledger.jobs.job import TERMINAL, JobFailed, JobRecounted, JobSucceeded, Status
from ledger.log.append import Guard

from ..reactor import Answer, Reactor
from .members import Members, outcome_of_topic, place_of

GATHER: Final = 0.05
"""Seconds between two reads under load: reading the log for each event would cost as much as the jobs."""
PAUSE: Final = 0.05
"""Seconds between two reads of a quiet log."""
NAME: Final = "fan_in"
"""The reactor's name, under which its position is kept."""
MAX_SIZE: Final = 1_000_000
"""Maximum number of members' outcomes that are kept in memory, of all sets; others are read again."""
MAX_PARENTS: Final = 100_000
"""Maximum number of jobs whose parent is kept in memory."""
ALL_FAILED: Final = "All child jobs failed or were cancelled"
RUNNING: Final = Guard(frozenset({"running"}))
SUCCEEDED: Final = Guard(frozenset({"succeeded"}))

_ENDS = ("succeeded", "failed", "lease_expired", "cancelled", "redriven", "reopened")
_AGAIN = ("attempt_failed", "retry_later", "released", "lease_expired_requeue")
_BATCH_ENDS = ("completed", "failed", "lease_expired", "cancelled", "redriven")
TOPICS: Final = frozenset(
    {"job.created", "job.dispatching", "job.dispatched", "job.child_added"}
    | {f"job.{word}" for word in (*_ENDS, *_AGAIN)}
    | {f"batch.{word}" for word in _BATCH_ENDS}
)


def fan_in(ledger: Ledger) -> Reactor:
    """The reactor that closes parents."""
    return Reactor(ledger, NAME, FanIn(ledger), topics=TOPICS, longest_pause=PAUSE, gather=GATHER)


class JobSet:
    """The set of one job, folded up to a position: a barrier of its batches and child jobs.

    A member is the number of a batch, or the id of a child job. open: the job is not closed yet. counts: it
    is open, or has succeeded, which a member that is redriven does not change.
    """

    __slots__ = (
        "barrier", "batches", "children", "dispatched", "job", "open", "position", "reopened", "round",
        "succeeded",
    )  # fmt: skip

    def __init__(self, state: Job, job: str, position: int) -> None:
        self.job, self.position, self.round = job, position, state.rounds
        self.dispatched, self.batches, self.children = state.dispatched, state.batches, set(state.children)
        self.open = state.status is not None and state.status not in TERMINAL
        self.succeeded, self.reopened = state.status == Status.SUCCEEDED and state.split, state.reopened
        self.barrier: Barrier[str | int] = Barrier(failure_ratio=state.failure_ratio)
        self._expect()

    def __len__(self) -> int:
        return len(self.barrier)

    @property
    def total(self) -> int:
        """How many members it has."""
        return self.batches + len(self.children)

    @property
    def counts(self) -> bool:
        """Whether the outcomes of its members matter."""
        return self.open or self.succeeded

    @property
    def close_id(self) -> str:
        """The id of its next close: the round, and how often the job was reopened."""
        return f"{self.round}:{self.reopened}" if self.reopened else str(self.round)

    @property
    def complete(self) -> bool:
        """Whether the job is to be closed: it is dispatched, and its members are over, or too many failed."""
        return self.open and self.barrier.complete

    def begin(self, round: int) -> None:
        """A round begins: its batches are new, the child jobs stay."""
        self.round, self.dispatched, self.open = round, False, True
        for member in [member for member in self.barrier.outcomes if isinstance(member, int)]:
            self.barrier.note(member, None)
        self._expect()

    def dispatch(self, batches: int, children: list[str], failure_ratio: float) -> None:
        """The operation is over; these are its members."""
        self.dispatched, self.batches, self.barrier.failure_ratio = True, batches, failure_ratio
        self.children.update(children)
        self._expect()

    def add_child(self, child: str) -> None:
        """Another child job."""
        self.children.add(child)
        self._expect()

    def note(self, member: str | tuple[int, int], outcome: Outcome | None) -> None:
        """A member (a child's id, or round and number of a batch) is over, or begins anew: None."""
        if isinstance(member, str):
            if member in self.children:
                self.barrier.note(member, outcome)
        elif member[0] == self.round:
            self.barrier.note(member[1], outcome)

    def close(self) -> None:
        """The job is closed: its members no longer count."""
        self.open = False
        self.barrier.clear()

    def _expect(self) -> None:
        self.barrier.expected = self.total if self.dispatched else None


class FanIn:
    """The reactor's answers. It may be called again with an earlier event."""

    def __init__(self, ledger: Ledger, *, max_size: int = MAX_SIZE) -> None:
        self.ledger, self.max_size = ledger, max_size
        self.members = Members(ledger)
        self._sets: OrderedDict[str, JobSet] = OrderedDict()
        self._parents: OrderedDict[str, str | None] = OrderedDict()
        self._size = 0

    def __call__(self, event: Recorded) -> list[Answer]:
        """The close of a parent, if this event completes its set."""
        category, _, rest = event.stream.partition("/")
        if category == OpenBatch.CATEGORY:
            job, _, nr = rest.partition("/")
            place = place_of(nr)
            return [] if place is None else self._member_event(job, event, place)
        return self._job_event(rest, event) if category == OpenJob.CATEGORY else []

    def forget(self) -> None:
        """Forget everything: the next events do not continue the last ones."""
        self._sets.clear()
        self._parents.clear()
        self._size = 0

    def _job_event(self, job: str, event: Recorded) -> list[Answer]:
        match event.topic.partition(".")[2]:
            case "created":
                self._remember(job, _fields(event).get("parent"))
                return []
            case "dispatching" | "dispatched":
                return self._dispatch(job, event)
            case "child_added":
                if (known := self._known(job, event)) is not None:
                    known.add_child(_fields(event)["child"])
                    known.position = event.position
                return []
            case word:
                self._drop(job)
                answers = self._reopened(job, event) if word == "reopened" else []
                parent = self._parent_of(job) if word in _ENDS else None
                return answers if parent is None else [*answers, *self._member_event(parent, event, job)]

    def _dispatch(self, job: str, event: Recorded) -> list[Answer]:
        """A job begins to hand out batches, or its operation is over."""
        one, fact = self._set(job, event), _fields(event)
        one.position = event.position
        if event.topic.endswith("dispatching"):
            size = len(one)
            one.begin(fact["round"])
            self._size += len(one) - size
            return []
        one.dispatch(fact["batches"], fact["children"], fact["failure_ratio"])
        return self._close(one, event)

    def _reopened(self, job: str, event: Recorded) -> list[Answer]:
        """Members that completed are over, the others are redriven. All may have completed meanwhile."""
        return self._close(self._keep(job, self._read(job, event.position)), event)

    def _member_event(self, parent: str, event: Recorded, member: str | tuple[int, int]) -> list[Answer]:
        """A member of a parent's set is over, or begins anew."""
        one = self._set(parent, event)
        one.position = event.position
        if not one.counts:
            return []
        size, outcome = len(one), outcome_of_topic(event.topic)
        one.note(member, outcome)
        self._size += len(one) - size
        self._trim()
        return self._close(one, event) if one.open else self._recount(one, event, outcome)

    # The answers

    def _close(self, one: JobSet, event: Recorded) -> list[Answer]:
        """The close of a job whose set is complete: a function of the log up to the event."""
        if not one.complete:
            return []
        fact = self._closing_fact(one, event.position)
        self._size -= len(one)
        one.close()
        command = f"{NAME}:{one.job}:{one.close_id}"
        return [Answer(OpenJob.name_of(one.job), [fact], expected=RUNNING, command=command, harmless=True)]

    def _recount(self, one: JobSet, event: Recorded, outcome: Outcome | None) -> list[Answer]:
        """The new counts of a job that has succeeded, once all that was redriven is over."""
        if one.barrier.over < one.total or outcome is None:
            return []
        done, failed = one.barrier.count(Outcome.DONE), one.barrier.count(Outcome.FAILED)
        fact = JobRecounted(progress_current=done, progress_total=one.total, failed=failed)
        command = f"{NAME}:{one.job}:{one.round}:recount:{event.position}"
        return [Answer(OpenJob.name_of(one.job), [fact], expected=SUCCEEDED, command=command, harmless=True)]

    def _closing_fact(self, one: JobSet, position: int) -> JobSucceeded | JobFailed:
        done, failed = one.barrier.count(Outcome.DONE), one.barrier.count(Outcome.FAILED)
        if done and not one.barrier.too_many_failed:
            progress: dict[str, Any] = {"progress_current": done, "progress_total": one.total}
            return JobSucceeded(via="last_batch_stored", failed=failed, **progress)
        details: dict[str, Any] = {
            "failed_children_count": failed, "dispatched_total": one.total,
            "top_error_messages": self.members.messages(one.job, one.round, one.children, position),
        }  # fmt: skip
        none = one.barrier.over == one.total and not done
        return JobFailed(
            error_code="AllChildrenFailed" if none else "TooManyChildrenFailed",
            message=ALL_FAILED if none else f"{failed} of {one.total} batches and child jobs failed",
            details=details,
            reason="all_children_failed" if none else "failure_ratio_reached",
            via="child_failure_aggregate",
        )  # fmt: skip

    # What is in memory

    def _known(self, job: str, event: Recorded) -> JobSet | None:
        """The set in memory, unless it is beyond the event."""
        one = self._sets.get(job)
        if one is not None and one.position >= event.position:  # called again with an earlier event
            self._drop(job)
            return None
        return one

    def _set(self, job: str, event: Recorded) -> JobSet:
        one = self._known(job, event)
        if one is not None:
            self._sets.move_to_end(job)
            return one
        one = self._read(job, event.position - 1)
        if one.complete:  # it was closed on the event that completed it
            one.close()
        return self._keep(job, one)

    def _keep(self, job: str, one: JobSet) -> JobSet:
        self._sets[job] = one
        self._size += 1 + len(one)
        self._trim()
        return one

    def _read(self, job: str, upto: int) -> JobSet:
        """The set of a job as of a position, from the database."""
        one = JobSet(self.members.job_at(job, upto), job, upto)
        if one.counts:
            for member, outcome in self.members.ended(job, one.round, one.children, upto):
                one.note(member, outcome)
        return one

    def _trim(self) -> None:
        while self._size > self.max_size and len(self._sets) > 1:
            _, one = self._sets.popitem(last=False)
            self._size -= 1 + len(one)

    def _drop(self, job: str) -> None:
        if (one := self._sets.pop(job, None)) is not None:
            self._size -= 1 + len(one)

    def _remember(self, job: str, parent: str | None) -> None:
        self._parents[job] = parent
        if len(self._parents) > MAX_PARENTS:
            self._parents.popitem(last=False)

    def _parent_of(self, job: str) -> str | None:
        if job not in self._parents:
            self._remember(job, self.members.parent_of(job))
        return self._parents[job]


def _fields(event: Recorded) -> dict[str, Any]:
    """The fields of a fact. Raises UnreadableEvent for a body that does not fit its topic."""
    _ = event.event
    fields: dict[str, Any] = json.loads(event.data or "{}")
    return fields
