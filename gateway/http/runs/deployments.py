"""Routes of deployments, of their schedules, and of the flow runs made from them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any

from msgspec import UNSET, Meta

from consumers.runs.deployment_scheduler import Ahead
from ledger import BadParameters, RecordNotFound
from ledger.runs.flow_run import FlowRun, flow_run_shown
from ledger.runs.records import Record
from ledger.runs.states import scheduled
from projections.runs import scheduled_runs

from ..problems import Refusal
from .bodies import Body, Given, given
from .calls import Call, Reply, Routes
from .flow_runs import FlowRunFields, Object, created_by
from .lists import MOST, Limit, Question, aware, counted, counting, deleted, listed, paginated, reading
from .refusals import Unfit
from .stubs import record_or_stub

ROUTES = Routes("/deployments")
DEPLOYMENTS, COUNT = reading("deployments"), counting("deployments")
NEVER_NULL = {"schedules", "tags", "parameters", "job_variables", "labels", "enforce_parameter_schema"}
MOST_RUNS = 100
"""Flow runs that one request makes, at most."""
MOST_AT_ONCE = 1000
"""Flow runs of each schedule that one request makes, at most."""
MOST_AHEAD = 366 * 86400.0
"""Seconds for which one request makes runs, at least."""


class DeploymentChange(Body):
    """What changes of a deployment. Fields as in `ledger.runs.kinds`, schedules inside."""

    version: Given[str | None] = UNSET
    description: Given[str | None] = UNSET
    paused: Given[bool] = UNSET
    schedules: Given[list[Object] | None] = UNSET
    concurrency_limit: Given[int | None] = UNSET
    concurrency_options: Given[Object | None] = UNSET
    global_concurrency_limit_id: Given[str | None] = UNSET
    parameters: Given[Object | None] = UNSET
    parameter_openapi_schema: Given[Object | None] = UNSET
    enforce_parameter_schema: Given[bool | None] = UNSET
    tags: Given[list[str] | None] = UNSET
    labels: Given[Object | None] = UNSET
    work_pool_name: Given[str | None] = UNSET
    work_queue_name: Given[str | None] = UNSET
    path: Given[str | None] = UNSET
    entrypoint: Given[str | None] = UNSET
    job_variables: Given[Object | None] = UNSET
    pull_steps: Given[list[Object] | None] = UNSET
    storage_document_id: Given[str | None] = UNSET
    infrastructure_document_id: Given[str | None] = UNSET
    version_info: Given[Object | None] = UNSET


class NewDeployment(DeploymentChange, kw_only=True):
    """A deployment; its name is unique in its flow."""

    name: str
    flow_id: str


class ScheduleChange(Body):
    """What changes of a schedule: an interval, cron or rrule."""

    schedule: Given[Object] = UNSET
    active: Given[bool] = UNSET
    max_scheduled_runs: Given[int | None] = UNSET
    parameters: Given[Object] = UNSET
    slug: Given[str | None] = UNSET


class NewScheduleOf(ScheduleChange, kw_only=True):
    """A schedule of a deployment; it is active unless it says that it is not."""

    schedule: Object


class NewFlowRunOf(FlowRunFields, kw_only=True):
    """A flow run of a deployment; what is not given is the deployment's."""

    enforce_parameter_schema: Given[bool | None] = UNSET


class Poll(Body):
    """Which scheduled runs are asked for."""

    deployment_ids: Annotated[list[str], Meta(max_length=1000)]
    scheduled_before: datetime | None = None
    limit: Limit = None


@ROUTES.post("/get_scheduled_flow_runs")
def poll(call: Call, body: Poll) -> Any:
    """The scheduled flow runs of deployments; these are then known to be polled."""
    call.services.settle()
    limit = MOST if body.limit is None else body.limit
    found = scheduled_runs(
        call.services.ledger, deployments=body.deployment_ids, before=body.scheduled_before, limit=limit
    )
    call.services.deployments.polled(body.deployment_ids)
    return [flow_run_shown(run) for run in found]


@ROUTES.post("/")
def create(call: Call, body: NewDeployment) -> Reply:
    """The deployment of this flow and name with its schedules, created or changed to what is given."""
    try:
        deployment, is_new = call.services.deployments.upsert({**_fields(body), **created_by(call)})
    except BadParameters as error:  # 422 here, and 409 in the other routes: as Prefect's server has it
        raise Unfit(str(error)) from error
    return Reply(deployment_shown(call, deployment), 201 if is_new else 200)


@ROUTES.look("/filter")
def filter(call: Call, body: Question) -> Any:
    """Deployments by filters."""
    return call.services.deployments.shown(*listed(call, body, DEPLOYMENTS, lambda one: one))


@ROUTES.look("/count")
def count(call: Call, body: Question) -> int:
    """How many deployments there are."""
    return counted(call, body, COUNT)


@ROUTES.look("/paginate")
def paginate(call: Call, body: Question) -> Any:
    """A page of deployments."""
    return paginated(call, body, DEPLOYMENTS, COUNT, lambda one: deployment_shown(call, one))


@ROUTES.get("/name/{flow}/{deployment}")
def named(call: Call, flow: str, deployment: str) -> Any:
    """The deployment of these names; 404 if there is none, so that who looks for it learns it."""
    return deployment_shown(call, call.services.deployments.named(flow, deployment))


@ROUTES.get("/{id:uuid}")
def get(call: Call, id: str) -> Any:
    """One deployment; `stubs` says what happens if it is not there."""
    try:
        return deployment_shown(call, call.services.records.open("deployment", id).shown())
    except RecordNotFound:
        return record_or_stub(call, "deployment", id, flow_id=call.headers.get("x-prefect-flow-id"))


