"""
Marks flow runs as CRASHED whose clients fell silent (spec W3-01).

Only a RUNNING run whose client has sent heartbeats is looked at, after three intervals without one. Anything
else that is recorded of it is a sign of life, too: its task runs, its logs. What came meanwhile decides, by
the version of the run; and a run that lived nevertheless may still report how it ended.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import Final

from ledger import Ledger
from ledger.errors import RunNotFound
from ledger.log.sql import Statements
from ledger.runs import FlowRun, FlowRuns, StateType
from ledger.runs.heartbeats import Heartbeats
from ledger.runs.leases import LeaseKind, RunLease, RunLeases
from ledger.runs.states import crashed
from projections.runs import flow_runs, wait_for

from .listening import listening_since
from .rounds import Rounds

SQL = Statements(__package__, "crashes")
SWEEP: Final = 30
"""Every so many rounds, leases that were lost with their table are put again."""

_log = logging.getLogger(__name__)


class Crashes(Rounds):
    """Marks flow runs as crashed whose leases ran out."""

    NAME = "crashes"

    def __init__(self, ledger: Ledger, *, every: float = 5.0) -> None:
        super().__init__(ledger, every=every)
        self._runs, self._leases, self._rounds = FlowRuns(ledger), RunLeases(ledger), 0
        self._heartbeats = Heartbeats(ledger)
        self._silent: set[str] = set()

    def run_once(self) -> int:
        """Mark those that count as crashed now; nobody while no server hears the clients."""
        if self._rounds % SWEEP == 0:
            self._sweep()
        self._rounds += 1
        since = listening_since(self._leases)
        if since is None:
            return 0
        gone = self._leases.take_expired(LeaseKind.FLOW_RUN, since=since)
        return self.each(gone, self._crash)

    def _crash(self, lease: RunLease) -> bool:
        """Mark it, unless it shows a sign of life; then, and after an error, its lease begins anew."""
        again = True
        try:
            run = self._runs.get(lease.key)
            if run.state_type is not StateType.RUNNING:
                again = run.state is not None and not run.state.is_terminal
                return False
            if self._is_alive(run, lease.until - timedelta(seconds=lease.seconds)):
                return False
            silent = round((datetime.now(UTC) - lease.until).total_seconds() + lease.seconds)
            message = f"No heartbeat came from this flow run for {silent} seconds."
            answer = self._runs.set_state(run.id, crashed(message=message), force=True, expected=run.version)
            again = not answer.written
            return answer.written
        except RunNotFound:
            again = False
            raise
        finally:
            if again:
                self._leases.put_if_absent(LeaseKind.FLOW_RUN, {lease.key: lease.data}, lease.seconds)

    def _is_alive(self, run: FlowRun, since: datetime) -> bool:
        """Whether anything of it was recorded after its last heartbeat, or that cannot be known now."""
        if run.updated is not None and run.updated > since:
            return True
        if not wait_for(self.ledger, views=["task_runs"]):  # a view that is behind is no sign of death
            return True
        return bool(self.ledger.query(SQL.signs_of_life, run=run.id, since=since))

    def _sweep(self) -> None:
        """Put a lease on each running run that has sent heartbeats and has none."""
        body = {"flow_runs": {"state": {"type": {"any_": ["RUNNING"]}}}}
        running = [run.id for run in flow_runs(self.ledger, body) if run.id not in self._silent]
        if not running:
            return
        beating = {run for (run,) in self.ledger.query(SQL.with_heartbeats, runs=running)}
        self._heartbeats.expected(beating)
