"""Routes of the logs that runs send."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from msgspec.structs import asdict

from .bodies import Body
from .calls import Call, Routes
from .lists import MOST, Filter, Limit, Offset

ROUTES = Routes("/logs")


class NewLog(Body):
    """A line of a log. level: as Python's logging has it."""

    name: str
    level: int
    message: str
    timestamp: datetime
    flow_run_id: str | None = None
    task_run_id: str | None = None


class LogQuestion(Body):
    """Which lines are meant."""

    logs: Filter = None
    sort: Literal["TIMESTAMP_ASC", "TIMESTAMP_DESC"] = "TIMESTAMP_ASC"
    limit: Limit = None
    offset: Offset = 0


@ROUTES.post("/", status=201)
def write(call: Call, body: list[NewLog]) -> None:
    """Keep lines; they are no events of the ledger, and are pruned after a time."""
    call.services.logs.write(map(asdict, body))


@ROUTES.look("/filter")
def filter(call: Call, body: LogQuestion) -> Any:
    """Lines by filters."""
    limit = MOST if body.limit is None else body.limit
    newest_first = body.sort == "TIMESTAMP_DESC"
    logs = call.services.logs
    return logs.read(body.logs, newest_first=newest_first, offset=body.offset, limit=limit)
