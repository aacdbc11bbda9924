"""
The timelines that clients poll: of a job that was read before, only what is new is read again.

Recorded events never change, so the text of each is made once. A restore can take events back: the newest
known one is read again each time, and if it is not there as it was, all are.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import Final, NamedTuple
from uuid import UUID

from ledger import Ledger, Recorded
from projections.jobs.timeline import entry, is_newest, newest_events

from ..answers import encoded
from .shown import event

JOBS: Final = 1_000
"""Jobs that are remembered; then the one that was read longest ago is forgotten."""
EVENTS: Final = 200
"""Events of a job that are remembered, at most: a list with more is read each time."""


class Line(NamedTuple):
    """An event of a job: its position, and its JSON."""

    position: int
    text: str


class _Known(NamedTuple):
    """The newest events of a job: the first as it was recorded, the lines of all, the limit of the read."""

    newest: Recorded
    lines: tuple[Line, ...]
    limit: int


class Timelines:
    """The newest events of jobs as JSON, for clients that poll. Threads may share it."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._known: OrderedDict[UUID, _Known] = OrderedDict()
        self._lock = Lock()

    def newest(self, id: UUID, limit: int) -> tuple[Line, ...]:
        """The newest events of a job and of its batches, newest first. Raises StreamNotFound."""
        with self._lock:
            known = self._known.get(id)
        if known is None or known.limit != limit:
            known = None
        else:
            known = self._continued(known, id)
        if known is None:
            events = newest_events(self._ledger, id, limit=limit)
            known = _Known(events[0], tuple(map(line, events)), limit)
        self._remember(id, known)
        return known.lines

    def _continued(self, known: _Known, id: UUID) -> _Known | None:
        """What is known with what is new; None if all must be read."""
        if is_newest(self._ledger, id, known.newest):
            return known
        events = newest_events(self._ledger, id, after=known.newest.position - 1, limit=known.limit)
        if not events or events[-1] != known.newest:
            return None
        lines = (*map(line, events[:-1]), *known.lines)[: known.limit]
        return _Known(events[0], lines, known.limit)

    def _remember(self, id: UUID, known: _Known) -> None:
        with self._lock:
            if len(known.lines) > EVENTS:
                self._known.pop(id, None)
                return
            self._known[id] = known
            self._known.move_to_end(id)
            if len(self._known) > JOBS:
                self._known.popitem(last=False)


def line(recorded: Recorded) -> Line:
    """An event as the routes answer it."""
    return Line(recorded.position, encoded(event(entry(recorded))).decode())
