"""The projector: follows the log with many views, each from its own position, in batches that adapt."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Self

from ledger import (
    BadInput,
    DefinitionChanged,
    Ledger,
    LedgerError,
    NoPermission,
    ServerUnavailable,
    UnknownView,
    ViewFailed,
)
from ledger.store.declaring import declare_moves, declare_sets

from ..follower import FIRST_PAUSE, LONGEST_PAUSE
from ..sql import query
from .copies import Shelf, projecting
from .lane import LEAST, MOST, Lane, Outlook
from .view import VIEWS, View

GATHER: Final = 0.004
"""Seconds between two batches of views that are up to date: events by ones cost as much as by tens."""
AGAIN: Final = 5.0
"""Seconds after which a view that could not be followed is tried again: it may have been rebuilt."""

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())


def views_named(names: Iterable[str] = ()) -> list[View]:
    """The views of these names; all that this process knows where none is named. Raises UnknownView."""
    wanted = list(dict.fromkeys(names))
    if wrong := [name for name in wanted if name not in VIEWS]:
        raise UnknownView(wrong[0], VIEWS)
    return [VIEWS[name] for name in (wanted or sorted(VIEWS))]


class Projector:
    """Keeps views up to date: `with Projector(log): …` in a thread, or `catch_up()` at once.

    views: those of this process where none are given. most: events at once. again: seconds after which a view
    that could not be followed is tried once more. longest_pause: seconds; what another process appends is
    seen after this time at the latest. gather: seconds between two batches of views that are up to date.
    moved: called with the name of each view that moved. Any number of projectors may run; each event is
    applied once.

    positions: where each view stands. applied: how many events were looked at for each. stopped: the views
    that cannot be followed, by name, each with its error (DefinitionChanged, ViewFailed); the others go on.
    """

    def __init__(
        self,
        ledger: Ledger,
        views: Sequence[View] | None = None,
        *,
        most: int = MOST,
        again: float = AGAIN,
        longest_pause: float = LONGEST_PAUSE,
        gather: float = GATHER,
        moved: Callable[[str], None] = lambda view: None,
    ) -> None:
        self.longest_pause, self.gather, self.moved = longest_pause, gather, moved
        self.ledger, self.views = ledger, views_named() if views is None else list(views)
        self.most, self.again = most, again
        self.stopped: dict[str, LedgerError] = {}
        self.positions: dict[str, int] = {}
        self.applied: Counter[str] = Counter()
        self._seen: dict[str, int] = {}
        self._due: dict[str, float] = {}
        self._told: dict[str, str] = {}
        self._alive = 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._failed: BaseException | None = None
        self._moved = threading.Condition()

    # In the foreground

    def catch_up(self, upto: int | None = None) -> dict[str, int]:
        """Apply all that is safe to read now, or what is there up to a position; where each view stands then.

        Raises the first error of a view that cannot be followed, after the others are done.
        """
        bound = self.ledger.bound()
        end = bound if upto is None else min(upto, bound)
        self.stopped.clear()
        self._due.clear()
        self._patiently(lambda lanes: self._come_to(lanes, end), threading.Event())
        errors = list(self.stopped.values())
        for other in errors[1:]:
            _log.error("%s", other)
        if errors:
            raise errors[0]
        return dict(self.positions)

    def run(self, stop: threading.Event | None = None) -> None:
        """Follow until `stop` is set. A server that goes away is waited for, for the ledger's patience.

        Raises a view's error where none can be followed, NoPermission, ServerUnavailable, CursorMismatch.
        """
        stopped = stop or threading.Event()
        self.stopped.clear()
        self._due.clear()
        self._patiently(lambda lanes: self._follow(lanes, stopped), stopped)

    # In a thread

    def __enter__(self) -> Self:
        if self._thread is not None:
            raise BadInput("this projector runs already; make another object for a second one")
        self._stop.clear()
        self._failed = None
        self._thread = threading.Thread(target=self._run, name="projector", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join()
        self._thread = None
        if self._failed is not None:
            if error is None:
                raise self._failed
            if error is not self._failed:
                error.add_note(f"The projector had failed too: {self._failed}")

    def wait_for(self, position: int, seconds: float = 30.0) -> bool:
        """Whether all views that can be followed have come to a position within the time.

        Raises what ended the projector, if something did.
        """
        with self._moved:
            self._moved.wait_for(lambda: self._failed is not None or self._is_at(position), seconds)
            if self._failed is not None:
                raise self._failed
            return self._is_at(position)

    def _is_at(self, position: int) -> bool:
        followed = [view for view in self.views if view.name not in self.stopped]
        come = all(self._seen.get(view.name, -1) >= position for view in followed)
        return come and (bool(followed) or not self.views)

    def _run(self) -> None:
        try:
            self.run(self._stop)
        except BaseException as error:
            with self._moved:
                self._failed = error
                self._moved.notify_all()

    # What both do

    def _patiently(self, act: Callable[[list[Lane]], None], stop: threading.Event) -> None:
        """Do something with the lanes; again, as long as the server is away no longer than our patience."""
        self._alive, told = time.monotonic(), ""
        while True:
            try:
                with self._following() as lanes:
                    act(lanes)
                return
            except NoPermission:
                raise
            except ServerUnavailable as error:
                if time.monotonic() > self._alive + self.ledger.connections.patience:
                    raise
                if told != str(error):
                    told = str(error)
                    _log.warning("the projector tries again: %s", error)
            if stop.wait(0.1):
                return
            self._check_history()

    @contextmanager
    def _following(self) -> Iterator[list[Lane]]:
        """A lane for each view, on one connection."""
        declare_moves(self.ledger)
        declare_sets(self.ledger)
        with projecting(self.ledger) as connection:
            shelf = Shelf(connection, self.ledger.schema)
            outlook = Outlook(shelf)
            lanes = [Lane(shelf, view, self.most, outlook) for view in self.views]
            for lane in lanes:
                self._guarded(lane, lambda lane=lane: bool(lane.look()))  # type: ignore[misc]
            yield lanes

    def _come_to(self, lanes: list[Lane], end: int) -> None:
        for lane in lanes:
            while self._comes_to(lane, end) or self._guarded(lane, lane.is_elsewhere):
                self._alive = time.monotonic()

    def _comes_to(self, lane: Lane, end: int) -> bool:
        """One batch towards a position; False where it is there, or nothing more is."""
        return lane.position < end and self._guarded(lane, lambda: lane.step(end))

    def _follow(self, lanes: list[Lane], stop: threading.Event) -> None:
        pause = FIRST_PAUSE
        while not stop.is_set():
            seen = self.ledger.wakeup.seen()
            if lanes:
                lanes[0].outlook.forget()
            moved = [self._guarded(lane, lane.step) for lane in lanes if not stop.is_set()]
            self._alive = time.monotonic()
            if self.views and len(self.stopped) == len(self.views):
                raise next(iter(self.stopped.values()))
            self._tell_stopped()
            if any(moved):
                pause = FIRST_PAUSE
                if all(lane.limit == LEAST for lane in lanes):  # up to date: let some events gather
                    stop.wait(self.gather)
                continue
            self.ledger.wakeup.wait(seen, pause, stop)
            pause = min(pause * 2, self.longest_pause)

    def _tell_stopped(self) -> None:
        """Log, once, why views are left out."""
        for name, error in self.stopped.items():
            if self._told.get(name) != str(error):
                self._told[name] = str(error)
                _log.error("%s", error)

    def _guarded(self, lane: Lane, act: Callable[[], bool]) -> bool:
        """Do something with a lane, unless its view is stopped; False where nothing more is there."""
        name = lane.view.name
        if name in self.stopped and time.monotonic() < self._due[name]:
            return False
        before, place = lane.applied, self.positions.get(name)
        try:
            moved = act()
        except (DefinitionChanged, ViewFailed) as error:
            self._stops(lane, error)
            return False
        with self._moved:
            if self.stopped.pop(name, None) is not None:
                self._told.pop(name, None)
                _log.warning("view %s is followed again", name)
            self.positions[name] = lane.position
            self._seen[name] = max(lane.seen, lane.position)
            self.applied[name] += lane.applied - before
            self._moved.notify_all()
        if lane.position != place:
            self.moved(name)
        return moved

    def _stops(self, lane: Lane, error: LedgerError) -> None:
        """Leave a view aside for a while."""
        name = lane.view.name
        if isinstance(error, ViewFailed):
            query(lane.shelf.connection, lane.shelf.schema, "note_failure", view=name, error=error.reason)
        lane.leave()
        with self._moved:
            self._due[name] = time.monotonic() + self.again
            self.stopped[name] = error
            self._moved.notify_all()

    def _check_history(self) -> None:
        with suppress(ServerUnavailable):  # not back yet
            self.ledger.check_again()
