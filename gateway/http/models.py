"""What the routes of the log, streams and views answer, for OpenAPI; routes make the answers themselves."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

TIME = "2026-03-01T13:00:00.000000+00:00"


class Health(BaseModel):
    """Whether the server can be used. position: the end of the log."""

    status: str
    position: int | None = None


class EventShown(BaseModel):
    """An event of the log. data: its body; raw: the bytes of another application in hexadecimal."""

    position: int
    stream: str
    version: int
    topic: str
    schema_: int = Field(alias="schema")
    recorded_at: datetime
    actor: str | None
    data: Any
    raw: str | None
    meta: dict[str, Any]
    model_config = {
        "json_schema_extra": {
            "example": {
                "position": 7, "stream": "payment/PM1", "version": 2, "topic": "payment.moved", "schema": 1,
                "recorded_at": TIME, "actor": "night shift", "data": {"to_state": "submitted"}, "raw": None,
                "meta": {"actor": "night shift"},
            },
        }
    }  # fmt: skip


class StreamListed(BaseModel):
    """A stream: its last version, and its last event."""

    stream: str
    version: int
    status: str | None
    position: int
    recorded_at: datetime


class StreamShown(BaseModel):
    """A stream at a moment. state: null if no imported domain folds it. as_of: null for now."""

    stream: str
    category: str
    key: list[str | int]
    version: int
    status: str | None
    state: dict[str, Any] | None
    last_event: dict[str, Any]
    as_of: dict[str, Any] | None


class StateListed(BaseModel):
    """A stream in a status: since when, and the event that led there."""

    stream: str
    status: str
    since: datetime
    version: int
    position: int


class ViewShown(BaseModel):
    """The condition of a view."""

    view: str
    copy_: int | None = Field(alias="copy")
    position: int | None
    events: int | None
    lag_events: int | None
    lag_seconds: float | None
    rate: float | None
    parked: int
    state: str
    building: list[int]
    followers: int
    updated_at: datetime | None
    error: str | None
