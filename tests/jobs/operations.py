"""Operations for tests."""

from __future__ import annotations

import time
from typing import Any

from consumers.jobs import OperationContext, OperationResult, Payload, Registry, RetryLaterError

registry = Registry()


class Number(Payload):
    """A number."""

    n: int


@registry.operation("ping")
def ping(session: OperationContext, payload: Any, *, emit: Any) -> None:
    """Nothing at all."""


@registry.operation("echo", Number)
def echo(session: OperationContext, payload: Number, *, emit: Any) -> OperationResult:
    """Say the number twice."""
    emit("echo.said", fields={"n": payload.n, "_progress_current": 1, "_progress_total": 2})
    return OperationResult({"n": payload.n}, progress_current=2)


@registry.operation("boom")
def boom(session: OperationContext, payload: Any, *, emit: Any) -> None:
    """Fail."""
    raise ArithmeticError("boom")


@registry.operation("busy")
def busy(session: OperationContext, payload: Any, *, emit: Any) -> None:
    """What it needs is busy."""
    raise RetryLaterError("GPU busy", delay_seconds=payload.get("delay", 60))


@registry.operation("slow")
def slow(session: OperationContext, payload: Any, *, emit: Any) -> OperationResult:
    """Say that it began, and wait until it is told to stop."""
    emit("slow.began")
    deadline = time.monotonic() + payload.get("seconds", 60)
    while time.monotonic() < deadline:
        session.check()
        time.sleep(0.01)
    return OperationResult({"slept": True})


@registry.operation("stubborn")
def stubborn(session: OperationContext, payload: Any, *, emit: Any) -> None:
    """Say that it began, and listen to nobody."""
    emit("stubborn.began")
    time.sleep(payload.get("seconds", 60))


@registry.operation("odd")
def odd(session: OperationContext, payload: Any, *, emit: Any) -> OperationResult:
    """Return what no fact can hold."""
    return OperationResult({"odd": float("nan")})
