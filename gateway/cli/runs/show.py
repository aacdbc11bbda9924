"""`pledger runs list` and `show`: the list of flow runs, and one run as it is now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ..output import Column, Page, fields, json_line, most, time, titled
from ..session import AsJson, Session, session_of
from .options import STATES, One, found, seconds, short, viewed

if TYPE_CHECKING:
    from ledger import Ledger
    from ledger.runs import FlowRun

State = Annotated[
    list[str] | None,
    typer.Option("--state", metavar="S", help="Only in this state: its type or name. Repeatable."),
]
Flow = Annotated[str | None, typer.Option("--flow", metavar="NAME", help="Only of this flow.")]
Deployment = Annotated[
    str | None, typer.Option("--deployment", metavar="NAME", help="Only of deployments of this name.")
]
Tag = Annotated[
    list[str] | None, typer.Option("--tag", metavar="TAG", help="Only with this tag. Repeatable.")
]
Limit = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="List at most N. Default: 50 on a terminal, otherwise all."),
]
Offset = Annotated[int, typer.Option(metavar="N", min=0, help="Leave out the first N, for the next page.")]
PAGE: Final = 500


def list_(
    context: typer.Context,
    state: State = None,
    flow: Flow = None,
    deployment: Deployment = None,
    tag: Tag = None,
    limit: Limit = None,
    offset: Offset = 0,
    as_json: AsJson = False,
) -> None:
    """List flow runs, the last to start first.

    Runs that have not started are listed by when they are expected to. Reads the views of runs, which
    `pledger serve --prefect` keeps up to date; stderr reports if they are behind.

    \b
    Examples:
      pledger runs list --state Late --state FAILED
      pledger runs list --flow etl --tag nightly --limit 10

    JSON, one object per line: id, name, flow_id, flow (its name), state (type, name, timestamp, message and
    so on), start_time, end_time, total_run_time in seconds, and all other fields of Prefect's API.
    """
    session = session_of(context, as_json)
    body = _filters(state or [], flow, deployment, tag or [])
    with viewed(session) as log:
        page = Page(_named(log, body, offset), most(limit, 50))
        session.print_rows(page, COLUMNS, _row, data=_data, styles=STATES)
    if page.last is None:
        session.say("no flow run matches")
    elif page.more:
        session.say(f"there are more: give --offset {offset + (limit or 50)}, or a larger --limit")


def _filters(states: list[str], flow: str | None, deployment: str | None, tags: list[str]) -> dict[str, Any]:
    """The filters of Prefect's API for the options."""
    from ledger.runs import StateType

    types = [one.upper() for one in states if one.upper() in list(StateType)]
    names = [one for one in states if one.upper() not in list(StateType)]
    runs: dict[str, Any] = {}
    if states:
        told = {"type": {"any_": types}} if types else {}
        told |= {"name": {"any_": names}} if names else {}
        runs["state"] = {"operator": "or_", **told}
    if tags:
        runs["tags"] = {"all_": tags}
    body: dict[str, Any] = {"flow_runs": runs}
    if flow is not None:
        body["flows"] = {"name": {"any_": [flow]}}
    if deployment is not None:
        body["deployments"] = {"name": {"any_": [deployment]}}
    return body


def _named(log: Ledger, body: Mapping[str, Any], offset: int) -> Iterator[tuple[FlowRun, str]]:
    """The flow runs that match, each with the name of its flow."""
    from projections.runs import flow_runs

    while page := flow_runs(log, body, "START_TIME_DESC", offset, PAGE):
        flows = _names(log, {run.flow_id for run in page})
        yield from ((run, flows.get(run.flow_id, "")) for run in page)
        offset += len(page)
        if len(page) < PAGE:
            return


def _names(log: Ledger, ids: set[str]) -> dict[str, str]:
    from projections.runs import records

    wanted = {"flows": {"id": {"any_": sorted(ids)}}}
    return {one.id: str(one["name"]) for one in records(log, "flows", wanted, limit=PAGE)}


