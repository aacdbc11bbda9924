"""Routes of variables, by id and by name."""

from __future__ import annotations

from typing import Any

from .calls import Call
from .record_routes import RecordRoutes

ROUTES = RecordRoutes("/variables", "variable", "variables")
ROUTES.declare_lists()
ROUTES.declare_records()


@ROUTES.get("/name/{name:path}")
def named(call: Call, name: str) -> Any:
    """The variable of this name."""
    return call.services.records.named("variable", name).shown()


@ROUTES.patch("/name/{name:path}", body=ROUTES.fields)
def change_named(call: Call, name: str, body: dict[str, Any]) -> None:
    """Change the variable of this name."""
    records = call.services.records
    records.change("variable", records.named("variable", name).id, body)


@ROUTES.delete("/name/{name:path}")
def delete_named(call: Call, name: str) -> None:
    """Delete the variable of this name."""
    records = call.services.records
    records.delete("variable", records.named("variable", name).id)
