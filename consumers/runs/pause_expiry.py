"""Fails flow runs that were paused and not resumed in time (spec S3-60)."""

from __future__ import annotations

from datetime import datetime
from itertools import count, takewhile

from ledger import Ledger
from ledger.runs import FlowRun, FlowRuns, StateType
from ledger.runs.leases import RunLeases
from ledger.runs.states import failed
from projections.runs import flow_runs

from .rounds import Rounds

PAGE = 200
MESSAGE = "The flow was paused and never resumed."


class PauseExpiry(Rounds):
    """Fails runs whose pause has timed out."""

    NAME = "pause_expiry"

    def __init__(self, ledger: Ledger, *, every: float = 1.0) -> None:
        super().__init__(ledger, every=every)
        self._runs, self._clock = FlowRuns(ledger), RunLeases(ledger).clock

    def run_once(self) -> int:
        """Fail those whose timeout has passed."""
        chosen = {"flow_runs": {"state": {"type": {"any_": ["PAUSED"]}}}}
        pages = (flow_runs(self.ledger, chosen, offset=PAGE * nth, limit=PAGE) for nth in count())
        paused = [run for page in takewhile(bool, pages) for run in page]
        now = self._clock()
        return self.each(paused, lambda run: self._expire(run, now))

    def _expire(self, run: FlowRun, now: datetime) -> bool:
        """Fail it unless it was resumed meanwhile: the version that was read decides."""
        if not _is_over(run, now) or not _is_over(run := self._runs.get(run.id), now):
            return False
        answer = self._runs.set_state(run.id, failed(message=MESSAGE), force=True, expected=run.version)
        return answer.written


def _is_over(run: FlowRun, now: datetime) -> bool:
    """Whether it is paused, and its timeout has passed."""
    if run.state is None or run.state.type is not StateType.PAUSED:
        return False
    timeout = run.state.time_of("pause_timeout")
    return timeout is not None and timeout < now
