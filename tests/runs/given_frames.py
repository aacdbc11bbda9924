"""Frames as Prefect's client sends them over /events/in, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

Frame = dict[str, Any]
START = datetime(2026, 5, 4, 12, tzinfo=UTC)
STATES = {
    "Pending": "PENDING",
    "Running": "RUNNING",
    "AwaitingRetry": "SCHEDULED",
    "Retrying": "RUNNING",
    "Completed": "COMPLETED",
    "Failed": "FAILED",
    "Crashed": "CRASHED",
}


def shown(at: datetime) -> str:
    """A time as the client writes it."""
    return at.isoformat().replace("+00:00", "Z")


class Client:
    """A client that runs one task and reports its states, a second apart; it counts as Prefect's does."""

    def __init__(self, *, flow_run_id: str | None = None, start: datetime = START, **run: Any) -> None:
        self.id, self.flow_run_id = str(uuid4()), flow_run_id or str(uuid4())
        self.at = start
        self.last: str | None = None
        self.was_running: datetime | None = None
        self.run: dict[str, Any] = {
            "name": "sum-1",
            "task_key": "sum",
            "dynamic_key": str(uuid4()),
            "task_version": "v1",
            "empirical_policy": {
                "max_retries": 0,
                "retry_delay_seconds": 0.0,
                "retries": 1,
                "retry_delay": 1,
            },
            "tags": ["x"],
            "labels": {},
            "task_inputs": {"a": [{"input_type": "parameter", "name": "a"}]},
            "run_count": 0,
            "flow_run_run_count": 0,
            "expected_start_time": shown(start),
            "total_run_time": 0.0,
            **run,
        }

    def report(self, name: str, **state: Any) -> Frame:
        """The frame of its next state."""
        self.at += timedelta(seconds=1)
        kind, run = STATES[name], self.run
        if self.was_running is not None:
            run["total_run_time"] += (self.at - self.was_running).total_seconds()
        self.was_running = self.at if kind == "RUNNING" else None
        if kind == "RUNNING":
            run["run_count"] += 1
            run.setdefault("start_time", shown(self.at))
        if kind in ("COMPLETED", "FAILED", "CRASHED"):
            run["end_time"] = shown(self.at)
        if kind == "SCHEDULED":
            state["state_details"] = {"scheduled_time": shown(self.at)}
        flow_run = {
            "prefect.resource.id": f"prefect.flow-run.{self.flow_run_id}",
            "prefect.resource.role": "flow-run",
        }
        made = frame(
            f"prefect.task-run.{name}",
            f"prefect.task-run.{self.id}",
            at=self.at,
            labels={"prefect.orchestration": "client", "prefect.state-type": kind},
            related=[flow_run],
            payload={
                "validated_state": {"type": kind, "name": name, "message": "", "state_details": {}, **state},
                "task_run": dict(run),
            },
            follows=self.last,
        )
        self.last = made["id"]
        return made

    def reports(self, *names: str) -> list[Frame]:
        """The frames of its next states."""
        return [self.report(name) for name in names]


def frame(
    event: str,
    resource: str,
    *,
    at: datetime = START,
    labels: dict[str, str] | None = None,
    related: Sequence[dict[str, str]] = (),
    payload: dict[str, Any] | None = None,
    follows: str | None = None,
) -> Frame:
    """A frame of any event."""
    return {
        "id": str(uuid4()),
        "occurred": shown(at),
        "event": event,
        "resource": {"prefect.resource.id": resource, **(labels or {})},
        "related": list(related),
        "payload": payload or {},
        "follows": follows,
    }
