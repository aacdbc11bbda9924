"""
Creates the flow runs of deployments' schedules ahead of time (spec S3-60).

A run's idempotency key names the deployment, the schedule and the instant, so each instant has one run,
however many schedulers run. As many runs are made as Prefect makes: at least `min_runs` and those of the next
`min_seconds`, at most `max_runs` and none after `max_seconds`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any, Final

from ledger import Ledger, LedgerError, StreamConflict
from ledger.domain.names import split_name
from ledger.log.append import Append, Exact
from ledger.log.retry import retry_conflicts
from ledger.runs import FlowRuns
from ledger.runs.deployments import Deployments
from ledger.runs.leases import RunLeases
from ledger.runs.records import Record, open_class
from ledger.runs.scheduled_runs import key_of
from ledger.runs.schedules import instants
from ledger.runs.states import scheduled

from .rounds import Rounds

PREFIX: Final = "deployment/"
AGAIN: Final = 60.0
"""Seconds after which a deployment that did not change is looked at again: time has passed."""
MESSAGE: Final = "Flow run scheduled"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ahead:
    """How far ahead runs are made."""

    min_runs: int = 3
    max_runs: int = 100
    min_seconds: float = 3600.0
    max_seconds: float = 100 * 86400.0

    def of(
        self, schedule: Mapping[str, Any], now: datetime, *, inclusive: bool = False
    ) -> Iterator[datetime]:
        """The instants of a deployment's schedule after a time that have runs. Raises BadInput.

        inclusive: also the time itself.
        """
        most = min(self.max_runs, schedule.get("max_scheduled_runs") or self.max_runs)
        after = now - timedelta.resolution if inclusive else now
        soon, end = now + timedelta(seconds=self.min_seconds), now + timedelta(seconds=self.max_seconds)
        for nth, at in enumerate(islice(instants(schedule["schedule"], after), most)):
            if at > end or (nth >= self.min_runs and at > soon):
                return
            yield at


class DeploymentScheduler(Rounds):
    """Creates the runs of schedules. A changed deployment is seen in the next round."""

    NAME = "deployment_scheduler"

    def __init__(self, ledger: Ledger, *, every: float = 1.0, ahead: Ahead | None = None) -> None:
        super().__init__(ledger, every=every)
        self.ahead = ahead or Ahead()
        self._deployments, self._runs = Deployments(ledger), FlowRuns(ledger)
        self._clock = RunLeases(ledger).clock
        self._seen: dict[str, tuple[int, float]] = {}

    def run_once(self) -> int:
        """Create the runs that are missing; how many."""
        return sum(self.schedule(id) for id in list(self._due()))

    def schedule(self, id: str) -> int:
        """Create the missing runs of one deployment; how many. Its wrong schedules are logged and left."""
        opened = self._deployments.records.open("deployment", id)
        if not opened.is_present or opened.state.fields.get("paused"):
            return 0
        deployment, now = opened.shown(), self._clock()
        made = 0
        for schedule in deployment["schedules"]:
            try:
                if schedule["active"]:
                    made += self._create(deployment, schedule, self.ahead.of(schedule, now))
            except (
                StreamConflict
            ):  # it was changed, or another scheduler was first: the next round looks again
                self._seen.pop(opened.name, None)
            except LedgerError as error:
                _log.error("schedule %s of deployment %s: %s", schedule["id"], id, error)
        return made

    def backfill(self, id: str, start: datetime, ahead: Ahead) -> int:
        """Create the runs of one deployment that are missing from a time on, also of a past one; how many.

        A paused deployment has them, too. Raises RecordNotFound, BadInput, StreamConflict.
        """

        def attempt() -> int:
            deployment = self._deployments.get(id)
            active = [one for one in deployment["schedules"] if one["active"]]
            times = [ahead.of(one, start, inclusive=True) for one in active]
            return sum(map(partial(self._create, deployment), active, times))

        return retry_conflicts(attempt)

    def _due(self) -> Iterator[str]:
        """The deployments that changed, or at which nobody looked for a while."""
        after, now = "", time.monotonic()
        while page := self.ledger.streams(PREFIX, after=after):
            for info in page:
                version, at = self._seen.get(info.stream, (0, 0.0))
                if info.version != version or now > at + AGAIN:
                    self._seen[info.stream] = info.version, now
                    yield split_name(info.stream)[1][0]
            after = page[-1].stream

    def _create(self, deployment: Record, schedule: Mapping[str, Any], times: Iterable[datetime]) -> int:
        """Create the missing runs of a schedule, all or none, while the deployment is as it was read."""
        fields = self._deployments.run_fields(deployment, schedule)
        wanted = [
            {
                **fields,
                "state": scheduled(at, message=MESSAGE),
                "idempotency_key": key_of(deployment.id, schedule["id"], at),
                "auto_scheduled": True,
            }
            for at in times
        ]
        unchanged = Append(open_class("deployment").name_of(deployment.id), [], Exact(deployment.version))
        return len(self._runs.create_missing(wanted, [unchanged]))
