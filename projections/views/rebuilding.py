"""
Rebuilding a view: a new copy is filled from the log while the live one serves, compared with it, and
switched to.

    shadow ──filled──▶ at the live one's position ──compared──▶ switched, the old copy is kept

The switch is a row, changed while the live copy is held where it is for a moment: who reads sees the one or
the other, and nobody waits, however long a reader reads. Killed at any moment, a rebuild goes on where it was
when it is run again. One builder a view, by a lock of its session.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from ledger import BadInput, BeingBuilt, DefinitionChanged, Ledger, ViewsDiffer
from ledger.store.declaring import declare_moves, declare_sets

from ..sql import query
from . import inline
from .applying import Applier, Moved, NewMoves
from .built import Building, Rebuilt
from .comparing import SHOWN, Difference, differences
from .copies import Copy, Shelf, projecting
from .holding import Held, held_where_it_is
from .refolding import learn_moves
from .view import View

BATCH: Final = 50_000
"""Events that are applied at once."""
GIVEN_WAY: Final = 6.0
"""While others append, a rebuild pauses for so many times as long as it works."""
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

    allowed: rows that may differ between the two; by default any number. dry_run: build and compare only, and
    drop what was built. restart: begin anew where an earlier rebuild was killed. batch: events at once.
    shown: rows of each kind that are told where the copies differ.
    Raises BeingBuilt, ViewsDiffer (then the new copy waits for the next rebuild), ViewFailed,
    ServerUnavailable.
    """
    declare_moves(ledger)
    declare_sets(ledger)
    with projecting(ledger) as connection:
        shelf = Shelf(connection, ledger.schema)
        with _only_builder(shelf, view):
            builder = _Builder(ledger, shelf, view, batch, progress, shown)
            return builder.build(allowed, dry_run=dry_run, restart=restart)


def roll_back(ledger: Ledger, view: View) -> Rebuilt:
    """Let readers see the copy again that they saw before the last rebuild, brought to where the live one is.

    Raises BadInput where none is kept, DefinitionChanged where other code made it, BeingBuilt.
    """
    with projecting(ledger) as connection:
        shelf = Shelf(connection, ledger.schema)
        with _only_builder(shelf, view):
            kept = shelf.kept(view)
            if kept is None:
                raise BadInput(f"of view {view.name} no earlier copy is kept: there is nothing to go back to")
            if kept.definition != view.definition:
                raise DefinitionChanged(view.name, kept.number)
            return _Builder(ledger, shelf, view, BATCH, None).go_back(kept)


@contextmanager
def _only_builder(shelf: Shelf, view: View) -> Iterator[None]:
    """Be the only builder of a view while this session lives."""
    if query(shelf.connection, shelf.schema, "try_builder", view=view.name) != [(True,)]:
        raise BeingBuilt(view.name)
    try:
        yield
    finally:
        if not shelf.connection.closed:
            query(shelf.connection, shelf.schema, "end_builder", view=view.name)


