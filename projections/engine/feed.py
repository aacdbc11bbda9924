"""
Feeding a view with events from a source other than the log, with the same statements.

The events may be of the ledger in the same database, whose log then shows that they are still its
history. Or they are of another ledger, elsewhere: the database then holds views only. It keeps the id of
that ledger with each view that it feeds, and the source's own word for the place where it stands, in the
transaction of the effects. The source itself must notice a history that was rolled back, as the id and
the chain of a Kafka topic do.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any, Self
from uuid import UUID

from psycopg import sql

from ledger import (
    BadInput,
    BeingBuilt,
    Cursor,
    CursorMismatch,
    EventsMissing,
    Ledger,
    Recorded,
    ServerUnavailable,
    ViewFailed,
)
from ledger.log.announce import announce
from ledger.log.cursor import Checkpoint
from ledger.log.server_errors import ledger_errors
from ledger.log.sql import Statement, Statements

from .apply import Applier, CopyMoved, NewStatuses, relation, view_errors
from .copies import Copies, Copy, open_copies
from .rebuild import only_builder
from .refold import learn_statuses
from .view import View

SQL = Statements(__package__, "feed", "copies")


FED = sql.Identifier("pg_temp", "fed")


class Feed:
    """A view that is fed: `with Feed(log, view) as feed: feed.take(events)`.

    The events are applied to the live copy, each once: effects and position in one transaction, so that a
    process that was killed may pass them again. The source must deliver every event that the view wants, in
    the order of the log. A projector may follow the same view at the same time.

    source: the ledger of the events; by default `ledger` itself. If it is another one, `ledger` is only a
    place for views: it must have no events of its own, and all domains must be imported that declare statuses
    and sets: what is declared later needs the events anew.

    anew: feed a new copy from the beginning while readers see the live one, until `show` switches to it; only
    for a view whose events are elsewhere. One that was begun so and was killed is continued.
    """

    def __init__(self, ledger: Ledger, view: View, source: UUID | None = None, *, anew: bool = False) -> None:
        self.ledger, self.view, self.anew = ledger, view, anew
        self.source = ledger.identity.ledger if source is None else source
        self._open = ExitStack()
        self._copies: Copies | None = None
        self._beside: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Return the connection; the next events open another."""
        self._copies = self._beside = None
        self._open.close()

    @property
    def position(self) -> int:
        """The last event that the copy contains which is fed."""
        return self._copy(self._connected()).position

    @property
    def is_elsewhere(self) -> bool:
        """Whether the events are of another ledger than the one that the view is in."""
        return self.source != self.ledger.identity.ledger

    @property
    def place(self) -> str:
        """The source's word for where it stood when it last passed events; empty at the beginning."""
        copies = self._connected()
        rows = copies.run(SQL.fed_from, view=self.view.name, copy=self._copy(copies).number)
        return rows[0][1] if rows else ""

    def take(self, events: Iterable[Recorded], after: int | None = None, *, place: str = "") -> int:
        """Apply events, except those that the view contains already; returns how many were new.

        after: the position up to which the source has delivered everything. place: a word of the source for
        where it stands after these events, stored in the transaction of their effects. Raises EventsMissing
        if the view has not reached `after`, CursorMismatch if the events are not of the ledger's history,
        BadInput, DefinitionChanged, ViewFailed; ServerUnavailable, after which the same events may be passed
        again.
        """
        given = sorted({event.position: event for event in events}.items())
        if given and after is not None and given[0][0] <= after:
            raise BadInput(f"event {given[0][0]} is not after position {after}, as all given events must be")
        try:
            copies = self._connected()
            if after is not None and (at := self._copy(copies).position) < after:
                raise EventsMissing(self.view.name, at, after)
            self._check_history(copies, [event for _, event in given])
            self._fill(copies, [event for _, event in given])
            return self._apply(copies, [position for position, _ in given], place)
        except ServerUnavailable:
            self.close()
            raise

    def _connected(self) -> Copies:
        if self._copies is None:
            announce(self.ledger)
            copies = self._open.enter_context(open_copies(self.ledger))
            copies.run(SQL.make_fed)
            copies.run(SQL.make_fed_from)
            if self.anew:
                self._beside = self._begin(copies)
            self._check_source(copies)
            self._copies = copies
        return self._copies

    def _check_source(self, copies: Copies) -> None:
        """Refuse to mix the events of two ledgers. Raises BadInput, CursorMismatch."""
        copy = self._copy(copies)
        rows = copies.run(SQL.fed_from, view=self.view.name, copy=copy.number)
        if rows and rows[0][0] != self.source:
            raise CursorMismatch(
                f"view {self.view.name} is fed from ledger {rows[0][0]}, and these events are "
                f"of {self.source}"
            )
        if self.is_elsewhere and (self.ledger.bound() or (copy.position and not rows)):
            raise BadInput(
                f"ledger {self.ledger.identity.ledger} has events of its own, so its views cannot be fed "
                f"with events of {self.source}: make a schema for them (`pledger init --schema NAME`)"
            )

    def _begin(self, copies: Copies) -> int | None:
        """The copy to feed beside the live one; None if there is no live one yet."""
        if not self.is_elsewhere:
            raise BadInput(
                f"the log of view {self.view.name} is here: `pledger rebuild {self.view.name}` builds it anew"
            )
        if copies.live(self.view) is None:
            return None
        self._open.enter_context(only_builder(copies, self.view))
        return (copies.left_over(self.view) or copies.begin(self.view)).number

    def show(self) -> bool:
        """Switch readers to the copy that is fed anew, once it contains what they see; whether they see it.

        The one that they saw is kept.
        """
        if self._beside is None:
            return True
        copies, view = self._connected(), self.view
        new, live = self._copy(copies), copies.live(view)
        if live is not None and new.position < live.position:
            return False
        if not new.indexed:
            copies.index(view, new.number)
            copies.analyze(view, new.number)
        with copies.connection.transaction():
            if live is not None:
                copies.run(SQL.lock_copy, view=view.name, copy=live.number)  # nobody moves it now
                if new.position < self._now(copies, live.number).position:
                    return False
            copies.switch(view, new.number)
        self._beside, self.anew = None, False
        copies.sweep(view)
        return True

    def _now(self, copies: Copies, number: int) -> Copy:
        copy = copies.copy(self.view, number)
        if copy is None:
            raise BeingBuilt(self.view.name)
        return copy

    def _copy(self, copies: Copies) -> Copy:
        """The copy that is fed, as it is now."""
        if self._beside is not None:
            return self._now(copies, self._beside)
        with view_errors(self.view):
            copy = copies.followed(self.view)
        if copy.inline:
            raise BadInput(
                f"appends keep the view {self.view.name}: run `pledger views detach {self.view.name}` first"
            )
        return copy

    def _check_history(self, copies: Copies, events: list[Recorded]) -> None:
        """Refuse events of another history: a source may still have events that a restore removed."""
        if events and not self.is_elsewhere:
            last = Cursor.after(self.ledger.identity.ledger, events[-1])
            with ledger_errors():
                Checkpoint(last.ledger, last).confirm(copies.connection, copies.schema)

    def _fill(self, copies: Copies, events: list[Recorded]) -> None:
        """Store the events where the view's statements read them."""
        with view_errors(self.view):
            copies.run(SQL.empty_fed)
            cursor = copies.connection.cursor()
            with cursor.copy(SQL.fill_fed.filled(copies.schema)) as copy:
                for e in events:
                    copy.write_row((e.position, e.stream, e.version, e.topic, e.schema, e.data, e.raw,
                                    e.meta_data, e.recorded_at))  # fmt: skip

    def _apply(self, copies: Copies, positions: list[int], place: str) -> int:
        """Apply the new events to the copy, whatever its position is by now, and note the source's place."""
        while True:
            copy = self._copy(copies)
            new = [position for position in positions if position > copy.position]
            try:
                with copies.connection.transaction():
                    if new:
                        feed = relation(copies.schema, self.view, copy.number, FED)
                        _FedApplier(copies, self.view, copy, feed=feed).apply(
                            copy.position, new[-1], len(new)
                        )
                    if place:
                        copies.run(SQL.note_place, view=self.view.name, copy=copy.number, ledger=self.source,
                                   place=place)  # fmt: skip
                return len(new)
            except NewStatuses:
                self._learn(copies, copy)
            except CopyMoved:
                continue

    def _learn(self, copies: Copies, copy: Copy) -> None:
        """Learn what was announced since the copy was made. Raises ViewFailed if that needs the log."""
        if self.is_elsewhere and copy.position:
            raise ViewFailed(
                self.view.name, "statuses or sets were declared after it was begun, and the log of its "
                f"events is elsewhere: feed it anew with `pledger views feed {self.view.name} --anew`",
            )  # fmt: skip
        learn_statuses(copies, self.view, copy.number)


class _FedApplier(Applier):
    """An applier that stores a parked event as it was passed, because the log may not have it."""

    def _send(self, statement: Statement, **parameters: Any) -> list[tuple[Any, ...]]:
        stored = SQL.park_event_as_fed if statement.name == "park_event" else statement
        return super()._send(stored, **parameters)
