"""The views of runs: flow runs, task runs and records; each row is the state of its stream."""

from __future__ import annotations

from ledger.runs.flow_run import FlowRunCreated, OpenFlowRun
from ledger.runs.kinds import KINDS
from ledger.runs.records import FACTS, open_class
from ledger.runs.task_run import OpenTaskRun, TaskRunCreated

from ..engine.state_view import StateView
from ..engine.view import parts

_FLOW_RUNS = parts(__package__, "flow_runs")
_TASK_RUNS = parts(__package__, "task_runs")
_RECORDS = parts(__package__, "run_records")
_SHARED = parts(__package__, "columns")


class FlowRunView(StateView):
    """The flow runs: table `flow_runs`. A row is the state of the run (spec S3, 4.2)."""

    name = "flow_runs"
    streams = (OpenFlowRun,)
    born = (FlowRunCreated.topic,)
    tables = _FLOW_RUNS["tables"]
    indexes = _FLOW_RUNS["indexes"]
    picks = _SHARED
    forget = (_FLOW_RUNS["forget"],)


class TaskRunView(StateView):
    """The task runs: table `task_runs`. A row is the state of the run (spec S3, 4.2)."""

    name = "task_runs"
    streams = (OpenTaskRun,)
    born = (TaskRunCreated.topic,)
    tables = _TASK_RUNS["tables"]
    indexes = _TASK_RUNS["indexes"]
    picks = _SHARED
    forget = (_TASK_RUNS["forget"],)


class RunRecordView(StateView):
    """The records of all kinds: table `run_records`. A row is the state of the record (spec S3, 4.2)."""

    name = "run_records"
    streams = tuple(open_class(kind) for kind in KINDS)
    born = tuple(facts.created.topic for facts in FACTS.values())
    tables = _RECORDS["tables"]
    indexes = _RECORDS["indexes"]
    picks = {
        "category": _RECORDS["category"],
        "id": _SHARED["id"],
        "name": _RECORDS["record_name"],
        "parent": _RECORDS["parent"],
        "tags": _RECORDS["tags"],
    }
    forget = (_RECORDS["forget"],)
