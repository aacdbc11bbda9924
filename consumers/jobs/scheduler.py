"""
A scheduler: submits the jobs of schedules when they are due.

    Scheduler(log).run(stop)

A time fires by one append: `schedule.fired` at exactly the version that was read, together with the job. So
however many schedulers run, each time fires once, and a kill leaves both or neither. The time is the
database's.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Final, NamedTuple

from ledger import BadInput, Ledger, LedgerError, UnreadableEvent
from ledger.errors import DuplicateJob, NoPermission, StreamConflict
from ledger.jobs import CatchUp, Jobs, OpenJob, Schedules
from ledger.jobs.cron import missed, times
from ledger.jobs.job import ACTIVE
from ledger.jobs.schedule import OpenSchedule, job_for
from ledger.log.append import Append, Exact, append_of
from ledger.roles import require_roles

MAX_PAUSE: Final = 2.0
"""Maximum seconds between two runs; after this time a new schedule is seen."""
MIN_PAUSE: Final = 0.01
LATE: Final = timedelta(seconds=60)
"""How late a time may be and still fire if missed times do not fire later."""
MAX_TIMES: Final = 100
"""Maximum number of missed times of one schedule that fire in one run."""

_log = logging.getLogger(__name__)


class Counts(NamedTuple):
    """The results of one run.

    fired, skipped: times for which a job was submitted, or was not. conflicts: times that another scheduler
    handled first. failed: schedules whose job cannot be made here. seconds: until the next time; None: there
    is none.
    """

    fired: int = 0
    skipped: int = 0
    conflicts: int = 0
    failed: int = 0
    seconds: float | None = None


class Scheduler:
    """Submits what is due. max_pause: seconds between two runs, at most. Any number may run."""

    def __init__(self, ledger: Ledger, *, max_pause: float = MAX_PAUSE) -> None:
        self.ledger, self.max_pause = ledger, max_pause
        self._jobs, self._schedules = Jobs(ledger), Schedules(ledger)
        self._logged: dict[str, int] = {}

    def run(self, stop: threading.Event | None = None) -> None:
        """Submit for ever, or until `stop` is set; an error of the server is logged. Raises NoPermission."""
        stopped = stop or threading.Event()
        while not stopped.is_set():
            pause = self.max_pause
            try:
                counts = self.run_once(stopped)
                if counts.seconds is not None:
                    pause = min(pause, max(MIN_PAUSE, counts.seconds))
            except NoPermission:
                raise
            except LedgerError as error:
                _log.warning("schedules could not be read: %s", error)
            stopped.wait(pause)

    def run_once(self, stop: threading.Event | None = None) -> Counts:
        """Submit what is due now. Raises NoPermission, ServerUnavailable."""
        require_roles(self.ledger, "Scheduler")
        now = self._schedules.clock()
        counts, soonest = dict.fromkeys(("fired", "skipped", "conflicts", "failed"), 0), list[datetime]()
        for schedule in self.ledger.load_below(("schedule/", OpenSchedule), unread=self._log_unreadable):
            if stop is not None and stop.is_set():
                break
            try:
                for result in self._run_schedule(schedule, now):
                    counts[result] += 1
                soonest += schedule.state.next_times()
            except (BadInput, UnreadableEvent) as error:
                counts["failed"] += 1
                if self._logged.get(schedule.name) != schedule.version:
                    self._logged[schedule.name] = schedule.version
                    _log.error("%s cannot submit its job here: %s", schedule.name, error)
        seconds = (min(soonest) - now).total_seconds() if soonest else None
        return Counts(**counts, seconds=seconds)

    def _log_unreadable(self, error: UnreadableEvent) -> None:
        """Log once that a schedule cannot be read."""
        stream = str(error.stream)
        if self._logged.get(stream) != error.version:
            self._logged[stream] = error.version or 0
            _log.error("a schedule is left out: %s", error)

    def _run_schedule(self, schedule: OpenSchedule, now: datetime) -> list[str]:
        """Fire or skip the due times of one schedule; the results."""
        state = schedule.state
        if state.status != "active" or state.after is None:
            return []
        if state.catch_up == CatchUp.ALL:
            later = times(state.cron, state.timezone, state.after)
            due = list(islice(takewhile(lambda at: at <= now, later), MAX_TIMES))
            return self._each(schedule, due)
        due = missed(state.cron, state.timezone, state.after, now)
        if not due:
            return []
        if state.catch_up == CatchUp.NONE and now - due[-1] > LATE:
            return [self._skip(schedule, due[-1], "missed", None, len(due))]
        return [self._fire(schedule, due[-1], len(due) - 1)]

    def _each(self, schedule: OpenSchedule, due: Sequence[datetime]) -> list[str]:
        result: list[str] = []
        for at in due:
            result.append(self._fire(schedule, at, 0))
            if result[-1] == "conflicts":
                break
        return result

    def _fire(self, schedule: OpenSchedule, at: datetime, passed: int) -> str:
        """Submit the job of a time, unless the last job must be over and is not; the result."""
        state, checks = schedule.state, list[Append]()
        if not state.overlap and state.last_job is not None:
            last = self.ledger.load(OpenJob, state.last_job)
            if last.state.status in ACTIVE:
                return self._skip(schedule, at, "overlap", state.last_job, passed + 1)
            checks = [Append(last.name, [], Exact(last.version))]
        made = job_for(state, at)
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
            # The id shows that this is the job of this time: it was submitted, so only that is recorded.
            return self._done(schedule, "fired") if error.stream == made.append.stream else "conflicts"

    def _skip(self, schedule: OpenSchedule, at: datetime, reason: str, job: str | None, many: int) -> str:
        schedule.skip(at, reason, job, many)
        return self._done(schedule, "skipped")

    def _done(self, schedule: OpenSchedule, result: str) -> str:
        try:
            self.ledger.commit(schedule)
        except StreamConflict:
            return "conflicts"
        return result
