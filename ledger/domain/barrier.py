"""
When a set of members is complete and closes once: the law of readiness, fan-in, progress and `all_…`.

1.  A member has one outcome at a time, the last that was noted. Noting it again changes nothing, so a member
    that ends twice counts once.
2.  A set is complete when its expected number is known, that many members are over, and no member waits.
    Members are over when they are done, failed or gone. In a numbered set the members 1 … expected must be
    over; other members do not matter. A set with a failure ratio is complete as soon as that part of it
    failed.
3.  The set depends only on the last outcome of each member, not on the order of the outcomes.
4.  A set closes once: with the append that makes it complete. States between the events of one append do not
    count, because no reader sees them. A member that begins again, or a larger number, makes a set
    incomplete; the append that completes it again closes it again.

`Barrier` folds a set in a process; the view `progress` counts sets by rules 1 and 3 in SQL, and its tests
compare it with this class. A set is folded from the log, which orders all events, also those of two members
that end at the same time. So every reader finds the same event that completes the set, however late it reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from enum import StrEnum
from typing import Generic, TypeVar

M = TypeVar("M", bound=Hashable)


class Outcome(StrEnum):
    """How a member counts."""

    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"
    GONE = "gone"


class Barrier(Generic[M]):
    """A set of members, folded up to some event.

    expected: the number of members; None: unknown. numbered: the members are numbers, and 1 … expected must
    be over. failure_ratio: the part of the expected members whose failure completes the set; None: no limit.
    outcomes: the last outcome of each member.
    """

    __slots__ = ("_append", "_counts", "_was_complete", "expected", "failure_ratio", "numbered", "outcomes")

    def __init__(
        self, expected: int | None = None, *, numbered: bool = False, failure_ratio: float | None = None
    ) -> None:
        self.expected, self.numbered, self.failure_ratio = expected, numbered, failure_ratio
        self.outcomes: dict[M, Outcome] = {}
        self._counts: Counter[Outcome] = Counter()
        self._append: object = None
        self._was_complete = False

    def __len__(self) -> int:
        """The number of members, whatever their outcome."""
        return len(self.outcomes)

    def note(self, member: M, outcome: Outcome | None) -> None:
        """Set the outcome of a member; None removes the member."""
        before = self.outcomes.pop(member, None)
        if before is not None:
            self._counts[before] -= 1
        if outcome is not None:
            self.outcomes[member] = outcome
            self._counts[outcome] += 1

    def count(self, outcome: Outcome) -> int:
        """How many members have this outcome."""
        return self._counts[outcome]

    @property
    def over(self) -> int:
        """How many members are over."""
        return len(self.outcomes) - self._counts[Outcome.WAITING]

    @property
    def too_many_failed(self) -> bool:
        """Whether so many failed that the set is complete (rule 2)."""
        failed = self._counts[Outcome.FAILED]
        if not failed or not self.expected or self.failure_ratio is None:
            return False
        return failed / self.expected >= self.failure_ratio

    @property
    def complete(self) -> bool:
        """Whether the set is complete (rule 2)."""
        if self.expected is None:
            return False
        return self.too_many_failed or (self.over >= self.expected and not self._waits())

    def _waits(self) -> bool:
        if not self.numbered:
            return self._counts[Outcome.WAITING] > 0
        waiting, wanted = Outcome.WAITING, range(1, (self.expected or 0) + 1)
        return any(self.outcomes.get(number, waiting) is waiting for number in wanted)  # type: ignore[arg-type]

    def begin(self, append: object, *, was_complete: bool | None = None) -> None:
        """Begin an append; call it before each event of the append is noted. append: any value that
        identifies it.

        was_complete: whether the set was complete before the append, if that differs from now.
        """
        if append != self._append or was_complete is not None:
            self._append = append
            self._was_complete = self.complete if was_complete is None else was_complete

    @property
    def closes(self) -> bool:
        """Whether the present append closes the set, if it ends here (rule 4)."""
        return not self._was_complete and self.complete

    def clear(self) -> None:
        """Forget all members."""
        self.outcomes.clear()
        self._counts.clear()
