"""
What is counted: the streams of a category are the units of sets, one set for each parent.

    know(UnitSet(
        "batch", parent="job", done={"completed"}, failed={"failed"}, running={"running"},
        total=Total("job.split", ("batches",)),
    ))

A parent's key is that of its units without the last part: `batch/job_7/3` counts in the set of `job/job_7`. A
set is counted by who is in it, and never by adding one to a number, so a unit that is marked twice counts
once. Views learn what is declared here from the ledger, without having imported the domain.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from .errors import BadInput
from .names import checked_topic, stream_name

SETS: Final[dict[str, UnitSet]] = {}
"""Every set that this process has imported, by the category of its units."""


@dataclass(frozen=True, slots=True)
class Total:
    """Where it is said how many units a set shall have: in events of `topic`, at `path` in the body.

    A number there is the total; of a list its length; null, or anything else, takes the total back; where
    nothing is there the event says nothing. depth: the events are in the stream of an ancestor, whose key has
    so many parts, and hold for every set below it; None: in the parent's own stream. reset: the topic that
    takes the total back. otherwise: the total where none is said.
    """

    topic: str
    path: tuple[str, ...]
    depth: int | None = None
    reset: str | None = None
    otherwise: int | None = None


@dataclass(frozen=True, slots=True)
class UnitSet:
    """A kind of set: the category of its units, that of the parents, and how a unit counts by its status.

    done, failed, running: the statuses that say so; gone: those of a unit that is not in the set any more;
    any other status only counts as present.

    Where a parent can die and be born again, life and death are the topics of that. Each birth begins the set
    anew: only units count whose own birth, an event of the topic `born`, has the number of the parent's
    present life in its field `under`. Nothing counts below a parent that was not born, or is dead.
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
            raise BadInput(f"set {self.category}: lives need both `life` and `born`, and `death` needs them")
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


def know(*sets: UnitSet) -> None:
    """Let this process know sets, so that it declares them to ledgers.

    Raises TypeError where the units of a category are counted otherwise already.
    """
    for one in sets:
        if SETS.get(one.category, one) != one:
            raise TypeError(f"the units of category {one.category!r} are counted by another set already")
        SETS[one.category] = one
