"""Deletes old log lines of runs; they are the only thing of runs that is deleted by its age."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from ledger import Ledger
from ledger.runs.leases import RunLeases
from ledger.runs.run_logs import RunLogs

from .rounds import Rounds

DAYS: Final = 90.0
"""Days for which log lines are kept."""


class LogRetention(Rounds):
    """Deletes log lines older than so many days; none for 0 days."""

    NAME = "log_retention"

    def __init__(self, ledger: Ledger, *, every: float = 3600.0, days: float = DAYS) -> None:
        super().__init__(ledger, every=every)
        self.days = days
        self._logs, self._clock = RunLogs(ledger), RunLeases(ledger).clock

    def run_once(self) -> int:
        """Delete what is too old now; how many lines."""
        return self._logs.prune(self._clock() - timedelta(days=self.days)) if self.days > 0 else 0
