"""Runs over the ledger: verify it, rebuild its heads, rebuild its rows of command ids."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from contextlib import closing
from dataclasses import replace
from typing import Any, Final, Protocol

from ledger.log.ledger import Ledger
from ledger.log.sql import Statements
from ledger.roles import require_roles

from ..fold import ALL, FoldSession, Place, Which, Work, in_processes, partitions
from ..fold.processes import cores
from .commands import ALONE, CommandWork, spans
from .difference import Difference, Kind, Summary
from .heads import Found, HeadWork

SQL = Statements(__package__, "commands")


class Check(Protocol):
    """Compares derived data with the events that it is derived from.

    It raises no false alarm while others append: before it yields a suspected difference, it reads both sides
    again in one snapshot. Differences are of `Kind.VIEW`, with `view` set to the check's name.
    """

    @property
    def name(self) -> str:
        """Its name, such as that of the view."""

    def differences(
        self, ledger: Ledger, which: Which, report: Callable[[int], None]
    ) -> Iterable[Difference]:
        """What differs in the selected streams. report: called with the number of events read since."""

    def repair(self, ledger: Ledger, difference: Difference) -> str | None:
        """Repair one of its differences: `repaired`, `inserted`, `removed`, `busy`; None where it cannot."""


FEW: Final = 30_000
"""Events up to which further processes would cost more than they save."""

Progress = Callable[[int, int], None]
"""Called with the number of events that are done, and the total; 0 if unknown."""


def nothing(*_: object) -> None:
    """Reports nothing."""


def verify(
    ledger: Ledger,
    which: Which = ALL,
    *,
    repair: bool = False,
    also: Collection[Kind] = (),
    processes: int | None = None,
    checks: Iterable[Check] = (),
    found: Callable[[Difference], object] | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Fold streams and compare them with their heads, and command ids with their events; then run the checks.

    Command ids are checked if all streams are. found: called with each difference as it is found, after the
    repair if `repair` is set. Evidence is not repaired: rows that contradict the events, everything that is
    kept of streams whose events are in doubt, and views as long as there is any; `also` names the kinds of
    evidence to repair nevertheless. processes: by default one for each processor, or one if that is enough.
    Head and events of a stream are read in one snapshot, so writers cause no false alarm. Repairing needs the
    projector's role. Raises NoPermission, ServerUnavailable.
    """
    run, tell = _Run(ledger, processes, progress or nothing), found or nothing
    place = Place.of(_allowed(ledger, repair or bool(checks)))
    total, asked = Summary(), frozenset(also)
    for difference in _heads(run, HeadWork(place, repair, also=asked), which, total):
        tell(difference)
    if which.everything:
        for difference in _commands(run, CommandWork(place, repair, asked), total):
            tell(difference)
    doubt = bool(total.evidence.total())
    for check in checks:
        for difference in check.differences(ledger, which, run.report):
            judged = _of_view(ledger, check, difference, doubt, repair, Kind.VIEW in asked)
            total.note(judged)
            tell(judged)
    return total


def _allowed(ledger: Ledger, builds: bool) -> Ledger:
    """The ledger, if the login may verify it; builds: whether that builds something anew."""
    require_roles(ledger, "pledger verify" if builds else "pledger verify --check ''")
    return ledger


def _of_view(
    ledger: Ledger, check: Check, difference: Difference, doubt: bool, repair: bool, asked: bool
) -> Difference:
    """A difference of a view, repaired if requested; evidence while events are in doubt."""
    evidence = doubt and difference.about != difference.view
    repaired = check.repair(ledger, difference) if repair and (asked or not evidence) else None
    return replace(difference, evidence=evidence, repaired=repaired)


def rebuild_heads(
    ledger: Ledger,
    which: Which = ALL,
    *,
    processes: int | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Set every head to what the code of this process folds; also while others append, and after any kill.

    Correct heads are not written. Heads that contain more than the events, the trace of lost ones, are left
    too (`verify` repairs them if `also` names them). The lease tokens of jobs and batches are in their events
    and are restored, so workers continue. A token that no event holds stays in an existing head and is lost
    with a missing one: its holder is then refused. The state of a stream with a topic that no class here
    reads stays as it is. `Summary.changed` counts what was done. Needs the projector's role.
    """
    require_roles(ledger, "pledger rebuild")
    run, total = _Run(ledger, processes, progress or nothing), Summary()
    for _ in _heads(run, HeadWork(Place.of(ledger), anew=True), which, total):
        pass
    return total


def rebuild_commands(
    ledger: Ledger,
    *,
    processes: int | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Set rows of command ids to what the events record; contradicting rows are left. Needs the
    projector's role.
    """
    require_roles(ledger, "pledger rebuild")
    run, total = _Run(ledger, processes, progress or nothing), Summary()
    for _ in _commands(run, CommandWork(Place.of(ledger), repair=True), total):
        pass
    return total


def _heads(run: _Run, work: HeadWork, which: Which, total: Summary) -> Iterator[Difference]:
    """The differences of heads, and then the topics that no class here reads."""
    yield from run.over(work, run.ranges(which), total)
    for topic, unknown in sorted(total.unknown.items()):
        difference = unknown.difference(topic)
        total.note(difference)
        yield difference


def _commands(run: _Run, work: CommandWork, total: Summary) -> Iterator[Difference]:
    """The differences of command ids; a reported row is not reported again as one without events."""
    pieces, named = run.spans(), set[str]()
    for difference in run.over(work, pieces, total):
        named.add(difference.about)
        yield difference
    yield from run.over(work, [ALONE], total, named)


class _Run:
    """One run: its processes and its progress."""

    def __init__(self, ledger: Ledger, processes: int | None, progress: Progress) -> None:
        self.ledger, self.wanted, self.progress = ledger, processes, progress
        self.done = self.events = 0

    @property
    def processes(self) -> int:
        if self.wanted is not None:
            return self.wanted
        return cores() if self.events > FEW else 1

    def ranges(self, which: Which) -> Sequence[Any]:
        with FoldSession(*Place.of(self.ledger)) as session:
            pieces, self.events = partitions(session.connection, self.ledger.schema, which)
        return pieces

    def spans(self) -> Sequence[Any]:
        with FoldSession(*Place.of(self.ledger)) as session:
            ((first, last),) = session.rows(SQL.log_ends)
        self.events = self.events or last - first
        return spans(first, last)

    def report(self, count: int) -> None:
        self.done += count
        self.progress(self.done, max(self.done, self.events) if self.events else 0)

    def over(
        self, work: Work[Any, Found], pieces: Sequence[Any], total: Summary, but: Set[str] = frozenset()
    ) -> Iterator[Difference]:
        """The differences in all pieces, except those about some; what was checked is added to `total`."""
        with closing(in_processes(work, pieces, self.processes, self.report)) as results:
            for differences, summary in results:
                total.add(summary)
                for difference in differences:
                    if difference.about not in but:
                        total.note(difference)
                        yield difference
