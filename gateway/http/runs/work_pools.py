"""Routes of work pools, of their queues, and of the workers that poll them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from msgspec import Meta

from ledger import RecordNotFound
from ledger.runs.flow_run import flow_run_shown
from projections.runs import scheduled_runs

from .bodies import Body, FieldsOf
from .calls import Call
from .lists import MOST, Limit, Question, listed, reading
from .record_routes import RecordRoutes
from .slots import SlotQuestion, pool_shown, queue_shown, slots_of_pool
from .stubs import from_flow_run

ROUTES = RecordRoutes("/work_pools", "work_pool", "work_pools")
ROUTES.declare_lists(pool_shown)
QueueFields = Annotated[dict[str, Any], FieldsOf("work_queue")]


@ROUTES.post("/", status=201, body=ROUTES.fields)
def create(call: Call, body: dict[str, Any]) -> Any:
    """A new pool with its queue `default`; 409 if there is one of this name."""
    return pool_shown(call, call.services.work_pools.create(body))


class Poll(Body):
    """What a worker asks for. work_queue_names: None for all queues of the pool."""

    work_queue_names: list[str] | None = None
    scheduled_before: datetime | None = None
    scheduled_after: datetime | None = None
    limit: Limit = None


@ROUTES.post("/{name}/get_scheduled_flow_runs")
def poll(call: Call, name: str, body: Poll) -> Any:
    """The flow runs that a worker may take now; its queues are then known to be polled."""
    pools = call.services.work_pools
    pool, queues = pools.get(name), pools.queues(name)
    if body.work_queue_names:
        queues = [pools.queue(name, one) for one in body.work_queue_names]
    ids = [queue.id for queue in queues]
    call.services.settle()
    limit = MOST if body.limit is None else body.limit
    found = scheduled_runs(
        call.services.ledger, pool=pool.id, queues=ids, before=body.scheduled_before, limit=limit
    )
    pools.polled(queues)
    call.services.deployments.polled({run.deployment_id for run in found if run.deployment_id})
    return [
        {"work_pool_id": pool.id, "work_queue_id": run.work_queue_id, "flow_run": flow_run_shown(run)}
        for run in found
    ]


@ROUTES.look("/{name}/concurrency_status")
def slots(call: Call, name: str, body: SlotQuestion) -> Any:
    """Which flow runs take slots of a pool, by queue."""
    return slots_of_pool(call, call.services.work_pools.get(name), body)


@ROUTES.post("/{pool}/queues", status=201)
def create_queue(call: Call, pool: str, body: QueueFields) -> Any:
    """A new queue of a pool; 409 if there is one of this name."""
    return queue_shown(call, call.services.work_pools.create_queue(pool, body), pool)


@ROUTES.look("/{pool}/queues/filter")
def queues(call: Call, pool: str, body: Question) -> Any:
    """The queues of a pool by filters."""
    parent = call.services.work_pools.get(pool).id
    read = reading("work_pool_queues", parent=parent)
    return listed(call, body, read, lambda one: queue_shown(call, one, pool))


@ROUTES.get("/{pool}/queues/{name}")
def queue(call: Call, pool: str, name: str) -> Any:
    """One queue of a pool."""
    return queue_shown(call, call.services.work_pools.queue(pool, name), pool)


@ROUTES.patch("/{pool}/queues/{name}")
def change_queue(call: Call, pool: str, name: str, body: QueueFields) -> None:
    """Change a queue of a pool."""
    pools = call.services.work_pools
    pools.change_queue(pools.queue(pool, name).id, body)


@ROUTES.delete("/{pool}/queues/{name}")
def delete_queue(call: Call, pool: str, name: str) -> None:
    """Delete a queue of a pool; its default queue stays."""
    pools = call.services.work_pools
    pools.delete_queue(pools.queue(pool, name).id)


class Heartbeat(Body):
    """A worker says that it lives."""

    name: Annotated[str, Meta(min_length=1)]
    heartbeat_interval_seconds: Annotated[int, Meta(ge=1, lt=2**31)] | None = None


@ROUTES.post("/{pool}/workers/heartbeat", status=204)
def heartbeat(call: Call, pool: str, body: Heartbeat) -> None:
    """Note that a worker lives; it is known from its first heartbeat on."""
    call.services.work_pools.heartbeat(pool, body.name, body.heartbeat_interval_seconds)


@ROUTES.look("/{pool}/workers/filter")
def workers(call: Call, pool: str, body: Question) -> Any:
    """The workers of a pool by filters, with their last heartbeats."""
    pools = call.services.work_pools
    found = listed(call, body, reading("workers", parent=pools.get(pool).id), lambda one: one)
    return pools.workers_shown(found)


@ROUTES.delete("/{pool}/workers/{name}")
def delete_worker(call: Call, pool: str, name: str) -> None:
    """Forget a worker."""
    call.services.work_pools.delete_worker(pool, name)


@ROUTES.get("/{name}")
def get(call: Call, name: str) -> Any:
    """The pool of this name; `stubs` says what happens if there is none."""
    try:
        return pool_shown(call, call.services.work_pools.get(name))
    except RecordNotFound:
        if not from_flow_run(call):
            raise
    return {"id": str(UUID(int=0)), "name": name, "type": "process", "base_job_template": {}}


@ROUTES.patch("/{name}", body=ROUTES.fields)
def change(call: Call, name: str, body: dict[str, Any]) -> None:
    """Change a pool."""
    call.services.work_pools.change(name, body)


@ROUTES.delete("/{name}")
def delete(call: Call, name: str) -> None:
    """Delete a pool with its queues and workers."""
    call.services.work_pools.delete(name)
