"""
Schedules: jobs that are submitted repeatedly, at the times of a cron expression.

    active <-> paused
    active, paused -> removed -> active     set again

Its stream is `schedule/NAME`. A scheduler (`consumers.jobs.scheduler`) appends `schedule.fired` and the job
together, at the version that it has read; so each time fires once, however many schedulers run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import Any, Final
from uuid import UUID, uuid5

from ..domain.event import Event
from ..domain.frozen import FrozenDict, changed
from ..domain.moves import Moves
from ..domain.stream import Stream
from .cron import times
from .facts import Json
from .jobs import Submission, prepare

JOBS: Final = UUID("0d0f5a07-4d0e-5c55-8a1b-6d1f5f0a2c11")
"""The namespace of the ids of jobs that schedules submit."""


class ScheduleStatus(StrEnum):
    """The statuses of a schedule."""

    ACTIVE = "active"
    PAUSED = "paused"
    REMOVED = "removed"


class CatchUp(StrEnum):
    """Which missed times fire later: the latest, all, or none."""

    LATEST = "latest"
    ALL = "all"
    NONE = "none"


S = ScheduleStatus
SCHEDULE_MOVES = Moves(
    {
        None: {S.ACTIVE},
        S.ACTIVE: {S.ACTIVE, S.PAUSED, S.REMOVED},
        S.PAUSED: {S.PAUSED, S.ACTIVE, S.REMOVED},
        S.REMOVED: {S.ACTIVE},
    }
)


class ScheduleSet(Event, topic="schedule.set", to_field="status"):
    """Its definition from now on. cron, timezone: as in `ledger.jobs.cron`. fields: as in JobCreated.

    unique: True, or the key; as in `Jobs.submit`. overlap: whether a job is submitted while the last one is
    not over. status: `paused` if it was paused before, and stays so.
    """

    status: S
    cron: str
    timezone: str
    operation: str
    queue: str = "default"
    payload: Json = {}
    fields: Json = {}
    catch_up: CatchUp = CatchUp.LATEST
    overlap: bool = True
    unique: bool | str = False


class SchedulePaused(Event, topic="schedule.paused", to=S.PAUSED):
    """It submits nothing until it is resumed."""

    reason: str | None = None


class ScheduleResumed(Event, topic="schedule.resumed", to=S.ACTIVE):
    """It goes on; times missed meanwhile do not fire."""


class ScheduleRemoved(Event, topic="schedule.removed", to=S.REMOVED):
    """It is over, unless it is set again."""


class ScheduleFired(Event, topic="schedule.fired"):
    """A job was submitted for a time. missed: how many earlier times did not fire, if known."""

    job: str
    at: datetime
    missed: int = 0


class ScheduleSkipped(Event, topic="schedule.skipped"):
    """No job was submitted for a time: `overlap`, `duplicate`: `job` is not over yet; `missed`: too late."""

    at: datetime
    reason: str
    job: str | None = None
    missed: int = 0


@dataclass(frozen=True, slots=True)
class Schedule:
    """The state of a schedule. after: times up to it are handled. last_at, last_job: of the last firing."""

    name: str = ""
    status: str | None = None
    cron: str = ""
    timezone: str = "UTC"
    operation: str = ""
    queue: str = "default"
    payload: Mapping[str, Any] = field(default_factory=FrozenDict)
    fields: Mapping[str, Any] = field(default_factory=FrozenDict)
    catch_up: str = CatchUp.LATEST.value
    overlap: bool = True
    unique: bool | str = False
    after: datetime | None = None
    last_at: datetime | None = None
    last_job: str | None = None
    fired: int = 0
    skipped: int = 0

    def next_times(self, many: int = 1, after: datetime | None = None) -> list[datetime]:
        """Its next times, in UTC, after a given one or the last handled one; none unless it is active."""
        start = after or self.after
        if self.status != S.ACTIVE or start is None:
            return []
        return list(islice(times(self.cron, self.timezone, start), many))


_GIVEN: Final = (
    "cron", "timezone", "operation", "queue", "payload", "fields", "catch_up", "overlap", "unique",
)  # fmt: skip


def evolve(schedule: Schedule, event: Event, at: datetime) -> Schedule:
    """Apply a fact. It applies no rules."""
    match event:
        case ScheduleSet():
            given = {name: getattr(event, name) for name in _GIVEN} | {"catch_up": event.catch_up.value}
            again = (event.cron, event.timezone) != (schedule.cron, schedule.timezone)
            anew = again or schedule.status == S.REMOVED
            return changed(schedule, status=event.status.value, after=at if anew else schedule.after, **given)
        case SchedulePaused() | ScheduleRemoved():
            return changed(schedule, status=str(event.to))
        case ScheduleResumed():
            return changed(schedule, status=S.ACTIVE.value, after=at)
        case ScheduleFired():
            return changed(
                schedule, after=event.at, last_at=event.at, last_job=event.job, fired=schedule.fired + 1,
                skipped=schedule.skipped + event.missed,
            )  # fmt: skip
        case ScheduleSkipped():
            return changed(schedule, after=event.at, skipped=schedule.skipped + max(1, event.missed))
        case _:
            return schedule


class OpenSchedule(Stream[Schedule, Event]):
    """A schedule open for change; its key is its name."""

    CATEGORY, MOVES, STATE = "schedule", SCHEDULE_MOVES, Schedule
    evolve = staticmethod(evolve)

    @classmethod
    def initial(cls, *key: str | int) -> Schedule:
        return Schedule(name=str(key[0]) if key else "")

    def set(self, fact: Mapping[str, Any]) -> bool:
        """Set it: the fields of ScheduleSet; False where nothing changes."""
        now = self.state
        said = ScheduleSet(status=S.PAUSED if now.status == S.PAUSED else S.ACTIVE, **fact)
        same = all(getattr(now, name) == getattr(said, name) for name in _GIVEN)
        if same and now.status in (S.ACTIVE, S.PAUSED):
            return False
        self.record(said)
        return True

    def pause(self, reason: str | None = None) -> bool:
        """Pause it; False if it is not active."""
        if self.state.status != S.ACTIVE:
            return False
        self.record(SchedulePaused(reason=reason))
        return True

    def resume(self) -> bool:
        """Resume it; False if it is not paused."""
        if self.state.status != S.PAUSED:
            return False
        self.record(ScheduleResumed())
        return True

    def remove(self) -> bool:
        """Remove it; False if it is removed already."""
        if self.state.status not in (S.ACTIVE, S.PAUSED):
            return False
        self.record(ScheduleRemoved())
        return True

    def fire(self, at: datetime, job: str, missed: int = 0) -> None:
        """Record that a job was submitted for a time."""
        self.record(ScheduleFired(job=job, at=at, missed=missed))

    def skip(self, at: datetime, reason: str, job: str | None = None, missed: int = 0) -> None:
        """Record that no job was submitted for a time."""
        self.record(ScheduleSkipped(at=at, reason=reason, job=job, missed=missed))


def job_for(schedule: Schedule, at: datetime) -> Submission:
    """The job of a schedule for a time; its id is derived from both."""
    id = uuid5(JOBS, f"{at.isoformat()} {schedule.name}")
    fields: dict[str, Any] = {"queue": schedule.queue, "unique": schedule.unique, **schedule.fields}
    return prepare(schedule.operation, schedule.payload, id=id, **fields)
