"""Operations for the tests of the command line."""

from __future__ import annotations

import time
from typing import Any

from consumers.jobs import OperationContext, OperationResult, Payload, Registry

registry = Registry()


class Number(Payload):
    """A number."""

    n: int


@registry.operation("double", Number)
def double(session: OperationContext, payload: Number, *, emit: Any) -> OperationResult:
    """Double a number."""
    emit("double.\x1bbegun", "half way", {"_progress_current": 1, "_progress_total": 2})
    return OperationResult({"n": 2 * payload.n, "word": "\x1b[31m"}, progress_current=2)


@registry.operation("boom")
def boom(session: OperationContext, payload: Any, *, emit: Any) -> None:
    """Fail."""
    raise ArithmeticError("it went boom")


@registry.operation("sleep")
def sleep(session: OperationContext, payload: Any, *, emit: Any) -> None:
    """Take long."""
    emit("sleep.begun")
    time.sleep(payload["seconds"])
