"""Routes of the logs that runs send."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import datetime
from io import StringIO
from typing import Any, Final, Literal
from urllib.parse import quote

from msgspec.structs import asdict
from starlette.responses import Response, StreamingResponse

from ledger.runs.run_logs import RunLogs

from .bodies import Body
from .calls import Call, Routes
from .lists import MOST, Filter, Limit, Offset

ROUTES = Routes("")
COLUMNS: Final = ("timestamp", "level", "flow_run_id", "task_run_id", "message")
"""The columns of lines as CSV."""
PART: Final = 5000
"""Lines that a download reads at once."""


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


@ROUTES.post("/logs/", status=201)
def write(call: Call, body: list[NewLog]) -> None:
    """Keep lines; they are no events of the ledger, and are pruned after a time."""
    call.services.logs.write(map(asdict, body))


@ROUTES.look("/logs/filter")
def filter(call: Call, body: LogQuestion) -> Any:
    """Lines by filters."""
    limit = MOST if body.limit is None else body.limit
    newest_first = body.sort == "TIMESTAMP_DESC"
    logs = call.services.logs
    return logs.read(body.logs, newest_first=newest_first, offset=body.offset, limit=limit)


@ROUTES.get("/flow_runs/{id:uuid}/logs/download")
def download(call: Call, id: str) -> Response:
    """All lines of a flow run as CSV, the oldest first."""
    name = quote(f"{call.services.flow_runs.get(id).name}-logs.csv", safe="")
    told = f"attachment; filename=\"flow-run-logs.csv\"; filename*=UTF-8''{name}"
    lines = _as_csv(call.services.logs, {"flow_run_id": {"any_": [id]}})
    return StreamingResponse(lines, headers={"Content-Disposition": told}, media_type="text/csv")


def _as_csv(logs: RunLogs, wanted: Filter) -> Iterator[str]:
    """The lines in parts, so that a long log is never in memory as a whole."""
    part, offset = StringIO(), 0
    write = csv.writer(part).writerow
    write(COLUMNS)
    while lines := logs.read(wanted, offset=offset, limit=PART):
        for line in lines:
            write(line[name] for name in COLUMNS)
        yield part.getvalue()
        part.seek(0)
        part.truncate()
        offset += PART
    yield part.getvalue()
