"""Routes of flows."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from .bodies import Body, Given, given
from .calls import Call, Reply, Routes
from .lists import Question, counted, counting, deleted, listed, paginated, reading
from .stubs import record_or_stub, shown

ROUTES = Routes("/flows")
FLOWS, COUNT = reading("flows"), counting("flows")
Labels = dict[str, Any] | None


class NewFlow(Body):
    """A flow: its name is unique."""

    name: str
    tags: Given[list[str]] = UNSET
    labels: Given[Labels] = UNSET


class FlowChange(Body):
    """What changes of a flow."""

    tags: Given[list[str]] = UNSET
    labels: Given[Labels] = UNSET


@ROUTES.post("/")
def create(call: Call, body: NewFlow) -> Reply:
    """The flow of this name, created if there is none; one that is there stays as it is."""
    flow, created = call.services.records.upsert("flow", given(body), keep=True)
    return Reply(flow.shown(), 201 if created else 200)


@ROUTES.get("/{id:uuid}")
def get(call: Call, id: str) -> Any:
    """One flow; `stubs` says what happens if it is not there."""
    return record_or_stub(call, "flow", id)


@ROUTES.look("/filter")
def filter(call: Call, body: Question) -> Any:
    """Flows by filters."""
    return listed(call, body, FLOWS, shown)


@ROUTES.look("/count")
def count(call: Call, body: Question) -> int:
    """How many flows there are."""
    return counted(call, body, COUNT)


@ROUTES.look("/paginate")
def paginate(call: Call, body: Question) -> Any:
    """A page of flows."""
    return paginated(call, body, FLOWS, COUNT, shown)


@ROUTES.get("/name/{name}")
def named(call: Call, name: str) -> Any:
    """The flow of this name."""
    return call.services.records.named("flow", name).shown()


@ROUTES.patch("/{id:uuid}")
def change(call: Call, id: str, body: FlowChange) -> None:
    """Change tags or labels."""
    call.services.records.change("flow", id, given(body))


@ROUTES.delete("/{id:uuid}")
def delete(call: Call, id: str) -> None:
    """Delete a flow with its deployments and their runs that have not begun; other runs stay."""
    call.services.deployments.delete_flow(id)


@ROUTES.post("/bulk_delete")
def bulk_delete(call: Call, body: Question) -> Any:
    """Delete all flows that the filter means, at most 50."""
    return deleted(call, body, FLOWS, call.services.deployments.delete_flow)
