"""Operations that record something, in every way in which an operation can."""

from __future__ import annotations

from typing import Any

from consumers.jobs import OperationContext, OperationResult, Registry
from tests.lamp import LampMade

registry = Registry()


@registry.operation("split")
def split(session: OperationContext, payload: Any, *, emit: Any) -> OperationResult:
    """Record a fact of a domain, say something, and hand out a batch."""
    session.ledger.append(f"lamp/{session.job_id}", LampMade())
    emit("split.began")
    session.submit("alone")
    message = {"operation": "part", "payload": {}}
    return OperationResult(deferred=True, publish_operations=[("default", message)])


@registry.operation("part")
def part(session: OperationContext, payload: Any, *, emit: Any) -> None:
    """End in a transaction, together with a fact of a domain."""
    session.ledger.append(f"lamp/part-of-{session.job_id}", LampMade())
    with session.transaction() as writing:
        writing.result["done"] = True


@registry.operation("alone")
def alone(session: OperationContext, payload: Any, *, emit: Any) -> None:
    """Nothing, as a child of its own."""
