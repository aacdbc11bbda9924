"""Marks scheduled flow runs as late that nobody has begun (spec S3-60)."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from ledger import Ledger
from ledger.runs import FlowRuns
from ledger.runs.leases import RunLeases
from projections.runs import flow_runs

from .rounds import Rounds

AFTER: Final = 15.0
"""Seconds after its time when a run counts as late."""


class LateRuns(Rounds):
    """Marks late runs. after: seconds."""

    NAME = "late_runs"

    def __init__(self, ledger: Ledger, *, every: float = 1.0, after: float = AFTER) -> None:
        super().__init__(ledger, every=every)
        self.after = after
        self._runs, self._clock = FlowRuns(ledger), RunLeases(ledger).clock

    def run_once(self) -> int:
        """Mark those that are late now."""
        before = self._clock() - timedelta(seconds=self.after)
        chosen = {
            "state": {"type": {"any_": ["SCHEDULED"]}, "name": {"any_": ["Scheduled"]}},
            "next_scheduled_start_time": {"before_": before.isoformat()},
        }
        late = flow_runs(self.ledger, {"flow_runs": chosen}, "NEXT_SCHEDULED_START_TIME_ASC")
        return self.each(late, lambda run: self._runs.mark_late(run.id).written)
