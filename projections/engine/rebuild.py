"""
Rebuilding a view: a new copy is filled from the log while the live one serves, compared with it, and
switched to.

  new copy ──filled──▶ at the live one's position ──compared──▶ switched, the old copy is kept

The switch changes one row while the live copy is locked for a moment: a reader sees the one or the other, and
nobody waits, however long a reader reads. A rebuild that was killed at any moment continues when it is run
again. A session lock ensures one builder per view.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import psycopg

from ledger import BadInput, BeingBuilt, DefinitionChanged, Ledger, LedgerBusy, TablesMissing, ViewsDiffer
from ledger.log.announce import announce
from ledger.log.sql import Statements, run
from ledger.roles import require_roles

from . import inline
from .apply import Applier, CopyMoved, NewStatuses
from .compare import SHOWN, Difference, differences
from .copies import Copies, Copy, open_copies, projecting
from .projector import Projector
from .refold import learn_statuses
from .topics import unknown_topics
from .view import View

SQL = Statements(__package__, "rebuild", "copies")


@dataclass(frozen=True, slots=True)
class Building:
    """The progress of a rebuild. end: the end of the log when it was last read."""

    view: str
    copy: int
    position: int
    end: int
    events: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a rebuild did. switched: readers see the new copy. continued: it continued an earlier rebuild.

    differences: between the old copy and the new one, at one position. parked: streams with an event that
    fails. unknown_topics: topics that the view wants, but that no event and no class of this process has.
    """

    view: str
    copy: int
    before: int | None
    position: int
    events: int
    seconds: float
    differences: tuple[Difference, ...]
    parked: int
    switched: bool
    continued: bool
    unknown_topics: tuple[str, ...] = ()


BATCH: Final = 50_000
"""Events that are applied at once."""
GIVEN_WAY: Final = 6.0
"""While others append, a rebuild pauses so many times as long as it works."""
LONGEST_PAUSE: Final = 2.0
"""Seconds."""


def rebuild(
    ledger: Ledger,
    view: View,
    *,
    allowed: int | None = None,
    dry_run: bool = False,
    restart: bool = False,
    batch: int = BATCH,
    shown: int = SHOWN,
    progress: Callable[[Building], None] | None = None,
) -> Rebuilt:
    """Fill a new copy of a view from the log, compare it with the live one, and let readers see it.

    They are compared at the position of the live one; the new one is then brought to the end of the log.
    allowed: rows that may differ between the two; by default any number. dry_run: build and compare only, and
    drop the new copy. restart: begin anew, even if a killed rebuild could continue. batch: events at once.
    shown: rows of each kind that are returned if the copies differ.
    If tables of the live copy are missing, nothing is compared, and the old copy is not kept.
    Raises BeingBuilt, ViewsDiffer (then the new copy waits for the next rebuild), ViewFailed,
    FedFromElsewhere, NoPermission, ServerUnavailable.
    """
    require_roles(ledger, "pledger rebuild")
    announce(ledger)
    with open_copies(ledger) as copies, only_builder(copies, view):
        if (live := copies.live(view)) is not None:
            copies.refuse_fed(view, live.number)
        builder = _Builder(ledger, copies, view, batch, progress, shown)
        made = builder.build(allowed, dry_run=dry_run, restart=restart)
        unknown = unknown_topics(copies.connection, ledger.schema, view)
    return replace(_at_the_end(ledger, view, made), unknown_topics=unknown)


def _at_the_end(ledger: Ledger, view: View, made: Rebuilt) -> Rebuilt:
    """Bring the live copy to the end of the log, as a projector would."""
    if not made.switched:
        return made
    projector = Projector(ledger, [view])
    positions = projector.catch_up()
    return replace(
        made, position=positions.get(view.name, made.position),
        events=made.events + projector.applied[view.name],
    )  # fmt: skip


def roll_back(ledger: Ledger, view: View) -> Rebuilt:
    """Switch back to the copy that was live before the last rebuild, brought to the live one's position.

    Raises BadInput if none is kept, DefinitionChanged if other code built it, FedFromElsewhere, BeingBuilt,
    NoPermission.
    """
    require_roles(ledger, "pledger rebuild")
    with open_copies(ledger) as copies, only_builder(copies, view):
        kept = copies.kept(view)
        if kept is None:
            raise BadInput(f"view {view.name} has no earlier copy to go back to")
        copies.refuse_fed(view, kept.number)
        if kept.definition != view.definition:
            raise DefinitionChanged(view.name, kept.number)
        if missing := copies.missing(view, kept.number):
            raise TablesMissing(view.name, missing)
        made = _Builder(ledger, copies, view, BATCH, None).go_back(kept)
    return _at_the_end(ledger, view, made)


