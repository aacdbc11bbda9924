"""Operations that workers of `tests.jobs.operations` do not know; those of there are unknown here."""

from __future__ import annotations

from typing import Any

from consumers.jobs import OperationContext, OperationResult, Registry

registry = Registry()


@registry.operation("greet")
def greet(session: OperationContext, payload: Any, *, emit: Any) -> OperationResult:
    """Greet."""
    return OperationResult({"said": "hello"})


@registry.operation("split.for.others")
def split(session: OperationContext, payload: Any, *, emit: Any) -> OperationResult:
    """Hand out batches of which each step is known to the other workers only, or to these only."""
    batches = [("default", {"operation": "greet.then.ping"}) for _ in range(payload["batches"])]
    return OperationResult(deferred=True, publish_operations=batches)


@registry.operation("greet.then.ping")
def greet_then_ping(session: OperationContext, payload: Any, *, emit: Any) -> OperationResult:
    """A first step; its second one is known to other workers only."""
    return OperationResult(publish_operations=[("default", {"operation": "ping"})])
