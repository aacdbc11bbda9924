"""Work pools and queues as JSON: with the number of flow runs that count against their limits."""

from __future__ import annotations

from typing import Any, Final

from ledger.runs.json_values import time_text
from ledger.runs.leases import LeaseKind
from ledger.runs.records import Record
from projections.runs import count_flow_runs

from .calls import Call

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
        call.services.settle()
        slots = count_flow_runs(call.services.ledger, {**TAKEN, kind: {"id": {"any_": [found["id"]]}}})
    return {**found, "active_slots": slots}
