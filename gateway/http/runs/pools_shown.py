"""Work pools and queues as JSON: with what their runs occupy, and when somebody polled them last."""

from __future__ import annotations

from typing import Any, Final

from ledger.runs.leases import LeaseKind
from ledger.runs.records import Record
from projections.runs import count_flow_runs

from .calls import Call

OCCUPYING: Final = {"state": {"type": {"any_": ["PENDING", "RUNNING"]}}}
"""The flow runs that hold a slot of their pool and queue."""
NOT_SHOWN: Final = ("last_status_event_id", "last_transitioned_status_at")


def pool_shown(call: Call, pool: Record) -> dict[str, Any]:
    """A pool; active_slots: how many runs it has at work, None without a limit."""
    shown = {name: value for name, value in pool.shown().items() if name not in NOT_SHOWN}
    return {**shown, "active_slots": _slots(call, pool, "work_pools")}


def queue_shown(call: Call, queue: Record, pool: str | None) -> dict[str, Any]:
    """A queue with the name of its pool; active_slots as of a pool."""
    shown = {**queue.shown(), "work_pool_name": pool, "active_slots": _slots(call, queue, "work_pool_queues")}
    lease = call.services.work_pools.leases.get(LeaseKind.WORK_QUEUE, queue.id)
    return shown if lease is None else {**shown, "last_polled": lease.renewed_at}


def _slots(call: Call, record: Record, kind: str) -> int | None:
    if record["concurrency_limit"] is None:
        return None
    call.services.settle()
    wanted = {kind: {"id": {"any_": [record.id]}}, "flow_runs": OCCUPYING}
    return count_flow_runs(call.services.ledger, wanted)
