"""
Schedules of a ledger: set, look, pause, resume, remove.

    Schedules(log).set("nightly", "30 2 * * *", "clean", {"days": 30}, timezone="Europe/Berlin")

What is set here, a scheduler submits (`consumers.jobs.scheduler`); one runs in every worker.
"""

from __future__ import annotations

from builtins import list as listed
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from ..errors import BadInput, StreamConflict, StreamNotFound, shown
from ..store import reading
from ..store.ledger import Ledger
from .cron import checked_cron
from .schedule import CatchUp, OpenSchedule, Schedule, ScheduleStatus
from .submitting import TRIES, job_of, plain


class Schedules:
    """The schedules of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def set(
        self,
        name: str,
        cron: str,
        operation: str,
        payload: Mapping[str, Any] | None = None,
        *,
        timezone: str = "UTC",
        queue: str = "default",
        catch_up: str = CatchUp.LATEST,
        overlap: bool = True,
        unique: bool | str = False,
        **fields: Any,
    ) -> bool:
        """Submit such a job at the times of a cron expression; False where that is so already.

        timezone: a name of the IANA's. catch_up: which times are made up for that came while no scheduler
        ran: `latest`, `all` or `none`. overlap=False: no job while the last one is not over. unique, fields:
        as in `Jobs.submit`. A new expression counts from now on; a paused schedule stays paused.
        Raises BadInput for what could never be submitted.
        """
        if not name:
            raise BadInput("a schedule needs a name")
        if catch_up not in [*CatchUp]:
            raise BadInput(f"catch_up {shown(catch_up)} must be one of {', '.join(CatchUp)}")
        if wrong := {"id", "delay", "run_at", "parent", "command"} & fields.keys():
            raise BadInput(f"{', '.join(sorted(wrong))}: the jobs of a schedule cannot have that")
        cron = checked_cron(cron, timezone, self.clock())
        made = job_of(operation, payload, queue=queue, unique=unique, **fields)
        fact = {
            "cron": cron, "timezone": timezone, "operation": operation, "queue": made.job.state.queue,
            "payload": plain("payload", payload), "fields": plain("fields", fields),
            "catch_up": CatchUp(catch_up), "overlap": bool(overlap), "unique": unique,
        }  # fmt: skip
        return self._decide(name, lambda schedule: schedule.set(fact))

    def pause(self, name: str, reason: str | None = None) -> bool:
        """Submit nothing any more; False where it is paused already. Raises StreamNotFound."""
        return self._decide(name, lambda schedule: schedule.pause(reason), known=True)

    def resume(self, name: str) -> bool:
        """Go on; False where it is not paused. Times meanwhile are not made up for. Raises StreamNotFound."""
        return self._decide(name, lambda schedule: schedule.resume(), known=True)

    def remove(self, name: str) -> bool:
        """No more of it; what it submitted stays. False where it is over already. Raises StreamNotFound."""
        return self._decide(name, lambda schedule: schedule.remove(), known=True)

    def get(self, name: str) -> Schedule:
        """A schedule, also a removed one. Raises StreamNotFound."""
        opened = self.ledger.load(OpenSchedule, name)
        if not opened.version:
            raise StreamNotFound(opened.name)
        return opened.state

    def list(self, *, removed: bool = False) -> listed[Schedule]:
        """The schedules by name; removed: those too that are."""
        found = self.ledger.states(("schedule/", OpenSchedule))[OpenSchedule]
        states = [state for _, _, state in found if removed or state.status != ScheduleStatus.REMOVED]
        return sorted(states, key=lambda state: str(state.name))

    def clock(self) -> datetime:
        """The time, by the database's clock."""
        with self.ledger.reader() as connection:
            ((now,),) = reading.query(connection, self.ledger.schema, "clock")
        at: datetime = now
        return at

    def _decide(self, name: str, decide: Callable[[OpenSchedule], bool], known: bool = False) -> bool:
        for _ in range(TRIES):
            opened = self.ledger.load(OpenSchedule, name)
            if known and not opened.version:
                raise StreamNotFound(opened.name)
            done = decide(opened)
            try:
                self.ledger.commit(opened)
                return done
            except StreamConflict:
                continue
        raise StreamConflict(OpenSchedule.name_of(name), "a schedule that nobody else changes", 0)
