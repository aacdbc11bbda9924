"""Work pools and queues as JSON: with the number of flow runs that count against their limits."""

from __future__ import annotations

from typing import Any, Final

from ledger.runs.records import Record
from projections.runs import count_flow_runs

from .calls import Call

TAKEN: Final = {"flow_runs": {"state": {"type": {"any_": ["PENDING", "RUNNING"]}}}}
"""The flow runs that take a slot of their pool and queue."""


def pool_shown(call: Call, pool: Record) -> dict[str, Any]:
    """A pool. active_slots: null where it has no limit."""
    return _with_slots(call, "work_pools", pool.shown())


def queue_shown(call: Call, queue: Record, pool: str | None) -> dict[str, Any]:
    """A queue with the name of its pool. active_slots: null where it has no limit."""
    return {**_with_slots(call, "work_pool_queues", queue.shown()), "work_pool_name": pool}


def _with_slots(call: Call, kind: str, found: dict[str, Any]) -> dict[str, Any]:
    slots = None
    if found["concurrency_limit"] is not None:
        call.services.settle()
        slots = count_flow_runs(call.services.ledger, {**TAKEN, kind: {"id": {"any_": [found["id"]]}}})
    return {**found, "active_slots": slots}