@ROUTES.patch("/{id:uuid}")
def change(call: Call, id: str, body: DeploymentChange) -> None:
    """Change a deployment; its schedules, too, if they are given."""
    call.services.deployments.change(id, _fields(body))


@ROUTES.delete("/{id:uuid}")
def delete(call: Call, id: str) -> None:
    """Delete a deployment; its runs stay, but those that are only scheduled do not."""
    call.services.deployments.delete(id)


@ROUTES.post("/bulk_delete")
def bulk_delete(call: Call, body: Question) -> Any:
    """Delete all deployments that the filter means, at most 50."""
    return deleted(call, body, DEPLOYMENTS, call.services.deployments.delete)


@ROUTES.post("/{id:uuid}/resume_deployment")
def resume(call: Call, id: str) -> None:
    """Let a paused deployment be scheduled again."""
    call.services.deployments.resume(id)


@ROUTES.post("/{id:uuid}/pause_deployment")
def pause(call: Call, id: str) -> None:
    """Schedule no more runs of a deployment, and delete those that were scheduled by themselves."""
    call.services.deployments.pause(id)


@ROUTES.post("/{id:uuid}/create_flow_run")
def create_flow_run(call: Call, id: str, body: NewFlowRunOf) -> Reply:
    """A flow run of a deployment, scheduled unless another state is given."""
    run, is_new = _flow_run(call, id, body)
    return Reply(flow_run_shown(run), 201 if is_new else 200)


@ROUTES.post("/{id:uuid}/create_flow_run/bulk")
def create_flow_runs(call: Call, id: str, body: list[NewFlowRunOf]) -> Any:
    """Several flow runs of a deployment, at most 100; each with what became of it."""
    if len(body) > MOST_RUNS:
        raise Refusal(422, "InvalidRequest", f"at most {MOST_RUNS} flow runs can be created at once")
    made = [_flow_run(call, id, one) for one in body]
    return {
        "results": [
            {"flow_run_id": run.id, "status": "CREATED" if is_new else "EXISTS"} for run, is_new in made
        ]
    }


@ROUTES.get("/{id:uuid}/schedules")
def schedules(call: Call, id: str) -> Any:
    """The schedules of a deployment."""
    return call.services.records.get("deployment", id).shown()["schedules"]


@ROUTES.post("/{id:uuid}/schedules", status=201)
def add_schedules(call: Call, id: str, body: list[NewScheduleOf]) -> Any:
    """Add schedules; 409 if one of their slugs is used."""
    return call.services.deployments.add_schedules(id, [given(one) for one in body])


@ROUTES.patch("/{id:uuid}/schedules/{schedule:uuid}")
def change_schedule(call: Call, id: str, schedule: str, body: ScheduleChange) -> None:
    """Change a schedule, such as whether it is active."""
    call.services.deployments.change_schedule(id, schedule, given(body))


@ROUTES.delete("/{id:uuid}/schedules/{schedule:uuid}")
def delete_schedule(call: Call, id: str, schedule: str) -> None:
    """Delete a schedule."""
    call.services.deployments.delete_schedule(id, schedule)


class Backfill(Body):
    """Which runs of schedules are made. min_time: seconds after start_time."""

    start_time: datetime | None = None
    end_time: datetime | None = None
    min_time: Annotated[float, Meta(ge=0, le=MOST_AHEAD)] | None = None
    min_runs: Annotated[int, Meta(ge=0, le=MOST_AT_ONCE)] | None = None
    max_runs: Annotated[int, Meta(ge=0, le=MOST_AT_ONCE)] | None = None

    def ahead(self, start: datetime) -> Ahead:
        """How far from its start; what is not given is as the scheduler has it."""
        given: dict[str, Any] = {
            "min_seconds": self.min_time, "min_runs": self.min_runs, "max_runs": self.max_runs
        }  # fmt: skip
        if self.end_time is not None:
            given["max_seconds"] = (aware(self.end_time) - start).total_seconds()
        return replace(Ahead(), **{name: value for name, value in given.items() if value is not None})


@ROUTES.post("/{id:uuid}/schedule")
def schedule(call: Call, id: str, body: Backfill) -> None:
    """Make the runs of its schedules from a time on; one in the past is a backfill."""
    given = [one for one in (body.start_time, body.end_time) if one is not None]
    if not all(1970 <= one.year < 2200 for one in given):
        raise Unfit("start_time and end_time must be between 1970 and 2200")
    start = datetime.now(UTC) if body.start_time is None else aware(body.start_time)
    call.services.scheduler.backfill(id, start, body.ahead(start))


@ROUTES.get("/{id:uuid}/work_queue_check")
def work_queue_check(call: Call, id: str) -> Any:
    """The queues that may take runs of a deployment: its own."""
    queue = call.services.records.get("deployment", id)["work_queue_id"]
    return [] if queue is None else [call.services.records.get("work_queue", queue).shown()]


def _fields(body: Body) -> dict[str, Any]:
    """What was given, without null where a deployment cannot have it: clients mean `not given` by it."""
    found = given(body)
    return {name: value for name, value in found.items() if value is not None or name not in NEVER_NULL}


def _flow_run(call: Call, id: str, body: NewFlowRunOf) -> tuple[FlowRun, bool]:
    fields = {name: value for name, value in given(body).items() if value is not None}
    state = scheduled() if body.state is None else body.state.state()
    return call.services.deployments.create_flow_run(id, **{**fields, **created_by(call), "state": state})


def deployment_shown(call: Call, deployment: Record) -> dict[str, Any]:
    """A deployment as JSON, with its concurrency limit and the time of its last poll."""
    return call.services.deployments.shown(deployment)[0]
