"""
Schedules of a ledger: set, read, pause, resume, remove.

    Schedules(log).set("nightly", "30 2 * * *", "clean", {"days": 30}, timezone="Europe/Berlin")

A scheduler (`consumers.jobs.scheduler`) submits their jobs; every worker runs one.
"""

from __future__ import annotations

from builtins import list as listed
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from ..errors import BadInput, StreamNotFound, shown
from ..log import read
from ..log.ledger import Ledger
from ..log.retry import retry_conflicts
from ..log.sql import Statements
from .cron import checked_cron
from .jobs import plain, prepare
from .schedule import CatchUp, OpenSchedule, Schedule, ScheduleStatus

SQL = Statements(__package__, "schedules")


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
        """Submit a job at the times of a cron expression; False if the schedule is the same already.

        timezone: an IANA name. catch_up: which missed times fire once a scheduler runs again: `latest`,
        `all` or `none`. overlap=False: no job while the last one is not over. unique, fields:
        as in `Jobs.submit`. A new expression counts from now on; a paused schedule stays paused.
        Raises BadInput for a job that could never be submitted.
        """
        if not name:
            raise BadInput("a schedule needs a name")
        if catch_up not in [*CatchUp]:
            raise BadInput(f"catch_up {shown(catch_up)} must be one of {', '.join(CatchUp)}")
        if wrong := {"id", "delay", "run_at", "parent", "command"} & fields.keys():
            raise BadInput(f"the jobs of a schedule cannot have {', '.join(sorted(wrong))}")
        cron = checked_cron(cron, timezone, self.clock())
        made = prepare(operation, payload, queue=queue, unique=unique, **fields)
        fact = {
            "cron": cron, "timezone": timezone, "operation": operation, "queue": made.created.queue,
            "payload": plain("payload", payload), "fields": plain("fields", fields),
            "catch_up": CatchUp(catch_up), "overlap": bool(overlap), "unique": unique,
        }  # fmt: skip
        return self._decide(name, lambda schedule: schedule.set(fact))

    def pause(self, name: str, reason: str | None = None) -> bool:
        """Pause a schedule; False if it is paused already. Raises StreamNotFound."""
        return self._decide(name, lambda schedule: schedule.pause(reason), known=True)

    def resume(self, name: str) -> bool:
        """Resume it; False if it is not paused. Times missed meanwhile do not fire. Raises StreamNotFound."""
        return self._decide(name, lambda schedule: schedule.resume(), known=True)

    def remove(self, name: str) -> bool:
        """Remove it; its jobs stay. False if it is removed already. Raises StreamNotFound."""
        return self._decide(name, lambda schedule: schedule.remove(), known=True)

    def get(self, name: str) -> Schedule:
        """A schedule, even a removed one. Raises StreamNotFound."""
        opened = self.ledger.load(OpenSchedule, name)
        if not opened.version:
            raise StreamNotFound(opened.name)
        return opened.state

    def list(self, *, removed: bool = False) -> listed[Schedule]:
        """The schedules by name. removed: include removed ones. An unreadable one is logged and left out."""
        found = self.ledger.states(("schedule/", OpenSchedule), unread=read.leave_out)[OpenSchedule]
        states = [state for _, _, state in found if removed or state.status != ScheduleStatus.REMOVED]
        return sorted(states, key=lambda state: str(state.name))

    def clock(self) -> datetime:
        """The database's time."""
        ((now,),) = self.ledger.query(SQL.clock)
        at: datetime = now
        return at

    def _decide(self, name: str, decide: Callable[[OpenSchedule], bool], known: bool = False) -> bool:
        def attempt() -> bool:
            opened = self.ledger.load(OpenSchedule, name)
            if known and not opened.version:
                raise StreamNotFound(opened.name)
            done = decide(opened)
            self.ledger.commit(opened)
            return done

        return retry_conflicts(attempt)
