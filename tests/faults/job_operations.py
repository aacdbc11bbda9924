"""Operations that are run while everything is killed; and every append with a command id is sent twice."""

from __future__ import annotations

import os
import random
import signal
from typing import Any

from consumers.jobs import OperationContext, OperationResult, Registry, RetryLaterError
from ledger import Ledger
from ledger.log.append import Append, Appended

registry = Registry()
_append_all = Ledger.append_all


def _twice(self: Ledger, appends: list[Append], *, command: str | None = None, **meta: Any) -> Appended:
    """Whatever has a command id is sent again, as after a lost answer."""
    appended = _append_all(self, appends, command=command, **meta)
    if self.meta(command=command).command is not None:
        again = _append_all(self, appends, command=command, **meta)
        assert again.repeated
        assert again.first_position == appended.first_position
    return appended


Ledger.append_all = _twice  # type: ignore[method-assign]


def unlucky(chance: float) -> bool:
    """Whether it happens this time."""
    return random.random() < chance


def hurt(chance: float = 0.01) -> None:
    """Something goes wrong, now and then: an error, an exit, a signal."""
    if unlucky(chance):
        random.choice([_raise, lambda: os._exit(3), lambda: os.kill(os.getpid(), signal.SIGKILL)])()


def _raise() -> None:
    raise ArithmeticError("bad luck")


@registry.operation("small")
def small(session: OperationContext, payload: Any, *, emit: Any) -> OperationResult:
    """Say something, and end."""
    emit("small.said", fields={"_progress_current": 1, "_progress_total": 1})
    hurt()
    if session.attempt == 1 and unlucky(0.1):
        raise RetryLaterError("not now", delay_seconds=0.01)
    return OperationResult({"n": payload["n"]})


@registry.operation("spread")
def spread(session: OperationContext, payload: Any, *, emit: Any) -> OperationResult:
    """Hand out batches, and some child jobs."""
    hurt()
    for n in range(payload["children"]):
        session.submit("small", {"n": n}, max_attempts=5, max_requeues=50)
    further = {"max_attempts": 4, "max_requeues": 50}
    batches = [
        ("default", {"operation": "part", "payload": {"n": n, "bad": payload["bad"]}, **further})
        for n in range(payload["batches"])
    ]
    return OperationResult(deferred=True, publish_operations=batches, failure_ratio=payload["ratio"])


@registry.operation("part")
def part(session: OperationContext, payload: Any, *, emit: Any) -> OperationResult:
    """Compute; what it comes to is stored by the next step."""
    hurt()
    if unlucky(payload["bad"]):
        raise ArithmeticError("cannot be computed")
    return OperationResult(publish_operations=[("default", {"operation": "store", "payload": payload})])


@registry.operation("store")
def store(session: OperationContext, payload: Any, *, emit: Any) -> None:
    """Store a row, in one transaction with the end of the batch."""
    with session.transaction() as writing:
        row = [session.job_id, session.batch, session.task.token]
        writing.execute("INSERT INTO stored (job, nr, token) VALUES (%s, %s, %s)", row)
        hurt()
    hurt()
