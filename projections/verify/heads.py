"""What is done with a range of streams: fold each, compare its head, and mend what differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from ..folding import Fold, HeadRow, Partition, Place, Session, folds_of
from .comparing import differences
from .difference import Difference, Kind, Summary
from .mending import Target, mended

MENDABLE = frozenset(
    {Kind.HEAD_MISSING, Kind.HEAD_BEHIND, Kind.HEAD_AHEAD, Kind.HEAD_DIFFERS, Kind.HEAD_ALONE}
)
Found = tuple[list[Difference], Summary]


@dataclass(slots=True)
class HeadWork:
    """Compares the heads of ranges. repair: mend those that differ. anew: set all of them to what the code of
    this process folds, also those that are only old or lag behind, and compare no further.
    """

    place: Place
    repair: bool = False
    anew: bool = False
    session: Any = field(default=None, repr=False)

    def open(self) -> None:
        """Connect."""
        self.session = Session(*self.place)

    def close(self) -> None:
        """Close the connection."""
        self.session.connection.close()

    def __call__(self, piece: Partition, told: Callable[[int], None]) -> Found:
        """The differences in a range, in the order of names, mended if so wanted."""
        count, found = Summary(), list[Difference]()
        targets: list[tuple[Target, int | None]] = []
        with closing(folds_of(self.session, piece, told)) as folds:  # type: ignore[type-var]
            for fold, head in folds:
                wrong = [*differences(fold, head, count)]
                nth = next((n for n, d in enumerate(wrong, len(found)) if d.kind in MENDABLE), None)
                found += wrong
                if self._is_to_mend(fold, head, nth is not None):
                    targets.append((Target.of(fold, head), nth))
        for (_, nth), outcome in self._mend(targets):
            count.changed[outcome] += 1
            if nth is not None:
                found[nth] = replace(found[nth], mended=outcome)
        return found, count

    def _is_to_mend(self, fold: Fold, head: HeadRow | None, differs: bool) -> bool:
        if not self.anew:
            return self.repair and differs
        if not fold.events:
            return True
        needed = fold.json or head is not None
        return needed and (differs or not Target.of(fold, head).is_kept_by(head))

    def _mend(
        self, targets: list[tuple[Target, int | None]]
    ) -> Iterator[tuple[tuple[Target, int | None], str]]:
        outcomes = mended(self.session, (target for target, _ in targets))
        for pair, (_, outcome) in zip(targets, outcomes, strict=True):
            yield pair, outcome