class _Builder:
    """One rebuild of one view."""

    def __init__(
        self,
        ledger: Ledger,
        shelf: Shelf,
        view: View,
        batch: int,
        progress: Callable[[Building], None] | None,
        shown: int = SHOWN,
    ) -> None:
        self.ledger, self.shelf, self.view, self.batch = ledger, shelf, view, batch
        self.connection, self.schema = shelf.connection, shelf.schema
        self.log_end = 0
        self.began, self.applied, self.report, self.shown = time.monotonic(), 0, progress, shown

    def build(self, allowed: int | None, *, dry_run: bool, restart: bool) -> Rebuilt:
        """Fill, compare, switch."""
        left = self._left_over(restart)
        shadow = left or self.shelf.begin(self.view)
        live = self.shelf.live(self.view)
        shadow = self._fill(shadow, live)
        if not shadow.indexed:
            self.shelf.index(self.view, shadow.number)
            self.shelf.look_over(self.view, shadow.number)
        found: list[Difference] = []
        if live is not None:
            shadow, found = self._compared(shadow, live)
        rows = sum(difference.rows for difference in found)
        refused = allowed is not None and rows > allowed
        if not (dry_run or refused):
            shadow = self._switch(shadow)
        made = self._result(
            shadow, live, found, switched=not (dry_run or refused), continued=left is not None
        )
        if dry_run:
            self.shelf.drop(self.view, shadow.number)
        if refused and not dry_run:
            raise ViewsDiffer(self.view.name, rows, allowed or 0)
        self._sweep()
        return made

    def go_back(self, kept: Copy) -> Rebuilt:
        """Bring the kept copy to where the live one is, and switch."""
        live = self.shelf.live(self.view)
        kept = self._fill(kept, live)
        return self._result(self._switch(kept), live, [], switched=True, continued=True)

    def _result(
        self, copy: Copy, live: Copy | None, found: Sequence[Difference], *, switched: bool, continued: bool
    ) -> Rebuilt:
        ((parked,),) = query(self.connection, self.schema, "parked_in", view=self.view.name, copy=copy.number)
        return Rebuilt(
            self.view.name, copy.number, None if live is None else live.number, copy.position, self.applied,
            time.monotonic() - self.began, tuple(found), parked, switched, continued,
        )  # fmt: skip

    # Filling

    def _left_over(self, restart: bool) -> Copy | None:
        """The copy that a killed rebuild of this definition left; what else it left is dropped."""
        found = None
        for copy in self.shelf.copies(self.view):
            if copy.building:
                if copy.definition == self.view.definition and not restart:
                    found = copy
                else:
                    self.shelf.drop(self.view, copy.number)
        return found

    def _fill(self, copy: Copy, live: Copy | None) -> Copy:
        """Apply the log to a copy: as far as the live one is, or to the log's end where there is none."""
        applier = Applier(self.shelf, self.view, copy)
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
        """Leave the machine for a while to those who append, if anybody did since the last batch."""
        before = self.log_end
        ((self.log_end, _),) = query(self.connection, self.schema, "log_end")
        if 0 < before < self.log_end:
            time.sleep(min(LONGEST_PAUSE, GIVEN_WAY * worked))

    def _ahead(self, position: int, end: int | None, known: int) -> tuple[int | None, int, int]:
        """The next batch, and up to where more may follow: to where the live copy is, or to what is safe.

        What is in the live copy is safe. The bound may be less: an append can have marked itself late.
        """
        if end is not None:
            place = {"after": position, "limit": self.batch, "upto": end}
            ((upto, many),) = query(self.connection, self.schema, "batch_upto", **place)
            return upto, many, end
        place = {"after": position, "limit": self.batch, "known": known}
        ((upto, many, known),) = query(self.connection, self.schema, "next_batch", **place)
        return upto, many, known

    def _apply(self, applier: Applier, position: int, upto: int, many: int) -> int:
        """Apply one batch; returns where the copy stands then."""
        try:
            applier.apply(position, upto, many)
        except NewMoves:
            learn_moves(self.shelf, self.view, applier.number)
            return position
        except Moved:
            copy = self.shelf.copy(self.view, applier.number)
            if copy is None:
                raise BeingBuilt(self.view.name) from None
            return copy.position
        self.applied += many
        return upto

    def _now(self, copy: Copy) -> Copy:
        found = self.shelf.copy(self.view, copy.number)
        if found is None:
            raise BeingBuilt(self.view.name)
        return found

    def _tell(self, copy: Copy, position: int, end: int) -> None:
        if self.report is not None:
            seconds = time.monotonic() - self.began
            self.report(Building(self.view.name, copy.number, position, end, self.applied, seconds))

    # Comparing and switching

    def _compared(self, shadow: Copy, live: Copy) -> tuple[Copy, list[Difference]]:
        """Bring the shadow exactly to where the live copy is, and compare both there, in one snapshot."""
        with projecting(self.ledger) as other, other.transaction():
            query(other, self.schema, "one_snapshot")
            with held_where_it_is(self.ledger, self.view, live) as held:
                shadow = self._meet(held, shadow, live)
                query(other, self.schema, "this_moment")
            return shadow, differences(other, self.schema, self.view, live.number, shadow.number, self.shown)

    def _switch(self, shadow: Copy) -> Copy:
        """Bring the shadow exactly to where the live copy is, and let readers see it instead."""
        live = self._first(shadow)
        if live is None:
            return shadow
        shadow = self._fill(shadow, live)
        with held_where_it_is(self.ledger, self.view, live) as held:
            shadow = self._meet(held, shadow, live)
            self._show(held.shelf, shadow)
            if live.inline:
                inline.settle(held.shelf, self.view.name, live.number, held.bound)
                inline.make_keeper(held.shelf, self.view, shadow.number)
        return shadow

    def _first(self, shadow: Copy) -> Copy | None:
        """Let readers see the shadow where they see no copy yet; else the live one, which may be new."""
        with self.connection.transaction():
            query(self.connection, self.schema, "know_view", view=self.view.name)  # nobody makes one now
            live = self.shelf.live(self.view)
            if live is None:
                self._show(self.shelf, shadow)
        return live

    def _meet(self, held: Held, shadow: Copy, live: Copy) -> Copy:
        """Bring the shadow exactly to where the live copy is held."""
        if not live.inline:
            return self._fill(shadow, live)
        with self.connection.transaction():
            inline.take_in(self.shelf, self.view, shadow.number, held.bound)
        return self._now(shadow)

    def _show(self, shelf: Shelf, shadow: Copy) -> None:
        shelf.show(self.view, shadow.number)
        shelf.finish(self.view, shadow.number)
        query(shelf.connection, self.schema, "switch", view=self.view.name, copy=shadow.number)

    def _sweep(self) -> None:
        """Drop what is neither read nor kept, as far as nobody reads it still."""
        live, kept = self.shelf.live(self.view), self.shelf.kept(self.view)
        for copy in self.shelf.copies(self.view):
            if copy.number not in {live and live.number, kept and kept.number}:
                self.shelf.drop(self.view, copy.number)
