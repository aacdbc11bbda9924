"""Routes of events: those that clients send, and those that are derived from the log."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import asdict
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta

from projections.runs.event_counts import Countable, count_events
from projections.runs.event_filters import EventFilter

from ..problems import Refusal
from .bodies import Body
from .calls import Call, Routes
from .lists import Filter
from .logins import actor_of
from .refusals import Unfit

ROUTES = Routes("/events")
PAGE = 50


class EventQuestion(Body):
    """Which events are meant, as Prefect's EventFilter has it."""

    filter: Filter = None
    limit: Annotated[int, Meta(ge=0, le=PAGE)] = PAGE


class EventCountQuestion(Body):
    """Which events are counted. time_interval: units of a span of time."""

    filter: Filter = None
    time_unit: Literal["week", "day", "hour", "minute", "second"] = "day"
    time_interval: Annotated[float, Meta(ge=0.01, le=100_000)] = 1.0


@ROUTES.post("", status=204)
def send(call: Call, body: list[dict[str, Any]]) -> None:
    """Record events; answered when they are committed. 422 names those that are none; others are kept."""
    refused = call.services.intake.record(body, actor_of(call.caller, call.headers))
    for number, error in enumerate(refused):
        if error is not None:
            raise Unfit(str(error), ("body", number))


@ROUTES.look("/filter")
def filter(call: Call, body: EventQuestion) -> Any:
    """The newest events that the filter means; next_page: the address of the next ones."""
    return _page(call, body.filter, body.limit, None)


@ROUTES.get("/filter/next")
def next_page(call: Call) -> Any:
    """The next page of an earlier question."""
    try:
        told = json.loads(urlsafe_b64decode(call.query.get("page-token", "")))
        wanted, limit, start = told["filter"], int(told["limit"]), int(told["start"])
    except (ValueError, KeyError, TypeError) as error:
        raise Refusal(403, "Forbidden", "the page token is not one of this server") from error
    return _page(call, wanted, max(0, min(limit, PAGE)), start)


@ROUTES.look("/count-by/{countable}")
def count_by(call: Call, countable: str, body: EventCountQuestion) -> Any:
    """How many events there are by day, time, event or resource."""
    by = next((one for one in get_args(Countable) if one == countable), None)
    if by is None:
        raise Refusal(422, "InvalidRequest", f"{countable!a} must be one of {', '.join(get_args(Countable))}")
    wanted = EventFilter.of(body.filter or {})
    found = count_events(call.services.events, wanted, by, body.time_unit, body.time_interval)
    return [asdict(one) for one in found]


def _page(call: Call, wanted: Any, limit: int, start: int | None) -> dict[str, Any]:
    read, filter = call.services.events, EventFilter.of(wanted or {})
    page = read.read(filter, limit=limit, start=start)
    token = None
    if page.next is not None:
        told = {"filter": wanted, "limit": limit, "start": page.next}
        token = urlsafe_b64encode(json.dumps(told).encode()).decode()
    address = None if token is None else f"{call.base}/events/filter/next?page-token={token}"
    is_whole = start is None and page.next is None
    total = len(page.events) if is_whole else read.count(filter)
    return {"events": page.events, "total": total, "next_page": address}
