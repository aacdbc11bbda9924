"""Feeding a view with events that come from elsewhere than the log, by the statements that follow the log."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Self

from psycopg import sql

from ledger import BadInput, EventsMissing, Ledger, Recorded, ServerUnavailable
from ledger.store.declaring import declare_moves, declare_sets

from ..sql import query, statement
from .applying import Applier, Moved, NewMoves, in_our_words, relation
from .copies import Copy, Shelf, projecting
from .refolding import learn_moves
from .view import View

FED = sql.Identifier("pg_temp", "fed")


class Feed:
    """A view that is fed: `with Feed(log, view) as feed: feed.take(events)`.

    What is handed in goes to the live copy, each event once: effects and position in one transaction, so that
    who was killed may hand in again. The source must hold every event that the view wants, in the order of
    the log; a projector may follow the same view meanwhile.
    """

    def __init__(self, ledger: Ledger, view: View) -> None:
        self.ledger, self.view = ledger, view
        self._open = ExitStack()
        self._shelf: Shelf | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the connection back; the next events open another."""
        self._shelf = None
        self._open.close()

    @property
    def position(self) -> int:
        """The last event that is in the view."""
        return self._live(self._connected()).position

    def take(self, events: Iterable[Recorded], after: int | None = None) -> int:
        """Apply events, those left out that are in already; returns how many were new.

        after: the position up to which the source gave everything before. Raises EventsMissing where the view
        is not yet there, BadInput, DefinitionChanged, ViewFailed; ServerUnavailable, after which the same
        events may be handed in again.
        """
        given = sorted({event.position: event for event in events}.items())
        if given and after is not None and given[0][0] <= after:
            raise BadInput(f"event {given[0][0]} is not after position {after}, after which all shall be")
        try:
            shelf = self._connected()
            if after is not None and (at := self._live(shelf).position) < after:
                raise EventsMissing(self.view.name, at, after)
            self._fill(shelf, [event for _, event in given])
            return self._apply(shelf, [position for position, _ in given])
        except ServerUnavailable:
            self.close()
            raise

    def _connected(self) -> Shelf:
        if self._shelf is None:
            declare_moves(self.ledger)
            declare_sets(self.ledger)
            connection = self._open.enter_context(projecting(self.ledger))
            self._shelf = Shelf(connection, self.ledger.schema)
            query(connection, self.ledger.schema, "make_fed")
        return self._shelf

    def _live(self, shelf: Shelf) -> Copy:
        with in_our_words(self.view):
            copy = shelf.followed(self.view)
        if copy.inline:
            raise BadInput(f"view {self.view.name} is kept by the appends: `pledger views detach` it first")
        return copy

    def _fill(self, shelf: Shelf, events: list[Recorded]) -> None:
        """Put the events where the view's statements find them."""
        with in_our_words(self.view):
            query(shelf.connection, shelf.schema, "empty_fed")
            cursor = shelf.connection.cursor()
            with cursor.copy(statement("fill_fed", shelf.schema)) as copy:
                for e in events:
                    copy.write_row((e.position, e.stream, e.version, e.topic, e.schema, e.data, e.raw,
                                    e.meta_data, e.recorded_at))  # fmt: skip

    def _apply(self, shelf: Shelf, positions: list[int]) -> int:
        """Apply what is new to the copy, wherever it has come meanwhile."""
        while True:
            copy = self._live(shelf)
            new = [position for position in positions if position > copy.position]
            if not new:
                return 0
            feed = relation(shelf.schema, self.view, copy.number, FED)
            try:
                Applier(shelf, self.view, copy, feed=feed).apply(copy.position, new[-1], len(new))
                return len(new)
            except NewMoves:
                learn_moves(shelf, self.view, copy.number)
            except Moved:
                continue
