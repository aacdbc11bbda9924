"""Routes of views: their condition, their rows, and the progress of sets."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from projections import ProgressChanges
from projections.engine.rows import rows as rows_of
from projections.engine.watch import watch
from projections.feeds import ProgressChange

from ..cli.output import plain
from .access import READER, Log
from .answers import page, raw_page, told
from .log import After, Limit
from .models import ViewShown
from .problems import Refusal
from .reading import PlannedRoute

ROUTES = APIRouter(route_class=PlannedRoute, tags=["views"], dependencies=[READER])
Where = Annotated[
    list[str],
    Query(description="COLUMN=VALUE: only rows with this value.", max_length=20, examples=["status=failed"]),
]


@ROUTES.get("/views", **told(list[ViewShown]))
def views(request: Request, log: Log) -> Response:
    """The condition of each view: how far it is, and whether anybody follows it."""
    found = [plain(one) for one in watch(log)]
    return page(request, found, len(found) + 1)


@ROUTES.get("/views/{view}/rows", **told(list[dict[str, Any]], about="Rows by position."))
def rows(
    request: Request,
    log: Log,
    view: str,
    table: str | None = None,
    where: Where = [],  # noqa: B006  # FastAPI copies it
    after: After = 0,
    limit: Limit = 100,
) -> Response:
    """The rows of a view after a position, such as who is in which state; as fresh as the view.

    Rows of one position are never split between pages, so a page may be larger than its limit.
    """
    found = rows_of(log, view, table, where=dict(map(_pair, where)), after=after, limit=limit)
    next_ = {"after": found[-1].position} if found else None
    return raw_page(request, [one.text for one in found], limit, next_)


@ROUTES.get("/progress", **told(list[ProgressChange]))
def progress(
    request: Request, log: Log, category: str | None = None, after: After = 0, limit: Limit = 100
) -> Response:
    """The progress of sets by the position of their last change. category: that of the units."""
    found = ProgressChanges(log, category=category, after=after, batch=limit).poll()
    next_ = {"after": found[-1].position} if found else None
    return page(request, [plain(one) for one in found], limit, next_)


def _pair(text: str) -> tuple[str, str]:
    column, sign, value = text.partition("=")
    if not (column and sign):
        raise Refusal(422, "InvalidRequest", f"where {text!a} must be COLUMN=VALUE")
    return column, value
