"""
Schedules: jobs that are submitted again and again, at the times of a cron expression.

    active <-> paused
    active, paused -> removed -> active     set anew

Its stream is `schedule/NAME`. A scheduler (`consumers.jobs.scheduler`) appends `schedule.fired` and the job
together, at the version that it looked at; so each time fires once, however many schedulers run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import Any, Final
from uuid import UUID, uuid5

from pydantic import JsonValue

from ..event import Event
from ..frozen import FrozenDict, changed
from ..moves import Moves
from ..stream import Stream
from .cron import times
from .facts import Json
from .submitting import Made, job_of

JOBS: Final = UUID("0d0f5a07-4d0e-5c55-8a1b-6d1f5f0a2c11")
"""The namespace of the ids of jobs that schedules submit."""


class ScheduleStatus(StrEnum):
    """The statuses of a schedule."""

    ACTIVE = "active"
    PAUSED = "paused"
    REMOVED = "removed"


class CatchUp(StrEnum):
    """Which of the times are made up for that came while nobody looked: the latest, all, or none."""

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
    """What it does from now on. cron, timezone: as in `ledger.jobs.cron`. fields: as in JobCreated.

    unique: True, or the key; as in `Jobs.submit`. overlap: whether a job is submitted while the last one is
    not over. status: `paused` where it was and stays so.
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
    """It submits nothing any more."""

    reason: str | None = None


class ScheduleResumed(Event, topic="schedule.resumed", to=S.ACTIVE):
    """It goes on; the times meanwhile are not made up for."""


class ScheduleRemoved(Event, topic="schedule.removed", to=S.REMOVED):
    """It is over, until it is set anew."""


class ScheduleFired(Event, topic="schedule.fired"):
    """A job was submitted for a time. missed: how many times before it were passed over, if that is known."""

    job: str
    at: datetime
    missed: int = 0


class ScheduleSkipped(Event, topic="schedule.skipped"):
    """No job was submitted for a time: `overlap`, `duplicate`: `job` is not over yet; `missed`: too late."""

    at: datetime
    reason: str
    job: str | None = None
    missed: int = 0


def _nothing() -> Mapping[str, JsonValue]:
    return FrozenDict()


@dataclass(frozen=True, slots=True)
class Schedule:
    """What is true of a schedule. after: times up to it are done with. last_at, last_job: fired last."""

    name: str = ""
    status: str | None = None
    cron: str = ""
    timezone: str = "UTC"
    operation: str = ""
    queue: str = "default"
    payload: Mapping[str, JsonValue] = field(default_factory=_nothing)
    fields: Mapping[str, JsonValue] = field(default_factory=_nothing)
    catch_up: str = CatchUp.LATEST.value
    overlap: bool = True
    unique: bool | str = False
    after: datetime | None = None
    last_at: datetime | None = None
    last_job: str | None = None
    fired: int = 0
    skipped: int = 0

    def next_times(self, many: int = 1, after: datetime | None = None) -> list[datetime]:
        """Its next times, in UTC, after the one that it did last or a given one; none unless it is active."""
        start = after or self.after
        if self.status != S.ACTIVE or start is None:
            return []
        return list(islice(times(self.cron, self.timezone, start), many))


_GIVEN: Final = (
    "cron", "timezone", "operation", "queue", "payload", "fields", "catch_up", "overlap", "unique",
)  # fmt: skip


def evolve(schedule: Schedule, event: Event, at: datetime) -> Schedule:
    """Apply a fact. No rules here."""
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
        """Let it do this from now on: as the fields of ScheduleSet; False where nothing changes."""
        now = self.state
        said = ScheduleSet(status=S.PAUSED if now.status == S.PAUSED else S.ACTIVE, **fact)
        same = all(getattr(now, name) == getattr(said, name) for name in _GIVEN)
        if same and now.status in (S.ACTIVE, S.PAUSED):
            return False
        self.record(said)
        return True

    def pause(self, reason: str | None = None) -> bool:
        """Submit nothing any more; False where it is not active."""
        if self.state.status != S.ACTIVE:
            return False
        self.record(SchedulePaused(reason=reason))
        return True

    def resume(self) -> bool:
        """Go on; False where it is not paused."""
        if self.state.status != S.PAUSED:
            return False
        self.record(ScheduleResumed())
        return True

    def remove(self) -> bool:
        """It is over; False where it is already."""
        if self.state.status not in (S.ACTIVE, S.PAUSED):
            return False
        self.record(ScheduleRemoved())
        return True

    def fire(self, at: datetime, job: str, missed: int = 0) -> None:
        """A job was submitted for a time."""
        self.record(ScheduleFired(job=job, at=at, missed=missed))

    def skip(self, at: datetime, reason: str, job: str | None = None, missed: int = 0) -> None:
        """None was."""
        self.record(ScheduleSkipped(at=at, reason=reason, job=job, missed=missed))


def made_for(schedule: Schedule, at: datetime) -> Made:
    """The job of a schedule for a time; its id follows from both."""
    id = uuid5(JOBS, f"{at.isoformat()} {schedule.name}")
    fields: dict[str, Any] = {"queue": schedule.queue, "unique": schedule.unique, **schedule.fields}
    return job_of(schedule.operation, schedule.payload, id=id, **fields)
