"""Routes of the graphs of flow runs: which task runs and subflows took the results of which."""

from __future__ import annotations

from typing import Any, Final

from ledger.runs.fields import time_read
from ledger.runs.flow_run import flow_run_shown
from ledger.runs.task_run import TaskRun, task_run_shown
from projections.runs import task_runs
from projections.runs.graph import run_graph

from ..problems import Refusal
from .calls import Call, Routes

ROUTES = Routes("/flow_runs")
PAGE: Final = 1000
STATE: Final = ("id", "timestamp", "type", "name")
"""What a graph says of each state of its flow run."""
SHOWN: Final = (
    "id", "state", "name", "expected_start_time", "start_time", "end_time", "total_run_time",
    "estimated_run_time",
)  # fmt: skip
"""What the first version of graphs says of each task run."""


@ROUTES.get("/{id:uuid}/graph-v2")
def graph(call: Call, id: str) -> Any:
    """The graph of a flow run; the parameter since: without what ended before. 400 above 10,000 nodes."""
    since = call.query.get("since")
    at = None if since is None else time_read(since, "since")
    runs = call.services.flow_runs
    run, states = flow_run_shown(runs.get(id)), [one.shown() for one in runs.states(id)]
    call.services.settle()
    found = run_graph(call.services.ledger, id, at)
    if found is None:
        raise Refusal(400, "TooLarge", f"the graph of flow run {id} has more than 10,000 nodes")
    return {
        "start_time": run["start_time"] or run["expected_start_time"], "end_time": run["end_time"],
        **found._asdict(), "states": [{name: one[name] for name in STATE} for one in states],
    }  # fmt: skip


@ROUTES.get("/{id:uuid}/graph")
def dependencies(call: Call, id: str) -> Any:
    """The task runs of a flow run, each with the inputs that it took: the first version of graphs."""
    call.services.flow_runs.get(id)
    call.services.settle()
    wanted = {"task_runs": {"flow_run_id": {"any_": [id]}}}
    rows = list[TaskRun]()
    while len(page := task_runs(call.services.ledger, wanted, "ID_ASC", len(rows), PAGE)) == PAGE:
        rows += page
    return [_dependency(task_run_shown(one)) for one in [*rows, *page]]


def _dependency(run: dict[str, Any]) -> dict[str, Any]:
    inputs: list[Any] = []
    for one in (one for named in run["task_inputs"].values() for one in named or ()):
        if one not in inputs:
            inputs.append(one)
    details = (run["state"] or {}).get("state_details", {})
    return {
        **{name: run[name] for name in SHOWN}, "upstream_dependencies": inputs,
        "untrackable_result": bool(details.get("untrackable_result")),
    }  # fmt: skip
