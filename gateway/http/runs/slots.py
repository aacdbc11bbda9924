"""Work pools and queues as JSON: with the number of flow runs that count against their limits."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Final

from msgspec import Meta

from ledger.runs.flow_run import FlowRun, flow_run_shown
from ledger.runs.json_values import time_text
from ledger.runs.leases import LeaseKind
from ledger.runs.records import Record
from projections.runs import count_flow_runs, flow_runs

from .bodies import Body
from .calls import Call
from .lists import MOST, Limit, PageNumber

TAKEN: Final = {"flow_runs": {"state": {"type": {"any_": ["PENDING", "RUNNING"]}}}}
"""The flow runs that take a slot of their pool and queue."""

NOT_SHOWN: Final = ("last_status_event_id", "last_transitioned_status_at")
"""Fields of pools that Prefect's API does not show."""


def pool_shown(call: Call, pool: Record) -> dict[str, Any]:
    """A pool. active_slots: null where it has no limit."""
    shown = {name: value for name, value in pool.shown().items() if name not in NOT_SHOWN}
    return _with_slots(call, "work_pools", shown)


def queue_shown(call: Call, queue: Record, pool: str | None) -> dict[str, Any]:
    """A queue with the name of its pool and its last poll. active_slots: null where it has no limit."""
    shown = {**_with_slots(call, "work_pool_queues", queue.shown()), "work_pool_name": pool}
    lease = call.services.work_pools.leases.get(LeaseKind.WORK_QUEUE, queue.id)
    return shown if lease is None else {**shown, "last_polled": time_text(lease.renewed_at)}


def _with_slots(call: Call, kind: str, found: dict[str, Any]) -> dict[str, Any]:
    slots = None
    if found["concurrency_limit"] is not None:
        slots = _count(call, kind, found["id"])
    return {**found, "active_slots": slots}


class SlotQuestion(Body):
    """A page of who takes slots. flow_run_limit: flow runs of each queue, at most."""

    page: PageNumber = 1
    limit: Limit = None
    flow_run_limit: Annotated[int, Meta(ge=0, le=MOST)] = 10

    @property
    def many(self) -> int:
        """Rows of the page, at most."""
        return MOST if self.limit is None else self.limit


def slots_of_pool(call: Call, pool: Record, asked: SlotQuestion) -> dict[str, Any]:
    """How many flow runs of a pool take slots, and which, by queue; a page of its queues."""
    queues = call.services.records.below("work_queue", pool.id)
    start = (asked.page - 1) * asked.many
    shown = [_queue_slots(call, one, 0, asked.flow_run_limit) for one in queues[start : start + asked.many]]
    return {
        "active_slots": _count(call, "work_pools", pool.id), "concurrency_limit": pool["concurrency_limit"],
        "queues": shown, **_page(asked, len(queues)),
    }  # fmt: skip


def slots_of_queue(call: Call, queue: Record, asked: SlotQuestion) -> dict[str, Any]:
    """How many flow runs of a queue take slots, and a page of them."""
    found = _queue_slots(call, queue, (asked.page - 1) * asked.many, asked.many)
    names = ("active_slots", "concurrency_limit", "flow_runs")
    return {**{name: found[name] for name in names}, **_page(asked, found["active_slots"])}


def _queue_slots(call: Call, queue: Record, offset: int, limit: int) -> dict[str, Any]:
    many = _count(call, "work_pool_queues", queue.id)
    wanted = {**TAKEN, "work_pool_queues": {"id": {"any_": [queue.id]}}}
    runs = flow_runs(call.services.ledger, wanted, "START_TIME_ASC", offset, limit)
    return {
        "queue_id": queue.id, "queue_name": queue["name"], "active_slots": many, "flow_run_count": many,
        "concurrency_limit": queue["concurrency_limit"], "flow_runs": [_run_shown(run) for run in runs],
    }  # fmt: skip


def _run_shown(run: FlowRun) -> dict[str, Any]:
    """A flow run that takes a slot; time_in_current_state in seconds."""
    since = run.state_timestamp
    names = ("id", "name", "state_type", "state_name", "start_time")
    found = flow_run_shown(run)
    waited = None if since is None else max(0.0, (datetime.now(UTC) - since).total_seconds())
    times = {"state_timestamp": since, "time_in_current_state": waited}
    return {**{name: found[name] for name in names}, **times}


def _count(call: Call, kind: str, id: str) -> int:
    call.services.settle()
    return count_flow_runs(call.services.ledger, {**TAKEN, kind: {"id": {"any_": [id]}}})


def _page(asked: SlotQuestion, many: int) -> dict[str, int]:
    pages = -(-many // asked.many) if asked.many else 0
    return {"count": many, "limit": asked.many, "pages": pages, "page": asked.page}
