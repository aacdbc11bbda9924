"""Routes of flows."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from .bodies import Body, Given, given
from .calls import Call, Reply
from .lists import Question, deleted, paginated
from .record_routes import RecordRoutes
from .stubs import record_or_stub, shown

ROUTES = RecordRoutes("/flows", "flow", "flows")
ROUTES.declare_lists()
Labels = dict[str, Any] | None


class FlowChange(Body):
    """What changes of a flow."""

    tags: Given[list[str]] = UNSET
    labels: Given[Labels] = UNSET


class NewFlow(FlowChange, kw_only=True):
    """A flow: its name is unique."""

    name: str


@ROUTES.post("/")
def create(call: Call, body: NewFlow) -> Reply:
    """The flow of this name, created if there is none; one that is there stays as it is."""
    flow, created = call.services.records.upsert("flow", given(body), keep=True)
    return Reply(flow.shown(), 201 if created else 200)


@ROUTES.get("/{id:uuid}")
def get(call: Call, id: str) -> Any:
    """One flow; `stubs` says what happens if it is not there."""
    return record_or_stub(call, "flow", id)


@ROUTES.look("/paginate")
def paginate(call: Call, body: Question) -> Any:
    """A page of flows."""
    return paginated(call, body, ROUTES.rows, ROUTES.number, shown)


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
    return deleted(call, body, ROUTES.rows, call.services.deployments.delete_flow)
