"""Routes of streams: the list, the state and the history of each, and who was in which status at a moment."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ledger import Ledger, split_name
from projections.audit import Moment, Question, as_of, states
from projections.audit.moments import parse_time
from projections.audit.snapshot import Snapshot, snapshot_at, snapshot_now

from ..cli.moments import as_of_json
from ..cli.output import event_json, plain
from .access import READER, Log
from .answers import JSON, answer, page, raw_page, told
from .conditions import IfNoneMatch, is_unchanged
from .log import Limit, Prefix
from .models import EventShown, StateListed, StreamListed, StreamShown
from .problems import Refusal
from .reading import PlannedRoute

ROUTES = APIRouter(route_class=PlannedRoute, tags=["streams"], dependencies=[READER])
At = Annotated[
    str | None, Query(description="As of a time, such as 2026-03-01T14:00+01:00 or now-2h.", max_length=100)
]
Position = Annotated[int | None, Query(ge=0, lt=2**62, description="As of a position of the log.")]
Version = Annotated[int | None, Query(ge=1, lt=2**62, description="As of a version of the stream.")]
AfterVersion = Annotated[int, Query(ge=0, lt=2**62, description="Only after this version.")]
AfterName = Annotated[str, Query(description="Only names after this one, for the next page.")]


@ROUTES.get("/streams", **told(list[StreamListed]))
def streams(
    request: Request, log: Log, prefix: Prefix = "", after: AfterName = "", limit: Limit = 100
) -> Response:
    """The streams by name, with the last version and status of each."""
    found = log.streams(prefix, after=after, limit=limit)
    rows = [plain(one) for one in found]
    return page(request, rows, limit, {"after": found[-1].stream} if found else None)


@ROUTES.get("/streams/{stream:path}", **told(StreamShown, headers=["ETag"]))
def stream(
    log: Log,
    stream: str,
    version: Version = None,
    at: At = None,
    position: Position = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """The state of a stream: now, or as of a version, a position or a time. Its ETag is its version."""
    moment = moment_of(at, position, version)
    found = snapshot_now(log, stream) if moment == Moment() else _then(log, stream, moment)
    if is_unchanged(if_none_match, found.last.version):
        return Response(status_code=304, headers={"ETag": f'"{found.last.version}"'})
    return Response(_shown(found), headers={"ETag": f'"{found.last.version}"'}, media_type=JSON)


@ROUTES.get("/history/{stream:path}", **told(list[EventShown], about="Events by version."))
def history(
    request: Request,
    log: Log,
    stream: str,
    after: AfterVersion = 0,
    at: At = None,
    position: Position = None,
    limit: Limit = 100,
) -> Response:
    """The events of a stream by version: all, or those up to a position or a time."""
    upto = None
    if (moment := moment_of(at, position)) != Moment():
        upto = as_of(log, moment, stream=stream).version or 0
    found = log.read(stream, after=after, upto=upto, limit=limit)
    next_ = {"after": found[-1].version} if found else None
    return raw_page(request, [event_json(one) for one in found], limit, next_)


@ROUTES.get("/states", **told(list[StateListed], headers=["As-Of"]))
def in_status(
    log: Log,
    category: str | None = None,
    status: str | None = None,
    at: At = None,
    position: Position = None,
    limit: Limit = 100,
) -> Response:
    """Which streams were in which status at a moment, read from the events; As-Of names the position."""
    found, rows = states(log, Question(moment_of(at, position), category), status=status, limit=limit)
    reply = answer([plain(row) for row in rows])
    reply.headers["As-Of"] = str(found.position)
    return reply


def moment_of(at: str | None = None, position: int | None = None, version: int | None = None) -> Moment:
    """The moment that the parameters mean. Raises BadInput."""
    return Moment(version, position, None if at is None else parse_time(at))


def _then(log: Ledger, stream: str, moment: Moment) -> Snapshot:
    found = as_of(log, moment, stream=stream)
    if found.beyond and moment.version is not None:
        detail = f"{stream} has no version {moment.version}; its last version is {found.version}"
        raise Refusal(404, "NotThere", detail)
    snapshot = snapshot_at(log, stream, found)
    if snapshot is None:
        raise Refusal(404, "NotThere", f"{stream} has no event as of position {found.position}")
    return snapshot


def _shown(found: Snapshot) -> bytes:
    """The JSON of a stream; its last event exactly as it is stored."""
    category, key = split_name(found.last.stream)
    start: dict[str, Any] = {
        "stream": found.last.stream, "category": category, "key": list(key), "version": found.last.version,
        "status": found.status, "state": None if found.opened is None else plain(found.opened.state),
        "as_of": None if found.found is None else as_of_json(found.found),
    }  # fmt: skip
    text = json.dumps(start, ensure_ascii=False)[:-1]
    return f'{text}, "last_event": {event_json(found.last)}}}'.encode()
