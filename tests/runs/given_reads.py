"""A small world of runs and records, which the tests of reads share and only look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import projections.shipped
from ledger import Ledger
from ledger.domain.known import KNOWN
from ledger.runs.flow_run import FlowRunStateSet, OpenFlowRun
from ledger.runs.json_values import plain
from ledger.runs.records import Records
from ledger.runs.states import State
from ledger.runs.task_run import OpenTaskRun, TaskRunStateSet
from projections import Projector

VIEWS: Final = ("flow_runs", "task_runs", "run_records")
START: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)


def number(nth: int) -> str:
    """The id with this number."""
    return str(UUID(int=nth))


def projector(log: Ledger) -> Projector:
    """A projector of the views of runs."""
    projections.shipped.load()
    return Projector(log, [KNOWN.views[name] for name in VIEWS])


def state(kind: str, minutes: float = 0, name: str | None = None, **details: Any) -> dict[str, Any]:
    """A state as facts hold it; its time is claimed: minutes after START."""
    at = START + timedelta(minutes=minutes)
    told = {"type": kind, "name": name, "timestamp": at.isoformat(), "state_details": details}
    return dict(plain(State.of(told).recorded()))


def flow_run(log: Ledger, id: str, name: str, flow: str, *states: Mapping[str, Any], **fields: Any) -> str:
    """A flow run that was in these states, one after the other."""
    with log.open(OpenFlowRun, id) as opened:
        opened.create(name, flow, **fields)
        for one in states:
            opened.record(FlowRunStateSet(state=dict(one), status=one["type"].lower()))
    return id


def task_run(
    log: Ledger, id: str, name: str, run: str | None, *states: Mapping[str, Any], **more: Any
) -> str:
    """A task run that was in these states, one after the other."""
    with log.open(OpenTaskRun, id) as opened:
        opened.create(name, name, "0", flow_run_id=run, **more)
        for one in states:
            opened.record(TaskRunStateSet(state=dict(one), status=one["type"].lower()))
    return id


@dataclass(frozen=True)
class World:
    """The ids of what there is, by short names."""

    log: Ledger
    ids: Mapping[str, str]

    def names(self, found: list[Any]) -> list[str]:
        """The short names of what was found."""
        known = {id: name for name, id in self.ids.items()}
        return [known[one.id] for one in found]


def make(log: Ledger) -> World:
    """Two flows, a pool with two queues, a deployment, flow runs with a subflow, task runs, variables."""
    records = Records(log)
    etl = records.create("flow", {"name": "etl", "tags": ["nightly"]}).id
    report = records.create("flow", {"name": "Report_1"}).id
    pool = records.create("work_pool", {"name": "local", "type": "process", "concurrency_limit": 2}).id
    fast = records.create("work_queue", {"name": "fast", "work_pool_id": pool, "priority": 1}).id
    slow = records.create("work_queue", {"name": "slow", "work_pool_id": pool, "priority": 2}).id
    deployed = {"name": "prod", "flow_id": etl, "tags": ["x", "y"], "work_queue_id": slow, "paused": True}
    deployment = records.create("deployment", deployed).id
    for name in ("apple", "banana", "cherry"):
        records.create("variable", {"name": name, "value": {"n": 1}, "tags": ["fruit", name]})
    ids = {"etl": etl, "report": report, "pool": pool, "fast": fast, "slow": slow, "prod": deployment}
    ids |= {name: number(nth) for nth, name in enumerate(("a", "b", "c", "d", "e", "gone"), 1)}
    ids |= {name: number(nth) for nth, name in enumerate(("t1", "t2", "t3", "alone"), 101)}
    of_prod = {"deployment_id": deployment, "work_queue_id": slow, "work_queue_name": "slow"}
    running, done = state("RUNNING", 1), state("COMPLETED", 9)
    flow_run(log, ids["a"], "red-ant", etl, state("PENDING"), running, done, tags=["x"], flow_version="7")
    flow_run(
        log, ids["b"], "blue-bee", etl, state("PENDING", 5), state("RUNNING", 6), tags=["x", "y"], **of_prod
    )
    due = START.isoformat()
    flow_run(log, ids["c"], "gray-cow", report, state("SCHEDULED", 2, "Late", scheduled_time=due),
             deployment_id=deployment, work_queue_id=slow, idempotency_key="k1")  # fmt: skip
    flow_run(log, ids["d"], "green-doe", report, running, parent_task_run_id=ids["t2"])
    flow_run(log, ids["e"], "late-elk", report, state("SCHEDULED", 3, scheduled_time=due),
             work_queue_id=fast, created_by={"id": deployment, "type": "DEPLOYMENT"})  # fmt: skip
    flow_run(log, ids["gone"], "gone-gnu", etl, running)
    with log.open(OpenFlowRun, ids["gone"]) as opened:
        opened.delete()
    task_run(log, ids["t1"], "load", ids["a"], running, done, tags=["x"])
    task_run(log, ids["t2"], "child", ids["b"], running)
    task_run(log, ids["t3"], "store", ids["b"], state("FAILED", 4))
    task_run(log, ids["alone"], "background", None, running)
    projector(log).catch_up()
    return World(log, ids)