@contextmanager
def only_builder(copies: Copies, view: View) -> Iterator[None]:
    """Take the lock of a view's only builder, for as long as this session lives."""
    if copies.run(SQL.try_builder, view=view.name) != [(True,)]:
        raise BeingBuilt(view.name)
    try:
        yield
    finally:
        if not copies.connection.closed:
            copies.run(SQL.end_builder, view=view.name)


class _Builder:
    """One rebuild of one view."""

    def __init__(
        self,
        ledger: Ledger,
        copies: Copies,
        view: View,
        batch: int,
        progress: Callable[[Building], None] | None,
        shown: int = SHOWN,
    ) -> None:
        self.ledger, self.copies, self.view, self.batch = ledger, copies, view, batch
        self.connection, self.schema = copies.connection, copies.schema
        self.log_end = 0
        self.began, self.applied, self.report, self.shown = time.monotonic(), 0, progress, shown

    def build(self, allowed: int | None, *, dry_run: bool, restart: bool) -> Rebuilt:
        """Fill, compare, switch."""
        left = self.copies.left_over(self.view, restart=restart)
        new = left or self.copies.begin(self.view)
        live = self.copies.live(self.view)
        new = self._fill(new, live)
        if not new.indexed:
            self.copies.index(self.view, new.number)
            self.copies.analyze(self.view, new.number)
        found: list[Difference] = []
        lost = live is not None and bool(self.copies.missing(self.view, live.number))
        if live is not None and not lost:
            new, found = self._compared(new, live)
        rows = sum(difference.rows for difference in found)
        refused = allowed is not None and rows > allowed
        if not (dry_run or refused):
            new = self._switch(new, live if lost else None)
        switched = not (dry_run or refused)
        made = self._result(new, live, found, switched=switched, continued=left is not None)
        if dry_run:
            self.copies.drop(self.view, new.number)
        if refused and not dry_run:
            raise ViewsDiffer(self.view.name, rows, allowed or 0)
        self.copies.sweep(self.view)
        return made

    def go_back(self, kept: Copy) -> Rebuilt:
        """Bring the kept copy to the live one's position, and switch."""
        live = self.copies.live(self.view)
        kept = self._fill(kept, live)
        return self._result(self._switch(kept), live, [], switched=True, continued=True)

    def _result(
        self, copy: Copy, live: Copy | None, found: Sequence[Difference], *, switched: bool, continued: bool
    ) -> Rebuilt:
        ((parked,),) = self.copies.run(SQL.parked_in, view=self.view.name, copy=copy.number)
        return Rebuilt(
            self.view.name, copy.number, None if live is None else live.number, copy.position, self.applied,
            time.monotonic() - self.began, tuple(found), parked, switched, continued,
        )  # fmt: skip

    # Filling

    def _fill(self, copy: Copy, live: Copy | None) -> Copy:
        """Apply the log to a copy, up to the live one's position, or to the log's end if there is none."""
        applier = Applier(self.copies, self.view, copy)
        applier.live = False
        position, known = copy.position, -1
        while True:
            began = time.monotonic()
            end = None if live is None or live.inline else self._now(live).position
            upto, many, known = self._ahead(position, end, known)
            self._tell(copy, position, known)
            if upto is None:
                return self._now(copy)
            position = self._apply(applier, position, upto, many)
            if many == self.batch:
                self._give_way(time.monotonic() - began)

    def _give_way(self, worked: float) -> None:
        """Pause in favour of writers, if any event was appended since the last batch."""
        before = self.log_end
        ((self.log_end, _),) = self.copies.run(SQL.log_end)
        if 0 < before < self.log_end:
            time.sleep(min(LONGEST_PAUSE, GIVEN_WAY * worked))

    def _ahead(self, position: int, end: int | None, known: int) -> tuple[int | None, int, int]:
        """The next batch, and the position up to which more may follow: the live copy's, or the bound.

        What the live copy contains is safe. The bound may be lower: an append can have marked itself late.
        """
        if end is not None:
            place = {"after": position, "limit": self.batch, "upto": end}
            ((upto, many),) = self.copies.run(SQL.batch_upto, **place)
            return upto, many, end
        place = {"after": position, "limit": self.batch, "known": known}
        ((upto, many, known),) = self.copies.run(SQL.next_batch, **place)
        return upto, many, known

    def _apply(self, applier: Applier, position: int, upto: int, many: int) -> int:
        """Apply one batch; returns the new position of the copy."""
        try:
            applier.apply(position, upto, many)
        except NewStatuses:
            learn_statuses(self.copies, self.view, applier.number)
            return position
        except CopyMoved:
            copy = self.copies.copy(self.view, applier.number)
            if copy is None:
                raise BeingBuilt(self.view.name) from None
            return copy.position
        self.applied += many
        return upto

    def _now(self, copy: Copy) -> Copy:
        found = self.copies.copy(self.view, copy.number)
        if found is None:
            raise BeingBuilt(self.view.name)
        return found

    def _tell(self, copy: Copy, position: int, end: int) -> None:
        if self.report is not None:
            seconds = time.monotonic() - self.began
            self.report(Building(self.view.name, copy.number, position, end, self.applied, seconds))

    # Comparing and switching

    def _compared(self, new: Copy, live: Copy) -> tuple[Copy, list[Difference]]:
        """Bring the new copy exactly to the live copy's position, and compare both, in one snapshot."""
        with projecting(self.ledger) as other, other.transaction():
            run(other, self.schema, SQL.one_snapshot)
            with locked_live(self.ledger, self.view, live) as locked:
                new = self._bring_to(locked, new, live)
                run(other, self.schema, SQL.this_moment)
            return new, differences(other, self.schema, self.view, live.number, new.number, self.shown)

    def _switch(self, new: Copy, lost: Copy | None = None) -> Copy:
        """Bring the new copy exactly to the live copy's position, and make it the live one.

        lost: the live copy, if its tables are missing, so that it cannot be kept.
        """
        live = self._first(new)
        if live is None:
            return new
        new = self._fill(new, live)
        with locked_live(self.ledger, self.view, live) as locked:
            new = self._bring_to(locked, new, live)
            locked.copies.switch(self.view, new.number)
            if live.inline:
                inline.record_position(locked.copies, self.view.name, live.number, locked.bound)
                inline.make_effect(locked.copies, self.view, new.number)
        if lost is not None:
            self.copies.forget(self.view, lost.number)
        return new

    def _first(self, new: Copy) -> Copy | None:
        """Make the new copy live if no copy is live yet; else return the live one, which may be new."""
        with self.connection.transaction():
            self.copies.run(SQL.know_view, view=self.view.name)  # nobody makes one now
            live = self.copies.live(self.view)
            if live is None:
                self.copies.switch(self.view, new.number)
        return live

    def _bring_to(self, locked: LockedCopy, new: Copy, live: Copy) -> Copy:
        """Bring the new copy exactly to the position of the locked live copy."""
        if not live.inline:
            return self._fill(new, live)
        with self.connection.transaction():
            inline.apply_visible(self.copies, self.view, new.number, locked.bound)
        return self._now(new)


