"""
A scheduler: submits the jobs of schedules when they are due.

    Scheduler(log).run(stop)

A time fires by one append: `schedule.fired` at exactly the version that was looked at, and the job with it.
So however many schedulers run, each time fires once, and a kill leaves both or neither. What time it is, the
database says.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Final, NamedTuple

from ledger import BadInput, Ledger, LedgerError
from ledger.append import Append, append_of
from ledger.errors import DuplicateJob, NoPermission, StreamConflict
from ledger.expected import Exact
from ledger.jobs import CatchUp, Jobs, OpenJob, OpenSchedule, Schedules
from ledger.jobs.cron import missed, times
from ledger.jobs.job import ACTIVE
from ledger.jobs.schedule import made_for

LONGEST_PAUSE: Final = 2.0
"""Seconds between two looks, at most: a schedule that another process sets is seen then."""
SHORTEST_PAUSE: Final = 0.01
LATE: Final = timedelta(seconds=60)
"""How late a time may be and still fire where missed times are not made up for."""
PIECE: Final = 100
"""Times of one schedule that are made up for in one look."""

_log = logging.getLogger(__name__)


class Figures(NamedTuple):
    """What one look came to.

    fired, skipped: times for which a job was submitted, or was not. beaten: what another scheduler did first.
    failed: schedules whose job cannot be made here. seconds: until the next time is due, None without one.
    """

    fired: int = 0
    skipped: int = 0
    beaten: int = 0
    failed: int = 0
    seconds: float | None = None


class Scheduler:
    """Submits what is due. longest_pause: seconds between two looks, at most. Any number may run."""

    def __init__(self, ledger: Ledger, *, longest_pause: float = LONGEST_PAUSE) -> None:
        self.ledger, self.longest_pause = ledger, longest_pause
        self._jobs, self._schedules = Jobs(ledger), Schedules(ledger)
        self._told: dict[str, int] = {}

    def run(self, stop: threading.Event | None = None) -> None:
        """Submit for ever, or until `stop` is set; an error of the server is logged. Raises NoPermission."""
        stopped = stop or threading.Event()
        while not stopped.is_set():
            pause = self.longest_pause
            try:
                figures = self.run_once(stopped)
                if figures.seconds is not None:
                    pause = min(pause, max(SHORTEST_PAUSE, figures.seconds))
            except NoPermission:
                raise
            except LedgerError as error:
                _log.warning("schedules could not be looked at: %s", error)
            stopped.wait(pause)

    def run_once(self, stop: threading.Event | None = None) -> Figures:
        """Submit what is due now. Raises ServerUnavailable."""
        now = self._schedules.clock()
        counts, soonest = dict.fromkeys(("fired", "skipped", "beaten", "failed"), 0), list[datetime]()
        for schedule in self.ledger.load_below(("schedule/", OpenSchedule)):
            if stop is not None and stop.is_set():
                break
            try:
                for came_to in self._look(schedule, now):
                    counts[came_to] += 1
                soonest += schedule.state.next_times()
            except BadInput as error:
                counts["failed"] += 1
                if self._told.get(schedule.name) != schedule.version:
                    self._told[schedule.name] = schedule.version
                    _log.error("%s cannot submit its job here: %s", schedule.name, error)
        seconds = (min(soonest) - now).total_seconds() if soonest else None
        return Figures(**counts, seconds=seconds)

    def _look(self, schedule: OpenSchedule, now: datetime) -> list[str]:
        """What came of the times of one schedule that are due."""
        state = schedule.state
        if state.status != "active" or state.after is None:
            return []
        if state.catch_up == CatchUp.ALL:
            later = times(state.cron, state.timezone, state.after)
            due = list(islice(takewhile(lambda at: at <= now, later), PIECE))
            return self._each(schedule, due)
        due = missed(state.cron, state.timezone, state.after, now)
        if not due:
            return []
        if state.catch_up == CatchUp.NONE and now - due[-1] > LATE:
            return [self._skip(schedule, due[-1], "missed", None, len(due))]
        return [self._fire(schedule, due[-1], len(due) - 1)]

    def _each(self, schedule: OpenSchedule, due: Sequence[datetime]) -> list[str]:
        came_to: list[str] = []
        for at in due:
            came_to.append(self._fire(schedule, at, 0))
            if came_to[-1] == "beaten":
                break
        return came_to

    def _fire(self, schedule: OpenSchedule, at: datetime, passed: int) -> str:
        """Submit the job of a time, unless the last one hinders it; what came of it."""
        state, checks = schedule.state, list[Append]()
        if not state.overlap and state.last_job is not None:
            last = self.ledger.load(OpenJob, state.last_job)
            if last.state.status in ACTIVE:
                return self._skip(schedule, at, "overlap", state.last_job, passed + 1)
            checks = [Append(last.name, [], Exact(last.version))]
        made = made_for(state, at)
        before = schedule.state, schedule.version
        schedule.fire(at, made.id, passed)
        try:
            schedule.settle(self._jobs.record([made], [append_of(schedule), *checks]).recorded_at)
            return "fired"
        except DuplicateJob as error:
            schedule.restore(*before)
            schedule.news.clear()
            return self._skip(schedule, at, "duplicate", error.job, passed + 1)
        except StreamConflict as error:
            # Its id says that this job is the one of this time: it was submitted, so only that is recorded.
            return self._done(schedule, "fired") if error.stream == made.job.name else "beaten"

    def _skip(self, schedule: OpenSchedule, at: datetime, reason: str, job: str | None, many: int) -> str:
        schedule.skip(at, reason, job, many)
        return self._done(schedule, "skipped")

    def _done(self, schedule: OpenSchedule, came_to: str) -> str:
        try:
            self.ledger.commit(schedule)
        except StreamConflict:
            return "beaten"
        return came_to
