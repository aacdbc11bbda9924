"""Routes of automations. They are kept and listed; nothing evaluates their triggers."""

from __future__ import annotations

from typing import Any

from ledger.runs.records import Record

from .calls import Call
from .lists import MOST, Question, listed
from .record_routes import RecordRoutes

ROUTES = RecordRoutes("/automations", "automation", "automations")
ROUTES.declare_lists()
ROUTES.declare_records()


@ROUTES.put("/{id:uuid}", status=204, body=ROUTES.fields)
def replace(call: Call, id: str, body: dict[str, Any]) -> None:
    """Change fields of one automation; what is left out stays."""
    call.services.records.change("automation", id, body)


@ROUTES.get("/related-to/{resource:path}")
def related_to(call: Call, resource: str) -> Any:
    """The automations that belong to a resource or whose actions or triggers name it."""
    id = resource.rpartition(".")[2]
    return [one.shown() for one in _all(call) if one["owner_resource"] == resource or _names(one, id)]


@ROUTES.delete("/owned-by/{resource:path}", status=202)
def delete_owned_by(call: Call, resource: str) -> None:
    """Delete the automations that belong to a resource."""
    for one in _all(call):
        if one["owner_resource"] == resource:
            call.services.records.delete("automation", one.id)


def _all(call: Call) -> list[Record]:
    """All automations; there are few."""
    found, page = list[Record](), Question(limit=MOST)
    while len(rows := listed(call, page, ROUTES.rows, lambda one: one)) == MOST:
        found += rows
        page.offset += MOST
    return [*found, *rows]


def _names(automation: Record, id: str) -> bool:
    """Whether a trigger or an action names an object of this id."""
    fields = automation.shown()
    return any(_holds(fields[part], id) for part in ("trigger", "actions", "actions_on_trigger"))


def _holds(value: Any, text: str) -> bool:
    if isinstance(value, dict):
        return any(_holds(one, text) for one in value.values())
    if isinstance(value, list):
        return any(_holds(one, text) for one in value)
    return isinstance(value, str) and value.rpartition(".")[2] == text