HOLD_MS: Final = 500
"""How long a switch waits for the live copy before it gives way to others and retries."""
TRIES: Final = 120
"""How often it tries."""


class LockedCopy(NamedTuple):
    """The live copy, locked on a separate connection. bound: the bound of the log before the lock."""

    copies: Copies
    bound: int


@contextmanager
def locked_live(ledger: Ledger, view: View, live: Copy) -> Iterator[LockedCopy]:
    """Lock the live copy of a view, by a transaction on a separate connection.

    Changes on that connection count when the block ends. Meanwhile projectors wait; if appends keep the view,
    appends wait. Raises LedgerBusy if others hold it for too long.
    """
    with open_copies(ledger) as copies:
        bound = inline.bound_of(copies)
        if live.inline:
            with inline.locked_view(copies, view.name):
                yield LockedCopy(copies, bound)
            return
        for attempt in range(TRIES):
            with copies.connection.transaction():
                if _lock(copies, view, live):
                    yield LockedCopy(copies, bound)
                    return
            time.sleep(min(1.0, 0.05 * 2**attempt))
    raise LedgerBusy(f"view {view.name} stays locked by others; run the rebuild again, and it continues")


def _lock(copies: Copies, view: View, live: Copy) -> bool:
    """Lock the live copy until the transaction ends; False if another session holds it for too long."""
    copies.run(SQL.short_lock, ms=HOLD_MS)
    try:
        with copies.connection.transaction():
            copies.run(SQL.lock_copy, view=view.name, copy=live.number)
    except psycopg.errors.LockNotAvailable:
        return False
    return True
