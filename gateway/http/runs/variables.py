"""Routes of variables, by id and by name."""

from __future__ import annotations

from typing import Annotated, Any

from .bodies import FieldsOf
from .calls import Call, Routes
from .lists import Question, counted, counting, listed, reading
from .stubs import shown

ROUTES = Routes("/variables")
Fields = Annotated[dict[str, Any], FieldsOf("variable")]
VARIABLES, COUNT = reading("variables"), counting("variables")


@ROUTES.post("/", status=201)
def create(call: Call, body: Fields) -> Any:
    """A new variable; 409 if there is one of this name."""
    return call.services.records.create("variable", body).shown()


@ROUTES.look("/filter")
def filter(call: Call, body: Question) -> Any:
    """Variables by filters."""
    return listed(call, body, VARIABLES, shown)


@ROUTES.look("/count")
def count(call: Call, body: Question) -> int:
    """How many variables there are."""
    return counted(call, body, COUNT)


@ROUTES.get("/name/{name:path}")
def named(call: Call, name: str) -> Any:
    """The variable of this name."""
    return call.services.records.named("variable", name).shown()


@ROUTES.get("/{id:uuid}")
def get(call: Call, id: str) -> Any:
    """One variable."""
    return call.services.records.get("variable", id).shown()


@ROUTES.patch("/name/{name:path}")
def change_named(call: Call, name: str, body: Fields) -> None:
    """Change the variable of this name."""
    change(call, call.services.records.named("variable", name).id, body)


@ROUTES.patch("/{id:uuid}")
def change(call: Call, id: str, body: Fields) -> None:
    """Change a variable."""
    call.services.records.change("variable", id, body)


@ROUTES.delete("/name/{name:path}")
def delete_named(call: Call, name: str) -> None:
    """Delete the variable of this name."""
    delete(call, call.services.records.named("variable", name).id)


@ROUTES.delete("/{id:uuid}")
def delete(call: Call, id: str) -> None:
    """Delete a variable."""
    call.services.records.delete("variable", id)
