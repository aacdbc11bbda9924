"""Routes of saved searches, and of what Prefect's pages and command line read from collections."""

from __future__ import annotations

from typing import Annotated, Any

from ..problems import Refusal
from .bodies import FieldsOf
from .calls import Call, Reply, Routes
from .lists import Question, listed, reading
from .stubs import shown

ROUTES = Routes("")
Fields = Annotated[dict[str, Any], FieldsOf("saved_search")]


@ROUTES.put("/saved_searches/")
def put(call: Call, body: Fields) -> Reply:
    """The saved search of this name, created or replaced."""
    search, created = call.services.records.upsert("saved_search", body)
    return Reply(search.shown(), 201 if created else 200)


@ROUTES.get("/saved_searches/{id:uuid}")
def get(call: Call, id: str) -> Any:
    """One saved search."""
    return call.services.records.get("saved_search", id).shown()


@ROUTES.look("/saved_searches/filter")
def filter(call: Call, body: Question) -> Any:
    """Saved searches by name."""
    return listed(call, body, reading("saved_searches"), shown)


@ROUTES.delete("/saved_searches/{id:uuid}")
def delete(call: Call, id: str) -> None:
    """Delete a saved search."""
    call.services.records.delete("saved_search", id)


@ROUTES.get("/collections/views/{view}")
def collection(call: Call, view: str) -> None:
    """404: what Prefect publishes of its integrations is not here; clients go on with what they bring."""
    raise Refusal(404, "NotThere", f"View {view} not found in registry")
