"""Work: the jobs and batches that may be claimed, in the order in which workers take them."""

from __future__ import annotations

from typing import Final

from ..engine.view import View, parts

_SQL = parts(__package__, "work")
_BOTH: Final = (
    "started", "failed", "attempt_failed", "retry_later", "released", "lease_expired_requeue",
    "lease_expired", "queue_stall_requeue", "redriven", "cancelled", "discarded",
)  # fmt: skip


class WorkView(View):
    """What may be claimed: table `work`, function `nominate_work`, which reads what may be claimed now.

    A row only nominates: the head shows whether the work is still waiting, and the claim is an append.
    """

    name = "work"
    topics = (
        "job.created", "job.succeeded", "batch.queued", "batch.computed", "batch.completed",
        *(f"{kind}.{word}" for kind in ("job", "batch") for word in _BOTH),
        "job.reopened", "queue.paused", "queue.resumed", "operation.limited",
    )  # fmt: skip
    tables = _SQL["tables"]
    indexes = _SQL["indexes"]
    statements = (
        _SQL["apply_births"],
        _SQL["apply_returns"],
        _SQL["apply_steps"],
        _SQL["apply_moves"],
        _SQL["apply_ends"],
        _SQL["apply_rules"],
    )
    forget = (_SQL["forget"], _SQL["forget_rules"])
    reads = _SQL["reads"]
