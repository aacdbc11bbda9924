"""
The fan-in: closes a dispatched job when its set is complete, once, in the state that its failure policy says.

    fan_in(log).run()

The log is folded in its order, parent by parent: which batches and child jobs are over, and how. Two workers
that end the last two batches at once do not see each other; here one of their events comes after the other.
The close expects a running job and has a command id of the job and its round, so any number of fan-ins, in
any state of being behind, close it once. Nothing is counted in a row: no append waits for another's.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any, Final, NamedTuple

from ledger import Ledger, Recorded
from ledger.expected import Guard
from ledger.jobs import Job, OpenBatch, OpenJob
from ledger.jobs.job import TERMINAL, JobFailed, JobSucceeded

from ..reactor import Answer, Reactor
from .members import FAILED, GOOD, Members, ended_as, place_of

GATHER: Final = 0.02
"""Seconds within which events gather: to look at the log for each would cost a worker as much as its jobs."""
PAUSE: Final = 0.05
"""Seconds between two looks at a log that stands still."""
NAME: Final = "fan_in"
"""The reactor's name, under which its position is kept."""
MOST: Final = 1_000_000
"""Ends of batches and children that are kept in memory, of all parents; others are counted again."""
PARENTS: Final = 100_000
"""Jobs of which is remembered who their parent is."""
ALL_FAILED: Final = "All child jobs failed or were cancelled"

_ENDS = ("succeeded", "failed", "lease_expired", "cancelled", "redriven")
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


class Close(NamedTuple):
    """What a set came to: the fact that closes its parent."""

    fact: JobSucceeded | JobFailed
    round: int


class FanIn:
    """What the reactor answers: see the module. It may be asked again about an event of before."""

    def __init__(self, ledger: Ledger, *, most: int = MOST) -> None:
        self.ledger, self.most = ledger, most
        self.members = Members(ledger)
        self._families: OrderedDict[str, Family] = OrderedDict()
        self._size = 0
        self._parents: OrderedDict[str, str | None] = OrderedDict()

    def __call__(self, event: Recorded) -> list[Answer]:
        """The close of a parent, where this event completes its set."""
        category, _, rest = event.stream.partition("/")
        if category == OpenBatch.CATEGORY:
            job, _, nr = rest.partition("/")
            place = place_of(nr)
            return [] if place is None else self._ended(job, event, place)
        if category != OpenJob.CATEGORY:
            return []
        return self._of_job(rest, event)

    def _of_job(self, job: str, event: Recorded) -> list[Answer]:
        word = event.topic.partition(".")[2]
        if word == "created":
            self._remember(job, json.loads(event.data or "{}").get("parent"))
            return []
        if word in ("dispatching", "dispatched"):
            return self._dispatch(job, event)
        if word == "child_added":
            if (family := self._known(job, event)) is not None:
                family.children.add(json.loads(event.data or "{}")["child"])
                family.position = event.position
            return []
        self._forget(job)
        parent = self._parent_of(job) if word in _ENDS else None
        return [] if parent is None else self._ended(parent, event, job)

    # The set of one parent

    def _dispatch(self, job: str, event: Recorded) -> list[Answer]:
        family, fact = self._family(job, event), json.loads(event.data or "{}")
        family.position = event.position
        if event.topic.endswith("dispatching"):
            self._size -= family.begin(fact["round"])
            return []
        family.dispatched, family.batches, family.ratio = True, fact["batches"], fact["failure_ratio"]
        family.children.update(fact["children"])
        return self._close(family, event)

    def _ended(self, parent: str, event: Recorded, member: str | tuple[int, int]) -> list[Answer]:
        """A member of a parent's set came to its end, or begins anew."""
        family = self._family(parent, event)
        family.position = event.position
        if not family.open:
            return []
        self._size += family.note(member, ended_as(event.topic))
        self._trim()
        return self._close(family, event)

    def _close(self, family: Family, event: Recorded) -> list[Answer]:
        if not family.decided():
            return []
        close = self._came_to(family, event.position)
        self._size -= family.over()
        stream = OpenJob.name_of(family.job)
        command = f"{NAME}:{family.job}:{close.round}"
        return [Answer(stream, [close.fact], expected=RUNNING, command=command, harmless=True)]

    def _came_to(self, family: Family, position: int) -> Close:
        """The fact that closes a parent whose set is decided: a function of the log up to the position."""
        failed, total = family.failed, family.total
        if not family.too_many_failed() and family.good:
            progress: dict[str, Any] = {"progress_current": family.good, "progress_total": total}
            return Close(JobSucceeded(via="last_batch_stored", failed=failed, **progress), family.round)
        details: dict[str, Any] = {
            "failed_children_count": failed, "dispatched_total": total,
            "top_error_messages": self.members.messages(family.job, family.round, family.children, position),
        }  # fmt: skip
        none = len(family.ended) == total and not family.good
        fact = JobFailed(
            error_code="AllChildrenFailed" if none else "TooManyChildrenFailed",
            message=ALL_FAILED if none else f"{failed} of {total} batches and child jobs failed",
            details=details, reason="all_children_failed" if none else "failure_ratio_reached",
            via="child_failure_aggregate",
        )  # fmt: skip
        return Close(fact, family.round)

    # What is in memory

    def _known(self, job: str, event: Recorded) -> Family | None:
        """The family as it is in memory, if it is there and not beyond the event."""
        family = self._families.get(job)
        if family is not None and family.position >= event.position:  # asked again
            self._forget(job)
            return None
        return family

    def _family(self, job: str, event: Recorded) -> Family:
        family = self._known(job, event)
        if family is None:
            family = self._families[job] = self._load(job, event.position - 1)
            self._size += 1 + len(family.ended)
            self._trim()
        self._families.move_to_end(job)
        return family

    def _load(self, job: str, upto: int) -> Family:
        """A parent's set as of a position, counted by the database."""
        state = self.members.job_at(job, upto)
        family = Family(state, job, upto)
        if family.open:
            for member, end in self.members.ended(job, family.round, family.children, upto):
                family.note(member, end)
            if family.decided():  # it was closed on the event that made it so
                family.over()
        return family

    def _trim(self) -> None:
        while self._size > self.most and len(self._families) > 1:
            _, family = self._families.popitem(last=False)
            self._size -= 1 + len(family.ended)

    def _forget(self, job: str) -> None:
        if (family := self._families.pop(job, None)) is not None:
            self._size -= 1 + len(family.ended)

    def _remember(self, job: str, parent: str | None) -> None:
        self._parents[job] = parent
        if len(self._parents) > PARENTS:
            self._parents.popitem(last=False)

    def _parent_of(self, job: str) -> str | None:
        if job not in self._parents:
            self._remember(job, self.members.parent_of(job))
        return self._parents[job]


