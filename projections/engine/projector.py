"""The projector: follows the log with many views, each from its own position, in batches of adaptive size."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from ledger import (
    DefinitionChanged,
    Ledger,
    LedgerError,
    ServerUnavailable,
    UnknownView,
    ViewFailed,
)
from ledger.domain.known import KNOWN
from ledger.log.announce import announce
from ledger.log.sql import Statements
from ledger.roles import require_roles

from ..shipped import load
from . import inline
from .apply import Applier, BadEvent, CopyMoved, NewStatuses, view_errors
from .background import Background
from .copies import Copies, open_copies
from .follower import FIRST_PAUSE, LONGEST_PAUSE, retry_outages
from .refold import learn_statuses
from .view import View

SQL = Statements(__package__, "projector", "copies")


LEAST: Final = 500
"""Maximum events in a batch of a view that is up to date."""
MOST: Final = 50_000
"""Maximum events in a batch of a view that is far behind: the size doubles as long as there are more."""
EVERYTHING: Final = 2**62
"""The position of a view that appends keep: it contains all that is recorded."""


class NextBatches:
    """The next events of the log, queried once for all followers at the same position.

    The bound belongs to a connection, and so does this object. Call `forget` before each round.
    """

    def __init__(self, copies: Copies) -> None:
        self._copies, self._known = copies, -1
        self._seen: dict[tuple[int, int], tuple[int | None, int, int]] = {}

    def forget(self) -> None:
        """Forget the batches that were read."""
        self._seen.clear()

    def after(self, position: int, limit: int) -> tuple[int | None, int, int]:
        """The position of the last of the next events, at most `limit`; their number; the bound."""
        place = position, limit
        if place not in self._seen:
            ((upto, many, self._known),) = self._copies.run(SQL.next_batch,
                after=position, limit=limit, known=self._known,
            )  # fmt: skip
            self._seen[place] = upto, many, self._known
        return self._seen[place]


class ViewFollower:
    """The live copy of one view, followed on one connection.

    position: the last event that the view contains. seen: the position up to which nothing is left to apply,
    gaps included. applied: events that this follower has read. limit: maximum events of the next batch.
    """

    def __init__(
        self, copies: Copies, view: View, batch: int = MOST, ahead: NextBatches | None = None
    ) -> None:
        self.copies, self.view, self.batch = copies, view, batch
        self.ahead = ahead or NextBatches(copies)
        self.position, self.seen, self.applied = 0, -1, 0
        self.limit, self.inline = min(LEAST, batch), False
        self._applier: Applier | None = None
        self._followed = False

    def look(self) -> None:
        """Find the live copy and its position. Raises DefinitionChanged, ViewFailed."""
        try:
            with view_errors(self.view):
                copy = self.copies.followed(self.view)
        except BadEvent as error:
            raise ViewFailed(self.view.name, str(error)) from error
        self.position, self.inline = copy.position, copy.inline
        if self._applier is None or self._applier.number != copy.number:
            self._applier = Applier(self.copies, self.view, copy)
        if self.view.statuses and not self.inline and self._has_news():
            learn_statuses(self.copies, self.view, copy.number)
        if not self._followed:
            self.copies.run(SQL.begin_following, view=self.view.name)
            self._followed = True

    def _has_news(self) -> bool:
        """Whether something was announced that the copy does not contain; needs no new event."""
        rows = self.copies.run(SQL.news_of_statuses, view=self.view.name)
        return rows == [(True,)]

    def leave(self) -> None:
        """Stop following the view; the next step reads its position again."""
        self._applier = None
        if self._followed:
            self.copies.run(SQL.end_following, view=self.view.name)
            self._followed = False

    def step(self, end: int | None = None) -> bool:
        """Apply the next batch, not beyond `end`; False if nothing more is safe to read."""
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
        except NewStatuses:
            learn_statuses(self.copies, self.view, self._applier.number)
            return True
        except CopyMoved:
            self.seen = -1
            self.look()
            return True
        self._moved(upto, many)
        return True

    def is_elsewhere(self) -> bool:
        """Whether another copy is live now; the follower then continues with that one.

        It waits for a switch that is being committed, by a builder that may be dead already.
        """
        if self._applier is None or self.inline:
            return False
        number = self._applier.number
        with view_errors(self.view), self.copies.connection.transaction():
            self.copies.run(SQL.lock_copy, view=self.view.name, copy=number)
        self.look()
        return self._applier.number != number

    def _keep_company(self) -> bool:
        """Take over what was announced since, the only work left for a view that appends keep."""
        self.seen = EVERYTHING
        return self.view.statuses and inline.learn(self.copies, self.view) > 0

    def _moved(self, upto: int, many: int) -> None:
        self.position, self.applied = upto, self.applied + many
        more = many == self.limit
        self.limit = min(self.limit * 2 if more else max(LEAST, self.limit // 2), self.batch)

    def _next(self) -> tuple[int, int] | None:
        upto, many, safe = self.ahead.after(self.position, self.limit)
        if upto is None:
            self.seen = max(safe, self.position)
            return None
        return upto, many

    def _upto(self, end: int) -> tuple[int, int] | None:
        """The next batch up to a position that is safe to read."""
        ((upto, many),) = self.copies.run(SQL.batch_upto,
            after=self.position, upto=end, limit=self.limit,
        )  # fmt: skip
        if upto is None:
            self.seen = max(end, self.position)
            return None
        return upto, many


GATHER: Final = 0.004
"""Seconds between two batches of views that are up to date: one event costs as much as ten."""
AGAIN: Final = 5.0
"""Seconds after which a view that could not be followed is retried: it may have been rebuilt."""

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())


def views_named(names: Iterable[str] = ()) -> list[View]:
    """The views of these names; by default all that this process has imported. Raises UnknownView."""
    wanted = list(dict.fromkeys(names))
    if not wanted or any(name not in KNOWN.views for name in wanted):
        load()
    if wrong := [name for name in wanted if name not in KNOWN.views]:
        raise UnknownView(wrong[0], KNOWN.views)
    return [KNOWN.views[name] for name in (wanted or sorted(KNOWN.views))]


class Projector(Background):
    """Keeps views up to date: `with Projector(log): …` in a thread, or `catch_up()` in the foreground.

    views: by default all that this process has imported. batch: maximum events at once. again: seconds after
    which a view that could not be followed is retried. longest_pause: seconds; an event of another process is
    applied after this time at the latest. gather: seconds between two batches of views that are up to date.
    moved: called with the name of each view whose position moved. Any number of projectors may run; each
    event is applied once.

    positions: the position of each view. applied: how many events were read for each. stopped: the views
    that cannot be followed, by name, each with its error (DefinitionChanged, ViewFailed); the others go on.
    """

    title = "projector"

    def __init__(
        self,
        ledger: Ledger,
        views: Sequence[View] | None = None,
        *,
        batch: int = MOST,
        again: float = AGAIN,
        longest_pause: float = LONGEST_PAUSE,
        gather: float = GATHER,
        moved: Callable[[str], None] = lambda view: None,
    ) -> None:
        super().__init__()
        self.longest_pause, self.gather, self.on_move = longest_pause, gather, moved
        self.ledger, self.views = ledger, views_named() if views is None else list(views)
        self.batch, self.again = batch, again
        self.stopped: dict[str, LedgerError] = {}
        self.positions: dict[str, int] = {}
        self.applied: Counter[str] = Counter()
        self._seen: dict[str, int] = {}
        self._due: dict[str, float] = {}
        self._told: dict[str, str] = {}
        self._alive = 0.0

    def catch_up(self, upto: int | None = None) -> dict[str, int]:
        """Apply all events that are safe to read, or those up to a position; returns each view's position.

        Raises the first error of a view that cannot be followed, after the others are done.
        """
        bound = self.ledger.bound()
        end = bound if upto is None else min(upto, bound)
        self.stopped.clear()
        self._due.clear()
        self._retry_outages(lambda followers: self._come_to(followers, end), threading.Event())
        errors = list(self.stopped.values())
        for other in errors[1:]:
            _log.error("%s", other)
        if errors:
            raise errors[0]
        return dict(self.positions)

    def run(self, stop: threading.Event | None = None) -> None:
        """Follow until `stop` is set. It waits for an unavailable server, for the ledger's `timeout`.

        Raises a view's error if no view can be followed, NoPermission, ServerUnavailable, CursorMismatch.
        """
        stopped = stop or threading.Event()
        self.stopped.clear()
        self._due.clear()
        self._retry_outages(lambda followers: self._follow(followers, stopped), stopped)

    def wait_for(self, position: int, seconds: float = 30.0) -> bool:
        """Whether all views that can be followed reach a position within the time.

        Raises the error that ended the projector, if any.
        """
        return self.wait_until(lambda: self._is_at(position), seconds)

    def _is_at(self, position: int) -> bool:
        followed = [view for view in self.views if view.name not in self.stopped]
        come = all(self._seen.get(view.name, -1) >= position for view in followed)
        return come and (bool(followed) or not self.views)

    def _retry_outages(self, act: Callable[[list[ViewFollower]], None], stop: threading.Event) -> None:
        """Call `act` with the followers, again during outages, for the ledger's `timeout`."""
        require_roles(self.ledger, "pledger views follow")
        self._alive, told = time.monotonic(), set[str]()

        def follow() -> None:
            with self._following() as followers:
                act(followers)

        def lost(error: ServerUnavailable) -> None:
            if str(error) not in told:
                told.add(str(error))
                _log.warning("the projector tries again: %s", error)

        retry_outages(self.ledger, follow, stop, alive=lambda: self._alive, lost=lost)

    @contextmanager
    def _following(self) -> Iterator[list[ViewFollower]]:
        """A follower for each view, on one connection."""
        announce(self.ledger)
        with open_copies(self.ledger) as copies:
            ahead = NextBatches(copies)
            followers = [ViewFollower(copies, view, self.batch, ahead) for view in self.views]
            for follower in followers:
                self._guarded(follower, lambda follower=follower: bool(follower.look()))  # type: ignore[misc]
            yield followers

    def _come_to(self, followers: list[ViewFollower], end: int) -> None:
        for follower in followers:
            while self._comes_to(follower, end) or self._guarded(follower, follower.is_elsewhere):
                self._alive = time.monotonic()

    def _comes_to(self, follower: ViewFollower, end: int) -> bool:
        """Apply one batch towards a position; False if the view has reached it, or nothing more is there."""
        return follower.position < end and self._guarded(follower, lambda: follower.step(end))

    def _follow(self, followers: list[ViewFollower], stop: threading.Event) -> None:
        pause = FIRST_PAUSE
        while not stop.is_set():
            seen = self.ledger.wakeup.seen()
            if followers:
                followers[0].ahead.forget()
            moved = [self._guarded(follower, follower.step) for follower in followers if not stop.is_set()]
            self._alive = time.monotonic()
            if self.views and len(self.stopped) == len(self.views):
                raise next(iter(self.stopped.values()))
            self._tell_stopped()
            if any(moved):
                pause = FIRST_PAUSE
                if all(
                    follower.limit == LEAST for follower in followers
                ):  # up to date: let some events gather
                    stop.wait(self.gather)
                continue
            self.ledger.wakeup.wait(seen, pause, stop)
            pause = min(pause * 2, self.longest_pause)

    def _tell_stopped(self) -> None:
        """Log, once, why views are stopped."""
        for name, error in self.stopped.items():
            if self._told.get(name) != str(error):
                self._told[name] = str(error)
                _log.error("%s", error)

    def _guarded(self, follower: ViewFollower, act: Callable[[], bool]) -> bool:
        """Call `act` with a follower, unless its view is stopped; False if nothing more is there."""
        name = follower.view.name
        if name in self.stopped and time.monotonic() < self._due[name]:
            return False
        before, place = follower.applied, self.positions.get(name)
        try:
            moved = act()
        except (DefinitionChanged, ViewFailed) as error:
            self._stops(follower, error)
            return False
        with self.moved:
            if self.stopped.pop(name, None) is not None:
                self._told.pop(name, None)
                _log.warning("view %s is followed again", name)
            self.positions[name] = follower.position
            self._seen[name] = max(follower.seen, follower.position)
            self.applied[name] += follower.applied - before
            self.moved.notify_all()
        if follower.position != place:
            self.on_move(name)
        return moved

    def _stops(self, follower: ViewFollower, error: LedgerError) -> None:
        """Stop following a view for a while."""
        name = follower.view.name
        if isinstance(error, ViewFailed):
            follower.copies.run(
                SQL.note_failure,
                view=name,
                error=error.reason,
            )
        follower.leave()
        with self.moved:
            self._due[name] = time.monotonic() + self.again
            self.stopped[name] = error
            self.moved.notify_all()
