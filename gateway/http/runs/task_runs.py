"""Routes of task runs. What clients report of them comes over /events/in; these are for the rest."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from ledger.runs.states import pending
from ledger.runs.task_run import task_run_shown
from projections.runs import count_task_runs, task_runs

from .bodies import Body, Given, given
from .calls import Call, Reply, Routes
from .lists import HistoryQuestion, Question, counted, history, listed, paginated
from .states import Proposal, ProposedState, replied

ROUTES = Routes("/task_runs")
Object = dict[str, Any]


class NewTaskRun(Body):
    """A task run; it is the one of this flow run, task key and dynamic key."""

    task_key: str
    dynamic_key: str
    id: str | None = None
    state: ProposedState | None = None
    flow_run_id: str | None = None
    name: Given[str | None] = UNSET
    cache_key: Given[str | None] = UNSET
    cache_expiration: Given[str | None] = UNSET
    task_version: Given[str | None] = UNSET
    empirical_policy: Given[Object] = UNSET
    tags: Given[list[str]] = UNSET
    labels: Given[Object | None] = UNSET
    task_inputs: Given[Object] = UNSET


class TaskRunChange(Body):
    """What changes of a task run."""

    name: Given[str | None] = UNSET


@ROUTES.post("/{id:uuid}/set_state")
def set_state(call: Call, body: Proposal, id: str) -> Reply:
    """Propose a state: accepted, replaced, refused, or to be proposed later again."""
    return replied(call.services.task_runs.set_state(id, body.state.state(), force=body.force))


@ROUTES.get("/{id:uuid}")
def get(call: Call, id: str) -> Any:
    """One task run with its state, from its stream."""
    return task_run_shown(call.services.task_runs.get(id))


@ROUTES.post("/")
def create(call: Call, body: NewTaskRun) -> Reply:
    """Create a task run; a repeat with the same keys answers the first one (200)."""
    state = pending() if body.state is None else body.state.state()
    run, created = call.services.task_runs.create(**{**given(body), "state": state})
    return Reply(task_run_shown(run), 201 if created else 200)


@ROUTES.look("/filter")
def filter(call: Call, body: Question) -> Any:
    """Task runs by filters."""
    return listed(call, body, task_runs, task_run_shown)


@ROUTES.look("/count")
def count(call: Call, body: Question) -> int:
    """How many task runs there are."""
    return counted(call, body, count_task_runs)


@ROUTES.look("/paginate")
def paginate(call: Call, body: Question) -> Any:
    """A page of task runs."""
    return paginated(call, body, task_runs, count_task_runs, task_run_shown)


@ROUTES.look("/history")
def history_of(call: Call, body: HistoryQuestion) -> Any:
    """How many runs were expected in each interval, by state."""
    return history(call, body, "task_runs")


@ROUTES.patch("/{id:uuid}")
def change(call: Call, id: str, body: TaskRunChange) -> None:
    """Rename a task run."""
    call.services.task_runs.change(id, **given(body))


@ROUTES.delete("/{id:uuid}")
def delete(call: Call, id: str) -> None:
    """Take a task run out of the lists; its history stays."""
    call.services.task_runs.delete(id)
