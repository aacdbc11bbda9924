"""What the routes of machines take and answer."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class MachineListed(BaseModel):
    """A machine, and how many objects and moves it has. definition: the number of the last one."""

    machine: str
    definition: int
    defined_at: datetime | None
    initial_state: str | None
    states: list[str]
    objects: int
    moves: int
    last_move: datetime | None


class Way(BaseModel):
    """A declared transition."""

    from_: str = Field(alias="from")
    to: str


class MachineShown(MachineListed):
    """A machine with its transitions. dropped: states that only earlier definitions have."""

    transitions: list[Way]
    dropped: list[str]


class ObjectListed(BaseModel):
    """An object in a state: since when, and the version and position of the move into it."""

    key: list[str]
    state: str
    since: datetime
    version: int
    position: int


class ObjectShown(BaseModel):
    """An object of a machine now. allowed: where the table lets it go; a guard may still refuse."""

    machine: str
    key: list[str]
    state: str | None
    version: int
    allowed: list[str]


class NewMove(BaseModel):
    """A move to record. metadata: stored with it, as its model wants it."""

    to: str
    metadata: dict[str, Any] = {}
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"example": {"to": "submitted", "metadata": {"submission_id": "SB1"}}},
    )


class Moved(BaseModel):
    """A move that was recorded. version: the object's after it."""

    machine: str
    key: list[str]
    from_state: str | None
    to_state: str
    version: int
    recorded_at: datetime
    metadata: dict[str, Any]