COLUMNS: Final = [
    Column("run"), *titled("name", "flow", keep=True), Column("state"), Column("started"),
    Column("seconds", number=True), Column("message", rest=True),
]  # fmt: skip


def _row(row: tuple[FlowRun, str]) -> list[Any]:
    run, flow = row
    began = run.start_time or run.expected_start_time
    message = "" if run.state is None else run.state.message
    spent = seconds(run.estimated_run_time())
    return [short(run.id), run.name, flow, run.state_name or "", began, spent, message]


def _data(row: tuple[FlowRun, str]) -> dict[str, Any]:
    from ledger.runs import flow_run_shown

    run, flow = row
    return {**flow_run_shown(run), "flow": flow}


# One run


def show(context: typer.Context, id: One, as_json: AsJson = False) -> None:
    """Show one flow run or task run as it is now, and the task runs of a flow run.

    The run itself is read from its stream; its task runs are those in the view.

    \b
    Examples:
      pledger runs show 0198f3a1
      pledger runs show task_run/0198f3a1-5d0c-7c1e-9a55-0f3c8e1d2b4a --json

    JSON, one object: the run as Prefect's API shows it; of a flow run also flow (its name) and task_runs.
    """
    session = session_of(context, as_json)
    with session.ledger() as log:
        category, whole = found(log, id)
        kept = category == "flow_run"
    if not kept:
        with session.ledger() as log:
            _show_task_run(session, log, whole)
        return
    with viewed(session) as log:
        _show_flow_run(session, log, whole)


def _show_task_run(session: Session, log: Ledger, id: str) -> None:
    from ledger.runs.task_run import OpenTaskRun, task_run_shown

    told = task_run_shown(log.load(OpenTaskRun, id).state)
    if session.json:
        json_line(told)
    else:
        fields(_pairs(told, "task run", _OF_TASK_RUN), color=session.color)


def _show_flow_run(session: Session, log: Ledger, id: str) -> None:
    from ledger.runs import OpenFlowRun, flow_run_shown
    from ledger.runs.task_run import task_run_shown
    from projections.runs import task_runs

    run = log.load(OpenFlowRun, id).state
    told = {**flow_run_shown(run), "flow": _names(log, {run.flow_id}).get(run.flow_id)}
    children = task_runs(log, {"flow_runs": {"id": {"any_": [id]}}}, "EXPECTED_START_TIME_ASC", limit=1000)
    if session.json:
        json_line({**told, "task_runs": [task_run_shown(one) for one in children]})
        return
    fields(_pairs(told, "flow run", _OF_FLOW_RUN), color=session.color)
    columns = [*titled("task run", "name", "state", "started"), Column("seconds", number=True)]
    session.print_rows(
        children, columns, styles=STATES,
        cells=lambda one: [
            short(one.id), one.name, one.state_name or "", one.start_time, seconds(one.estimated_run_time())
        ],
    )  # fmt: skip


_TIMES: Final = ("expected_start_time", "start_time", "end_time")
_OF_FLOW_RUN: Final = (
    "flow", "deployment_id", "work_queue_name", "flow_version", "run_count", *_TIMES, "total_run_time",
    "tags", "parameters", "parent_task_run_id", "infrastructure_pid",
)  # fmt: skip
_OF_TASK_RUN: Final = ("flow_run_id", "task_key", "run_count", *_TIMES, "total_run_time", "tags", "cache_key")


def _pairs(told: Mapping[str, Any], kind: str, names: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Names and values for a person; those without a value are left out."""
    from datetime import datetime

    state = told["state"] or {}
    yield kind, told["id"]
    yield "name", told["name"]
    yield "state", state.get("name", "none")
    if state.get("message"):
        yield "message", state["message"]
    for name in names:
        value = told[name]
        if value not in (None, [], {}, 0, 0.0):
            shown = time(datetime.fromisoformat(value)) if name in _TIMES else value
            yield (
                name.removesuffix("_id").replace("_", " "),
                shown if not isinstance(shown, dict) else str(shown),
            )
