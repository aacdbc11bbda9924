"""Routes of flow runs."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid5

from msgspec import UNSET
from starlette.responses import PlainTextResponse, Response

from ledger.runs.flow_run import RunInput, flow_run_shown
from ledger.runs.json_values import time_text
from ledger.runs.states import pending
from projections.runs import count_flow_runs, flow_runs, lateness

from .bodies import Body, Given, given
from .calls import Call, Reply, Routes
from .lists import HistoryQuestion, Question, at_once, counted, deleted, history, listed, paginated
from .states import Proposal, ProposedState, replied, verdict

ROUTES = Routes("/flow_runs")
Object = dict[str, Any]


class FlowRunFields(Body):
    """What a new flow run may be given, with and without a deployment."""

    state: ProposedState | None = None
    name: Given[str | None] = UNSET
    parameters: Given[Object | None] = UNSET
    context: Given[Object] = UNSET
    parent_task_run_id: Given[str | None] = UNSET
    infrastructure_document_id: Given[str | None] = UNSET
    empirical_policy: Given[Object] = UNSET
    tags: Given[list[str]] = UNSET
    labels: Given[Object | None] = UNSET
    idempotency_key: Given[str | None] = UNSET
    work_queue_name: Given[str | None] = UNSET
    job_variables: Given[Object | None] = UNSET


class NewFlowRun(FlowRunFields, kw_only=True):
    """A flow run. Only `flow_id` is needed."""

    flow_id: str
    flow_version: Given[str | None] = UNSET
    work_pool_name: Given[str | None] = UNSET
    deployment_id: Given[str | None] = UNSET


class FlowRunChange(Body):
    """What changes of a flow run."""

    name: Given[str | None] = UNSET
    flow_version: Given[str | None] = UNSET
    parameters: Given[Object] = UNSET
    empirical_policy: Given[Object] = UNSET
    tags: Given[list[str]] = UNSET
    infrastructure_pid: Given[str | None] = UNSET
    job_variables: Given[Object | None] = UNSET


@ROUTES.post("/{id:uuid}/set_state")
def set_state(call: Call, body: Proposal, id: str) -> Reply:
    """Propose a state: accepted, replaced, refused, or to be proposed later again."""
    runs, version = call.services.flow_runs, call.client_version
    return replied(runs.set_state(id, body.state.state(), force=body.force, client_version=version))


@ROUTES.get("/{id:uuid}")
def get(call: Call, id: str) -> Any:
    """One flow run with its state, from its stream: never behind."""
    return flow_run_shown(call.services.flow_runs.get(id))


@ROUTES.post("/")
def create(call: Call, body: NewFlowRun) -> Reply:
    """Create a flow run; a repeat with the same flow and idempotency key answers the first one (200)."""
    fields = given(body)
    flow_id = fields.pop("flow_id")
    fields |= call.services.queue_of(fields.pop("work_pool_name", None), fields.pop("work_queue_name", None))
    fields |= created_by(call)
    fields["state"] = pending() if body.state is None else body.state.state()
    run, created = call.services.flow_runs.create(flow_id, **fields)
    return Reply(flow_run_shown(run), 201 if created else 200)


def created_by(call: Call) -> dict[str, Any]:
    """Who creates a run, where the request says so: a worker or a deployment of its own (2.6)."""
    for kind in ("worker", "deployment"):
        if id := call.headers.get(f"x-prefect-{kind}-id"):
            name = call.headers.get(f"x-prefect-{kind}-name")
            return {"created_by": {"id": id, "type": kind.upper(), "display_value": name}}
    return {}


@ROUTES.look("/filter")
def filter(call: Call, body: Question) -> Any:
    """Flow runs by filters."""
    return listed(call, body, flow_runs, flow_run_shown)


@ROUTES.look("/count")
def count(call: Call, body: Question) -> int:
    """How many flow runs there are."""
    return counted(call, body, count_flow_runs)


@ROUTES.look("/paginate")
def paginate(call: Call, body: Question) -> Any:
    """A page of flow runs."""
    return paginated(call, body, flow_runs, count_flow_runs, flow_run_shown)


@ROUTES.look("/lateness")
def mean_lateness(call: Call, body: Question) -> float | None:
    """The mean of how much later flow runs began than expected, in seconds."""
    call.services.settle()
    return lateness(call.services.ledger, body.filters())


@ROUTES.look("/history")
def history_of(call: Call, body: HistoryQuestion) -> Any:
    """How many runs were expected in each interval, by state."""
    return history(call, body, "flow_runs")


@ROUTES.patch("/{id:uuid}")
def change(call: Call, id: str, body: FlowRunChange) -> None:
    """Change fields of a flow run."""
    call.services.flow_runs.change(id, **given(body))


@ROUTES.patch("/{id:uuid}/labels")
def label(call: Call, id: str, body: dict[str, Any]) -> None:
    """Add labels, or replace those of the same names."""
    call.services.flow_runs.change(id, labels=body)


@ROUTES.delete("/{id:uuid}")
def delete(call: Call, id: str) -> None:
    """Take a flow run out of the lists; its history stays."""
    call.services.flow_runs.delete(id)


@ROUTES.post("/bulk_delete")
def bulk_delete(call: Call, body: Question) -> Any:
    """Delete all flow runs that the filter means, at most 50."""
    return deleted(call, body, flow_runs, call.services.flow_runs.delete)


class BulkProposal(Question, kw_only=True):
    """A state that is proposed to several flow runs."""

    state: ProposedState
    force: bool = False


@ROUTES.post("/bulk_set_state")
def bulk_set_state(call: Call, body: BulkProposal) -> Any:
    """Propose a state to all flow runs that the filter means, at most 50; the verdict on each."""
    ids = listed(call, at_once(body), flow_runs, lambda one: one.id)
    runs = call.services.flow_runs
    told = [(id, verdict(runs.set_state(id, body.state.state(), force=body.force))) for id in ids]
    return {"results": [{"flow_run_id": id, **one} for id, one in told]}


class Resume(Body):
    """What a paused run is resumed with. run_input: the values that it waits for."""

    run_input: Object | None = None


@ROUTES.post("/{id:uuid}/resume")
def resume(call: Call, id: str, body: Resume) -> Reply:
    """Let a paused flow run go on."""
    return replied(call.services.flow_runs.resume(id, body.run_input, client_version=call.client_version))


class NewInput(Body):
    """An input of a flow run: text under a key."""

    key: str
    value: str
    sender: str | None = None


class InputQuestion(Body):
    """Which inputs are meant."""

    prefix: str
    limit: int = 1
    exclude_keys: list[str] = []


@ROUTES.post("/{id:uuid}/input", status=201)
def set_input(call: Call, id: str, body: NewInput) -> None:
    """Give an input; 409 if there is one of this key."""
    call.services.flow_runs.set_input(id, body.key, body.value, body.sender)


@ROUTES.look("/{id:uuid}/input/filter")
def inputs(call: Call, id: str, body: InputQuestion) -> Any:
    """Inputs whose keys begin so, the oldest first."""
    runs = call.services.flow_runs
    found = runs.inputs(id, body.prefix, limit=body.limit, exclude=body.exclude_keys)
    return [_input_shown(id, one) for one in found]


@ROUTES.get("/{id:uuid}/input/{key:path}")
def input(call: Call, id: str, key: str) -> Response:
    """The text of an input."""
    return PlainTextResponse(call.services.flow_runs.get_input(id, key).value)


@ROUTES.delete("/{id:uuid}/input/{key:path}")
def delete_input(call: Call, id: str, key: str) -> None:
    """Delete an input."""
    call.services.flow_runs.delete_input(id, key)


def _input_shown(run: str, given: RunInput) -> dict[str, Any]:
    """An input as JSON. Its id follows from its run and its key, of which there is one."""
    at = time_text(given.created)
    return {
        "id": str(uuid5(UUID(run), given.key)), "created": at, "updated": at, "flow_run_id": run,
        "key": given.key, "value": given.value, "sender": given.sender,
    }  # fmt: skip
