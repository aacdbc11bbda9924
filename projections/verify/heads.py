"""Work on a range of streams: fold each, compare its head, and repair what differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace

from ..fold import Fold, HeadRow, Partition, SessionWork, folds_of
from .compare import differences
from .difference import DOUBTS, EVIDENCE, Difference, Kind, Summary
from .repair import HeadTarget, repaired

OF_HEADS = frozenset(
    {Kind.HEAD_MISSING, Kind.HEAD_BEHIND, Kind.HEAD_AHEAD, Kind.HEAD_DIFFERS, Kind.HEAD_ALONE}
)
LOST = frozenset({Kind.HEAD_AHEAD, Kind.HEAD_ALONE})
"""Heads that contain more than the events: rebuilding all heads leaves them too."""
Found = tuple[list[Difference], Summary]


def judged(wrong: list[Difference]) -> list[Difference]:
    """The differences of one stream, marked as evidence: all of them if its events are in doubt.

    A head without a value that the events hold, because a move was declared later, is no evidence.
    """
    doubt = any(d.kind in DOUBTS for d in wrong)
    return [replace(d, evidence=True) if doubt or _contradicts(d) else d for d in wrong]


def _contradicts(difference: Difference) -> bool:
    silent = bool(difference.fields) and all(field.kept == "null" for field in difference.fields)
    return difference.kind in EVIDENCE and not (difference.kind is Kind.HEAD_DIFFERS and silent)


@dataclass(slots=True)
class HeadWork(SessionWork):
    """Compares the heads of ranges. repair: repair those that differ. anew: set all of them to what the code
    of this process folds, also those that are only old or lag behind, and compare no further. also: kinds of
    evidence that are repaired too; other evidence is left as it is.
    """

    repair: bool = False
    anew: bool = False
    also: frozenset[Kind] = frozenset()

    def __call__(self, piece: Partition, report: Callable[[int], None]) -> Found:
        """The differences in a range, in the order of names, repaired if requested."""
        count, found = Summary(), list[Difference]()
        targets: list[tuple[HeadTarget, int | None]] = []
        with closing(folds_of(self.session, piece, report)) as folds:  # type: ignore[type-var]
            for fold, head in folds:
                wrong = judged([*differences(fold, head, count)])
                nth = next((n for n, d in enumerate(wrong, len(found)) if d.kind in OF_HEADS), None)
                found += wrong
                if self._is_left([d for d in wrong if d.kind in OF_HEADS]):
                    count.changed["left"] += 1
                elif self._needs_repair(fold, head, nth is not None):
                    targets.append((HeadTarget.of(fold, head), nth))
        for (_, nth), outcome in self._repair(targets):
            count.changed[outcome] += 1
            if nth is not None:
                found[nth] = replace(found[nth], repaired=outcome)
        return found, count

    def _is_left(self, wrong: list[Difference]) -> bool:
        """Whether a head is evidence whose repair was not requested."""
        if self.anew:
            return any(d.kind in LOST - self.also for d in wrong)
        return self.repair and any(d.evidence and d.kind not in self.also for d in wrong)

    def _needs_repair(self, fold: Fold, head: HeadRow | None, differs: bool) -> bool:
        if not self.anew:
            return self.repair and differs
        if not fold.events:
            return True
        needed = fold.json or head is not None
        return needed and (differs or not HeadTarget.of(fold, head).is_kept_by(head))

    def _repair(
        self, targets: list[tuple[HeadTarget, int | None]]
    ) -> Iterator[tuple[tuple[HeadTarget, int | None], str]]:
        outcomes = repaired(self.session, (target for target, _ in targets))
        for pair, (_, outcome) in zip(targets, outcomes, strict=True):
            yield pair, outcome
