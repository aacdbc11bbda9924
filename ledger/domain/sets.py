"""
Sets that are counted: the streams of a category are the units, and each parent has one set.

    BATCHES = UnitSet(
        "batch", parent="job", done={"completed"}, failed={"failed"}, running={"running"},
        total=Total("job.split", ("batches",)),
    )
    JOBS = Domain("jobs", __name__, sets=[BATCHES])

The units of a set are counted by the law of `ledger.domain.barrier`.
A parent's key is that of its units without the last part: `batch/job_7/3` counts in the set of `job/job_7`. A
count is the number of distinct units in the set, not a counter that is increased, so a unit that is marked
twice counts once. A domain announces its sets to the ledger, so that views can count them without importing
the domain.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import BadInput
from .names import checked_topic, stream_name


@dataclass(frozen=True, slots=True)
class Total:
    """Where the expected number of units of a set is recorded: in events of `topic`, at `path` in the body.

    A number there is the total; for a list, its length. Null or any other value clears the total; if nothing
    is there, the event changes nothing. depth: the events are in the stream of an ancestor whose key has so
    many parts, and apply to every set below it; None: in the parent's own stream. reset: the topic that
    clears the total. otherwise: the total where none is recorded.
    """

    topic: str
    path: tuple[str, ...]
    depth: int | None = None
    reset: str | None = None
    otherwise: int | None = None


@dataclass(frozen=True, slots=True)
class UnitSet:
    """A kind of set: the category of its units, the category of the parents, and how a unit's status counts.

    done, failed, running: the statuses that count as such; gone: the statuses of a unit that has left the
    set. A unit with any other status only counts as present.

    If a parent can be deleted and created again, `life` and `death` are the topics of its creation and
    deletion. Each creation begins a new set: a unit counts only if the field `under` of its own creation, an
    event of the topic `born`, is the number of the parent's present incarnation. Nothing counts below a
    parent that was not created, or is deleted.
    """

    category: str
    parent: str
    done: frozenset[str]
    failed: frozenset[str] = frozenset()
    running: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    life: str | None = None
    death: str | None = None
    born: str | None = None
    total: Total | None = None

    def __post_init__(self) -> None:
        for name in ("done", "failed", "running", "gone"):
            given: Iterable[str] = getattr(self, name)
            if isinstance(given, str):
                raise BadInput(f"{name} of set {self.category} must be statuses, such as {{'completed'}}")
            object.__setattr__(self, name, frozenset(map(str, given)))
        self._check()

    def _check(self) -> None:
        stream_name(self.category), stream_name(self.parent)
        for topic in (self.life, self.death, self.born, *self._topics_of_total()):
            if topic is not None:
                checked_topic(topic)
        if (self.life is None) != (self.born is None) or (self.death and not self.life):
            raise BadInput(f"set {self.category}: lives need both `life` and `born`, and `death` needs both")
        kinds = [self.done, self.failed, self.running, self.gone]
        if sum(map(len, kinds)) != len(frozenset().union(*kinds)):
            raise BadInput(f"set {self.category}: a status is done, failed, running or gone, not two of them")

    def _topics_of_total(self) -> tuple[str | None, ...]:
        return () if self.total is None else (self.total.topic, self.total.reset)

    def row(self) -> dict[str, Any]:
        """The set as a row of the table `sets`, without its number."""
        total = self.total
        return {
            "category": self.category, "parent": self.parent, "life": self.life, "death": self.death,
            "born": self.born, "done": sorted(self.done), "failed": sorted(self.failed),
            "running": sorted(self.running), "gone": sorted(self.gone),
            "total_topic": total and total.topic, "total_path": total and list(total.path),
            "total_depth": total and total.depth, "total_reset": total and total.reset,
            "total_otherwise": total and total.otherwise,
        }  # fmt: skip
