"""One view on its way along the log: where its live copy stands, and how much it takes at once."""

from __future__ import annotations

from typing import Final

from ledger import ViewFailed

from ..sql import query
from . import inline
from .applying import Applier, BadEvent, Moved, NewMoves, in_our_words
from .copies import Shelf
from .refolding import learn_moves
from .view import View

LEAST: Final = 500
"""Events in a batch of a view that is up to date, at most."""
MOST: Final = 50_000
"""Events in a batch of one that is far behind: it doubles as long as there are more."""
EVERYTHING: Final = 2**62
"""How far a view has come that appends keep: what is recorded is in it."""


class Outlook:
    """What lies ahead in the log, asked once for all lanes that stand at one place.

    The bound is that of a connection, and so is this. `forget` before each round of the lanes.
    """

    def __init__(self, shelf: Shelf) -> None:
        self._shelf, self._known = shelf, -1
        self._seen: dict[tuple[int, int], tuple[int | None, int, int]] = {}

    def forget(self) -> None:
        """Ask anew."""
        self._seen.clear()

    def after(self, position: int, limit: int) -> tuple[int | None, int, int]:
        """The last of the next events, at most so many; how many they are; up to where it is safe to read."""
        place = position, limit
        if place not in self._seen:
            ((upto, many, self._known),) = query(
                self._shelf.connection, self._shelf.schema, "next_batch",
                after=position, limit=limit, known=self._known,
            )  # fmt: skip
            self._seen[place] = upto, many, self._known
        return self._seen[place]


class Lane:
    """The live copy of one view, followed on one connection.

    position: the last event that is in. seen: up to where there is nothing more to apply, gaps included.
    applied: events that this lane looked at. limit: events of the next batch, at most.
    """

    def __init__(self, shelf: Shelf, view: View, most: int = MOST, outlook: Outlook | None = None) -> None:
        self.shelf, self.view, self.most = shelf, view, most
        self.outlook = outlook or Outlook(shelf)
        self.position, self.seen, self.applied = 0, -1, 0
        self.limit, self.inline = min(LEAST, most), False
        self._applier: Applier | None = None
        self._followed = False

    def look(self) -> None:
        """Find the copy that is read, and where it stands. Raises DefinitionChanged, ViewFailed."""
        try:
            with in_our_words(self.view):
                copy = self.shelf.followed(self.view)
        except BadEvent as error:
            raise ViewFailed(self.view.name, str(error)) from error
        self.position, self.inline = copy.position, copy.inline
        if self._applier is None or self._applier.number != copy.number:
            self._applier = Applier(self.shelf, self.view, copy)
        if self.view.moves and not self.inline and self._has_news():
            learn_moves(self.shelf, self.view, copy.number)
        if not self._followed:
            query(self.shelf.connection, self.shelf.schema, "begin_following", view=self.view.name)
            self._followed = True

    def _has_news(self) -> bool:
        """Whether something was declared that the copy does not know; no event may come that asks."""
        rows = query(self.shelf.connection, self.shelf.schema, "news_of_moves", view=self.view.name)
        return rows == [(True,)]

    def leave(self) -> None:
        """Say that nobody follows the view here; the next step looks anew where it stands."""
        self._applier = None
        if self._followed:
            query(self.shelf.connection, self.shelf.schema, "end_following", view=self.view.name)
            self._followed = False

    def step(self, end: int | None = None) -> bool:
        """Apply the next batch, not beyond `end`; False where nothing more is safe to read."""
        if self._applier is None or self.inline:
            self.look()
        if self._applier is None or self.inline:
            return self._keep_company()
        found = self._next() if end is None else self._upto(end)
        if found is None:
            return False
        upto, many = found
        try:
            self._applier.apply(self.position, upto, many)
        except NewMoves:
            learn_moves(self.shelf, self.view, self._applier.number)
            return True
        except Moved:
            self.seen = -1
            self.look()
            return True
        self._moved(upto, many)
        return True

    def is_elsewhere(self) -> bool:
        """Whether readers see another copy now, at which it goes on then.

        A switch that is being committed just now, by a builder that may be dead already, is waited for.
        """
        if self._applier is None or self.inline:
            return False
        number, place = self._applier.number, (self.shelf.connection, self.shelf.schema)
        with in_our_words(self.view), self.shelf.connection.transaction():
            query(*place, "lock_copy", view=self.view.name, copy=number)
        self.look()
        return self._applier.number != number

    def _keep_company(self) -> bool:
        """What is left to do for a view that appends keep: to learn what was declared since."""
        self.seen = EVERYTHING
        return self.view.moves and inline.learn(self.shelf, self.view) > 0

    def _moved(self, upto: int, many: int) -> None:
        self.position, self.applied = upto, self.applied + many
        more = many == self.limit
        self.limit = min(self.limit * 2 if more else max(LEAST, self.limit // 2), self.most)

    def _next(self) -> tuple[int, int] | None:
        upto, many, safe = self.outlook.after(self.position, self.limit)
        if upto is None:
            self.seen = max(safe, self.position)
            return None
        return upto, many

    def _upto(self, end: int) -> tuple[int, int] | None:
        """The next batch up to a position that is known to be safe."""
        ((upto, many),) = query(
            self.shelf.connection, self.shelf.schema, "batch_upto",
            after=self.position, upto=end, limit=self.limit,
        )  # fmt: skip
        if upto is None:
            self.seen = max(end, self.position)
            return None
        return upto, many
