"""Routes of artifacts, and of the latest one of each key."""

from __future__ import annotations

from typing import Any

from .calls import Call
from .lists import Question, counted, counting, listed, reading
from .record_routes import RecordRoutes
from .stubs import shown

ROUTES = RecordRoutes("/artifacts", "artifact", "artifacts")
ROUTES.declare_lists()
LATEST, COUNT_LATEST = reading("artifact_collections"), counting("artifact_collections")


@ROUTES.post("/", status=201, body=ROUTES.fields)
def create(call: Call, body: dict[str, Any]) -> Any:
    """A new artifact; it becomes the latest one of its key."""
    return call.services.artifacts.create(body).shown()


@ROUTES.look("/latest/filter")
def filter_latest(call: Call, body: Question) -> Any:
    """The latest artifact of each key, by filters."""
    return listed(call, _of_latest(body), LATEST, shown)


@ROUTES.look("/latest/count")
def count_latest(call: Call, body: Question) -> int:
    """How many keys have artifacts."""
    return counted(call, _of_latest(body), COUNT_LATEST)


@ROUTES.get("/{id:uuid}")
def get(call: Call, id: str) -> Any:
    """One artifact."""
    return call.services.records.get("artifact", id).shown()


@ROUTES.get("/{key:path}/latest")
def latest(call: Call, key: str) -> Any:
    """The latest artifact of a key."""
    newest = call.services.artifacts.latest(key)
    return call.services.records.get("artifact", newest["latest_id"]).shown()


@ROUTES.patch("/{id:uuid}", body=ROUTES.fields)
def change(call: Call, id: str, body: dict[str, Any]) -> None:
    """Change the data or description of an artifact."""
    call.services.artifacts.change(id, body)


@ROUTES.delete("/{id:uuid}")
def delete(call: Call, id: str) -> None:
    """Delete an artifact; the one before becomes the latest of its key."""
    call.services.artifacts.delete(id)


def _of_latest(asked: Question) -> Question:
    """Prefect's clients call the filter of collections `artifacts`, too."""
    asked.artifact_collections, asked.artifacts = asked.artifacts, None
    return asked
