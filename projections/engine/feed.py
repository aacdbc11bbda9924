"""Feeding a view with events from a source other than the log, with the same statements."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Self

from psycopg import sql

from ledger import BadInput, Cursor, EventsMissing, Ledger, Recorded, ServerUnavailable
from ledger.log.announce import announce
from ledger.log.cursor import Checkpoint
from ledger.log.server_errors import ledger_errors
from ledger.log.sql import Statements

from .apply import Applier, CopyMoved, NewStatuses, relation, view_errors
from .copies import Copies, Copy, open_copies
from .refold import learn_statuses
from .view import View

SQL = Statements(__package__, "feed")


FED = sql.Identifier("pg_temp", "fed")


class Feed:
    """A view that is fed: `with Feed(log, view) as feed: feed.take(events)`.

    The events are applied to the live copy, each once: effects and position in one transaction, so that a
    process that was killed may pass them again. The source must deliver every event that the view wants, in
    the order of the log. A projector may follow the same view at the same time.
    """

    def __init__(self, ledger: Ledger, view: View) -> None:
        self.ledger, self.view = ledger, view
        self._open = ExitStack()
        self._copies: Copies | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Return the connection; the next events open another."""
        self._copies = None
        self._open.close()

    @property
    def position(self) -> int:
        """The last event that the view contains."""
        return self._live(self._connected()).position

    def take(self, events: Iterable[Recorded], after: int | None = None) -> int:
        """Apply events, except those that the view contains already; returns how many were new.

        after: the position up to which the source has delivered everything. Raises EventsMissing if the view
        has not reached it, CursorMismatch if the last event is not the ledger's at its position, BadInput,
        DefinitionChanged, ViewFailed; ServerUnavailable, after which the same events may be passed again.
        """
        given = sorted({event.position: event for event in events}.items())
        if given and after is not None and given[0][0] <= after:
            raise BadInput(f"event {given[0][0]} is not after position {after}, as all given events must be")
        try:
            copies = self._connected()
            if after is not None and (at := self._live(copies).position) < after:
                raise EventsMissing(self.view.name, at, after)
            self._check_history(copies, [event for _, event in given])
            self._fill(copies, [event for _, event in given])
            return self._apply(copies, [position for position, _ in given])
        except ServerUnavailable:
            self.close()
            raise

    def _connected(self) -> Copies:
        if self._copies is None:
            announce(self.ledger)
            self._copies = self._open.enter_context(open_copies(self.ledger))
            self._copies.run(SQL.make_fed)
        return self._copies

    def _live(self, copies: Copies) -> Copy:
        with view_errors(self.view):
            copy = copies.followed(self.view)
        if copy.inline:
            raise BadInput(
                f"appends keep the view {self.view.name}: run `pledger views detach {self.view.name}` first"
            )
        return copy

    def _check_history(self, copies: Copies, events: list[Recorded]) -> None:
        """Refuse events of another history: a source may still have events that a restore removed."""
        if events:
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

    def _apply(self, copies: Copies, positions: list[int]) -> int:
        """Apply the new events to the copy, whatever its position is by now."""
        while True:
            copy = self._live(copies)
            new = [position for position in positions if position > copy.position]
            if not new:
                return 0
            feed = relation(copies.schema, self.view, copy.number, FED)
            try:
                Applier(copies, self.view, copy, feed=feed).apply(copy.position, new[-1], len(new))
                return len(new)
            except NewStatuses:
                learn_statuses(copies, self.view, copy.number)
            except CopyMoved:
                continue
