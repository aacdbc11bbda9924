"""Routes of the log: its events in order, and as they come."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response

from ledger import Cursor
from projections import Follower

from ..cli.output import event_json
from .access import READER, Log
from .answers import raw_page, told
from .models import EventShown
from .reading import PlannedRoute
from .server_sent_events import EventStream, News

ROUTES = APIRouter(route_class=PlannedRoute, tags=["log"], dependencies=[READER])
After = Annotated[int, Query(ge=0, lt=2**62, description="Only after this position.")]
Limit = Annotated[int, Query(ge=1, le=1000, description="At most so many.")]
Topics = Annotated[list[str] | None, Query(description="Only these topics.", max_length=100)]
Prefix = Annotated[str, Query(description="Only streams whose names begin so.")]
LastId = Annotated[str | None, Header(alias="Last-Event-ID", description="The id of the last event seen.")]


@ROUTES.get("/log", **told(list[EventShown], about="Events in the order of the log."))
def events(request: Request, log: Log, after: After = 0, limit: Limit = 100) -> Response:
    """The events of all streams, in order, as far as is safe to read: a later page skips nothing.

    The next page is `after` the last position; a full page has a Link to it.
    """
    found = log.log(after, log.bound(), limit)
    return raw_page(
        request, [event_json(one) for one in found], limit, (found and {"after": found[-1].position}) or None
    )


@ROUTES.get("/log/stream", **told(None, about="Events as they come.", content="text/event-stream"))
def stream(
    request: Request,
    log: Log,
    after: After = 0,
    topic: Topics = None,
    prefix: Prefix = "",
    last_event_id: LastId = None,
) -> Response:
    """The log as server-sent events, from `after` on, and then as it grows; each event once, in order.

    The id of each is a cursor: a client that comes again with it as Last-Event-ID, as browsers do by
    themselves, misses nothing and gets nothing twice. A cursor of another ledger, or of a history that a
    restore has taken back, is answered by 410.
    """
    start: int | Cursor = after if last_event_id is None else Cursor.parse(last_event_id)
    news: News = request.app.state.news
    return EventStream(Follower(log, start, topics=topic or None, batch=100), news, prefix)
