"""Routes of automations. They are kept and listed; nothing evaluates their triggers."""

from __future__ import annotations

from typing import Annotated, Any

from ledger.runs.records import Record

from .bodies import FieldsOf
from .calls import Call, Routes
from .lists import MOST, Question, counted, counting, listed, reading
from .stubs import shown

ROUTES = Routes("/automations")
Fields = Annotated[dict[str, Any], FieldsOf("automation")]
AUTOMATIONS, COUNT = reading("automations"), counting("automations")


@ROUTES.post("/", status=201)
def create(call: Call, body: Fields) -> Any:
    """A new automation. owner_resource: what it belongs to, such as a deployment."""
    return call.services.records.create("automation", body).shown()


@ROUTES.look("/filter")
def filter(call: Call, body: Question) -> Any:
    """Automations by filters."""
    return listed(call, body, AUTOMATIONS, shown)


@ROUTES.look("/count")
def count(call: Call, body: Question) -> int:
    """How many automations there are."""
    return counted(call, body, COUNT)


@ROUTES.get("/{id:uuid}")
def get(call: Call, id: str) -> Any:
    """One automation."""
    return call.services.records.get("automation", id).shown()


@ROUTES.put("/{id:uuid}", status=204)
@ROUTES.patch("/{id:uuid}")
def change(call: Call, id: str, body: Fields) -> None:
    """Change an automation, such as whether it is enabled."""
    call.services.records.change("automation", id, body)


@ROUTES.delete("/{id:uuid}")
def delete(call: Call, id: str) -> None:
    """Delete an automation."""
    call.services.records.delete("automation", id)


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
            delete(call, one.id)


def _all(call: Call) -> list[Record]:
    """All automations; there are few."""
    found, page = list[Record](), Question(limit=MOST)
    while len(rows := listed(call, page, AUTOMATIONS, lambda one: one)) == MOST:
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
