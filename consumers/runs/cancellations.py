"""
Cleans up after cancelled flow runs: their task runs, their subflows, and runs that nobody ends (spec S3-60).

Each is moved at the version that was read, so that a run which ended meanwhile keeps its end.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from ledger import Ledger
from ledger.runs import TERMINAL, FlowRun, FlowRuns, StateType, TaskRun, TaskRuns
from ledger.runs.leases import RunLeases
from ledger.runs.states import cancelled, cancelling
from projections.runs import flow_runs, task_runs

from .rounds import Rounds

TIMEOUT: Final = 300.0
"""Seconds that a run may be CANCELLING before it counts as cancelled: nobody has ended it."""
PARENT: Final = "The parent flow run was cancelled."
TIMED_OUT: Final = "Flow run cancellation timed out; marked this flow run as Cancelled."
_UNDER_WAY: Final = [str(one) for one in StateType if one not in TERMINAL]


class Cancellations(Rounds):
    """Cancels what belongs to cancelled flow runs. timeout: seconds that a run may be CANCELLING."""

    NAME = "cancellations"

    def __init__(self, ledger: Ledger, *, every: float = 5.0, timeout: float = TIMEOUT) -> None:
        super().__init__(ledger, every=every)
        self.timeout = timeout
        self._flows, self._tasks, self._clock = FlowRuns(ledger), TaskRuns(ledger), RunLeases(ledger).clock

    def run_once(self) -> int:
        """Cancel what is left over now."""
        of_cancelled: dict[str, Any] = {
            "flow_runs": {"state": {"type": {"any_": ["CANCELLED"]}}},
            "task_runs": {"state": {"type": {"any_": _UNDER_WAY}}},
        }
        tasks = task_runs(self.ledger, of_cancelled)
        return self.each(tasks, self._cancel_task) + self._timed_out()

    def _cancel_task(self, task: TaskRun) -> bool:
        """Cancel a task run of a cancelled flow run; of one that stands for a subflow, the subflow."""
        task = self._tasks.get(task.id)
        if task.flow_run_id is None or _is_over(task):
            return False
        if self._flows.get(task.flow_run_id).state_type is not StateType.CANCELLED:
            return False  # it runs again
        chosen = {"parent_task_run_id": {"any_": [task.id]}, "state": {"type": {"any_": _UNDER_WAY}}}
        if subflows := flow_runs(self.ledger, {"flow_runs": chosen}):
            return bool(self.each(subflows, self._cancel_subflow))
        move = cancelled(message=PARENT)
        return self._tasks.set_state(task.id, move, force=True, expected=task.version).written

    def _cancel_subflow(self, subflow: FlowRun) -> bool:
        """Cancel a subflow: by its worker if it is of a deployment, else at once."""
        run = self._flows.get(subflow.id)
        if _is_over(run) or (run.deployment_id and run.state_type is StateType.CANCELLING):
            return False
        move = cancelling(message=PARENT) if run.deployment_id else cancelled(message=PARENT)
        return self._flows.set_state(run.id, move, expected=run.version).written

    def _timed_out(self) -> int:
        """End runs that have been CANCELLING for too long: they have no infrastructure, or it is gone."""
        before = self._clock() - timedelta(seconds=self.timeout)
        waiting = flow_runs(self.ledger, {"flow_runs": {"state": {"type": {"any_": ["CANCELLING"]}}}})
        late = [run for run in waiting if run.state_timestamp is not None and run.state_timestamp < before]
        return self.each(late, self._end)

    def _end(self, run: FlowRun) -> bool:
        move = cancelled(message=TIMED_OUT)
        return self._flows.set_state(run.id, move, expected=run.version).written


def _is_over(run: FlowRun | TaskRun) -> bool:
    return run.state is not None and run.state.is_terminal
