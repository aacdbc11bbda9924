"""Runs over the ledger: verify it, rebuild its heads, rebuild its rows of command ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

from ledger.store.ledger import Ledger

from ..folding import ALL, Place, Session, Which, Work, in_processes, partitions
from ..folding.processes import cores
from .checks import Check
from .commands import ALONE, CommandWork, spans
from .difference import Difference, Summary
from .heads import Found, HeadWork

FEW: Final = 30_000
"""Events up to which further processes would cost more than they save."""

Progress = Callable[[int, int], None]
"""Is given how many events are done, and of how many; 0: nobody knows."""


def nothing(*_: object) -> None:
    """Says nothing."""


def verify(
    ledger: Ledger,
    which: Which = ALL,
    *,
    repair: bool = False,
    processes: int | None = None,
    checks: Iterable[Check] = (),
    found: Callable[[Difference], object] | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Fold streams and compare them with their heads, and command ids with their events; then run the checks.

    Command ids are looked at where all streams are. found: is given each difference as it is found, mended
    already where `repair` is set. processes: by default one for each processor, and one where that is enough.
    Head and events of a stream are read in one snapshot, so writers cause no false alarm. Repairing needs the
    projector's role. Raises NoPermission, ServerUnavailable.
    """
    run, tell = _Run(ledger, processes, progress or nothing), found or nothing
    place = Place.of(ledger)
    total = Summary()
    for difference in run.over(HeadWork(place, repair), run.ranges(which), total):
        tell(difference)
    if which.everything:
        for difference in _commands(run, CommandWork(place, repair), total):
            tell(difference)
    for check in checks:
        for difference in check.differences(ledger, which, run.told):
            if repair:
                difference = replace(difference, mended=check.mend(ledger, difference))
            total.note(difference)
            tell(difference)
    return total


def rebuild_heads(
    ledger: Ledger,
    which: Which = ALL,
    *,
    processes: int | None = None,
    found: Callable[[Difference], object] | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Set every head to what the code of this process folds; also while others append, and after any kill.

    Heads that are so already are left alone. The lease tokens of jobs and batches are in their events, and
    come back, so workers go on. One that no event holds stays with a head that is there, and is lost with it:
    whoever held it is refused. `found` is given what was different, as in `verify`; `Summary.changed` says
    what was done. Needs the projector's role.
    """
    run = _Run(ledger, processes, progress or nothing)
    tell = found or nothing
    total = Summary()
    for difference in run.over(HeadWork(Place.of(ledger), anew=True), run.ranges(which), total):
        tell(difference)
    return total


def rebuild_commands(
    ledger: Ledger,
    *,
    processes: int | None = None,
    found: Callable[[Difference], object] | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Set every row of a command id to what the events say. Needs the projector's role."""
    run = _Run(ledger, processes, progress or nothing)
    tell = found or nothing
    total = Summary()
    for difference in _commands(run, CommandWork(Place.of(ledger), repair=True), total):
        tell(difference)
    return total


def _commands(run: _Run, work: CommandWork, total: Summary) -> Iterator[Difference]:
    """The differences of command ids; a row that was named is not named again as one without events."""
    pieces, named = run.spans(), set[str]()
    for difference in run.over(work, pieces, total):
        named.add(difference.about)
        yield difference
    yield from run.over(work, [ALONE], total, named)


class _Run:
    """One run: how many processes, and how far it has come."""

    def __init__(self, ledger: Ledger, processes: int | None, progress: Progress) -> None:
        self.ledger, self.wanted, self.progress = ledger, processes, progress
        self.done = self.events = 0

    @property
    def processes(self) -> int:
        if self.wanted is not None:
            return self.wanted
        return cores() if self.events > FEW else 1

    def ranges(self, which: Which) -> Sequence[Any]:
        with Session(*Place.of(self.ledger)) as session:
            pieces, self.events = partitions(session.connection, self.ledger.schema, which)
        return pieces

    def spans(self) -> Sequence[Any]:
        with Session(*Place.of(self.ledger)) as session:
            ((first, last),) = session.rows("log_ends")
        self.events = self.events or last - first
        return spans(first, last)

    def told(self, count: int) -> None:
        self.done += count
        self.progress(self.done, max(self.done, self.events) if self.events else 0)

    def over(
        self, work: Work[Any, Found], pieces: Sequence[Any], total: Summary, but: Set[str] = frozenset()
    ) -> Iterator[Difference]:
        """The differences in all pieces, but those about some; what was looked at is added to `total`."""
        with closing(in_processes(work, pieces, self.processes, self.told)) as results:
            for differences, summary in results:
                total.add(summary)
                for difference in differences:
                    if difference.about not in but:
                        total.note(difference)
                        yield difference