RUNNING: Final = Guard(frozenset({"running"}))


class Family:
    """The set of one parent, folded up to a position: its members that are over, and how they ended.

    A member is the number of a batch, or the id of a child job. open: it is not closed yet.
    """

    __slots__ = (
        "batches", "children", "dispatched", "ended", "failed", "good", "job", "open", "position", "ratio",
        "round",
    )  # fmt: skip

    def __init__(self, state: Job, job: str, position: int) -> None:
        self.job, self.position, self.round = job, position, state.rounds
        self.dispatched, self.batches, self.ratio = state.dispatched, state.batches, state.failure_ratio
        self.children = set(state.children)
        self.open = state.status is not None and state.status not in TERMINAL
        self.ended: dict[str | int, str] = {}
        self.failed = self.good = 0

    @property
    def total(self) -> int:
        """How many members it has."""
        return self.batches + len(self.children)

    def begin(self, round: int) -> int:
        """A round begins: no batch of it is over; how many ends are forgotten with that."""
        before = len(self.ended)
        self.round, self.dispatched, self.open = round, False, True
        kept = {member: end for member, end in self.ended.items() if isinstance(member, str)}
        self.ended, self.failed, self.good = {}, 0, 0
        for member, end in kept.items():
            self.note(member, end)
        return before - len(self.ended)

    def note(self, member: str | tuple[int, int], end: str | None) -> int:
        """A member is over, or (end None) not any more; how many more are kept. Others are no members."""
        if isinstance(member, tuple):
            round, key = member
            if round != self.round:
                return 0
        elif member in self.children:
            key = member  # type: ignore[assignment]
        else:
            return 0
        before, size = self.ended.pop(key, None), len(self.ended)
        self.failed += (end == FAILED) - (before == FAILED)
        self.good += (end == GOOD) - (before == GOOD)
        if end is not None:
            self.ended[key] = end
        return len(self.ended) - size - (before is not None)

    def too_many_failed(self) -> bool:
        """Whether so many failed that the parent does (spec S1-45)."""
        return self.failed > 0 and self.failed / self.total >= self.ratio

    def decided(self) -> bool:
        """Whether the parent is to be closed: its operation is over, and all members, or too many failed."""
        if not self.open or not self.dispatched:
            return False
        return len(self.ended) >= self.total or self.too_many_failed()

    def over(self) -> int:
        """Nothing counts any more; how many ends are forgotten with that."""
        size, self.open, self.ended = len(self.ended), False, {}
        return size
