"""Routes of work queues by id, and of those made without a pool, which are in the pool of old agents."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any, Final

from ledger import RecordExists, RecordNotFound
from ledger.runs.flow_run import flow_run_shown
from ledger.runs.records import Record
from projections.runs import count_flow_runs, scheduled_runs

from .bodies import Body, FieldsOf
from .calls import Call, Routes
from .lists import MOST, Limit, Question, listed, reading
from .slots import SlotQuestion, queue_shown, slots_of_queue
from .stubs import record_or_stub

ROUTES = Routes("/work_queues")
Fields = Annotated[dict[str, Any], FieldsOf("work_queue")]
QUEUES = reading("work_pool_queues")
AGENTS: Final = "default-agent-pool"
"""The pool of queues that are created without one, as Prefect's server names it."""


@ROUTES.post("/", status=201)
def create(call: Call, body: Fields) -> Any:
    """A new queue of the pool of old agents; 409 if there is one of this name."""
    pools = call.services.work_pools
    try:
        pools.get(AGENTS)
    except RecordNotFound:
        with suppress(RecordExists):
            pools.create({"name": AGENTS, "type": "prefect-agent"})
    if body.get("name") == "default":
        return queue_shown(call, pools.queue(AGENTS, "default"), AGENTS)
    return queue_shown(call, pools.create_queue(AGENTS, body), AGENTS)


@ROUTES.look("/filter")
def filter(call: Call, body: Question) -> Any:
    """Queues of all pools by filters."""
    names: dict[str, str | None] = {}
    return listed(call, body, QUEUES, lambda one: queue_shown(call, one, _pool_of(call, one, names)))


@ROUTES.get("/name/{name}")
def named(call: Call, name: str) -> Any:
    """The queue of this name in the pool of old agents."""
    return queue_shown(call, call.services.work_pools.queue(AGENTS, name), AGENTS)


@ROUTES.get("/{id:uuid}")
def get(call: Call, id: str) -> Any:
    """One queue; `stubs` says what happens if it is not there."""
    try:
        queue = call.services.records.open("work_queue", id).shown()
    except RecordNotFound:
        return record_or_stub(call, "work_queue", id)
    return queue_shown(call, queue, _pool_of(call, queue, {}))


@ROUTES.get("/{id:uuid}/status")
def status(call: Call, id: str) -> Any:
    """Whether a queue is polled and how many of its runs are late."""
    queue = call.services.records.get("work_queue", id)
    call.services.settle()
    late = {"flow_runs": {"state": {"name": {"any_": ["Late"]}}}, "work_pool_queues": {"id": {"any_": [id]}}}
    many = count_flow_runs(call.services.ledger, late)
    policy = {"maximum_late_runs": 0, "maximum_seconds_since_last_polled": 60}
    healthy = many == 0 and queue["status"] == "READY"
    polled = queue_shown(call, queue, None)["last_polled"]
    told = {"healthy": healthy, "late_runs_count": many, "last_polled": polled}
    return {**told, "health_check_policy": policy}


@ROUTES.look("/{id:uuid}/concurrency_status")
def slots(call: Call, id: str, body: SlotQuestion) -> Any:
    """Which flow runs take slots of a queue."""
    return slots_of_queue(call, call.services.records.get("work_queue", id), body)


class Poll(Body):
    """What is asked for."""

    scheduled_before: datetime | None = None
    limit: Limit = None


@ROUTES.post("/{id:uuid}/get_runs")
def poll(call: Call, id: str, body: Poll) -> Any:
    """The flow runs of a queue that may be taken now; it is then known to be polled."""
    queue = call.services.records.get("work_queue", id)
    call.services.settle()
    limit = MOST if body.limit is None else body.limit
    pool = queue["work_pool_id"]
    found = scheduled_runs(
        call.services.ledger, pool=pool, queues=[id], before=body.scheduled_before, limit=limit
    )
    if "x-prefect-ui" not in call.headers:
        call.services.work_pools.polled([queue])
    return [flow_run_shown(run) for run in found]


@ROUTES.patch("/{id:uuid}")
def change(call: Call, id: str, body: Fields) -> None:
    """Change a queue."""
    call.services.work_pools.change_queue(id, body)


@ROUTES.delete("/{id:uuid}")
def delete(call: Call, id: str) -> None:
    """Delete a queue."""
    call.services.work_pools.delete_queue(id)


def _pool_of(call: Call, queue: Record, names: dict[str, str | None]) -> str | None:
    """The name of the pool of a queue; names: those that were read already."""
    pool = queue["work_pool_id"]
    if pool is None:
        return None
    if pool not in names:
        names[pool] = call.services.records.open("work_pool", pool).shown()["name"]
    return names[pool]
