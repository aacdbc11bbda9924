"""A ledger on which the services of runs are run round by round, and what they find there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from consumers.runs.listening import KEY
from ledger import Ledger
from ledger.runs import FlowRun, FlowRuns, State, TaskRun, TaskRuns
from ledger.runs.json_values import new_id
from ledger.runs.leases import LeaseKind, RunLeases
from ledger.runs.records import Records
from tests.runs.given_reads import projector

CLOCK = datetime(2026, 1, 1, tzinfo=UTC)


class Ran:
    """A ledger with views that are brought up to date before each round."""

    def __init__(self, log: Ledger) -> None:
        self.log, self.projector = log, projector(log)
        self.runs, self.tasks = FlowRuns(log), TaskRuns(log)
        self.records, self.leases = Records(log), RunLeases(log)

    def round(self, service: Any) -> int:
        self.projector.catch_up()
        return int(service.run_once())

    def run(self, *states: State, flow: str | None = None, **fields: Any) -> FlowRun:
        """A flow run that was in these states."""
        run, _ = self.runs.create(flow or new_id(), state=states[0], **fields)
        for state in states[1:]:
            self.runs.set_state(run.id, state, force=True)
        return self.runs.get(run.id)

    def state(self, run: FlowRun) -> tuple[str, str]:
        state = self.runs.get(run.id).state
        assert state is not None
        return str(state.type), state.name

    def listen(self, seconds_ago: float = 0.0) -> None:
        """A server has been listening for so long."""
        self.leases.release(LeaseKind.LISTENING, KEY)
        self.leases.mark(LeaseKind.LISTENING, KEY, 60)
        with self.log.reader() as connection:
            connection.execute(
                "UPDATE ledger.run_leases SET taken_at = taken_at - make_interval(secs => %s)"
                " WHERE kind = 'listening'",
                [seconds_ago],
            )

    def age(self, kind: LeaseKind, key: str, seconds: float) -> None:
        """Let so much time pass for a lease."""
        with self.log.reader() as connection:
            connection.execute(
                "UPDATE ledger.run_leases SET until = until - make_interval(secs => %s)"
                " WHERE kind = %s AND key = %s",
                [seconds, kind.value, key],
            )


def ago(seconds: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


def line(run: FlowRun, message: str = "here") -> dict[str, Any]:
    at = datetime.now(UTC).isoformat()
    return {"name": "x", "level": 20, "message": message, "timestamp": at, "flow_run_id": run.id}


def task(ran: Ran, run: FlowRun, key: str, *states: State) -> TaskRun:
    """A task run of a flow run, in these states."""
    made, _ = ran.tasks.create(key, "0", flow_run_id=run.id, state=states[0])
    for one in states[1:]:
        ran.tasks.set_state(made.id, one, force=True)
    return ran.tasks.get(made.id)
