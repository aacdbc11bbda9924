"""Work: the jobs and batches that may be claimed, in the order in which workers take them."""

from __future__ import annotations

from typing import Final

from .sql import view as parts
from .views.view import View

_SQL = parts("work")
_BOTH: Final = (
    "started", "failed", "attempt_failed", "retry_later", "released", "lease_expired_requeue",
    "lease_expired", "queue_stall_requeue", "redriven", "cancelled", "discarded",
)  # fmt: skip


class WorkView(View):
    """What may be claimed: table `work`, function `take_work`, which gives a worker leases on some of it.

    A row nominates only: whether a piece is still waiting, its head says, and the claim is an append.
    """

    name = "work"
    topics = (
        "job.created", "job.succeeded", "batch.queued", "batch.computed", "batch.completed",
        *(f"{kind}.{word}" for kind in ("job", "batch") for word in _BOTH),
        "queue.paused", "queue.resumed", "operation.limited",
    )  # fmt: skip
    tables = _SQL["tables"]
    indexes = _SQL["indexes"]
    statements = (
        _SQL["apply_births"],
        _SQL["apply_steps"],
        _SQL["apply_moves"],
        _SQL["apply_ends"],
        _SQL["apply_rules"],
    )
    forget = (_SQL["forget"], _SQL["forget_rules"])
    reads = _SQL["reads"]
