"""The job endpoints of the original, at their paths (spec 2.7): a front end of it works on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ledger import BadInput, acting
from ledger.jobs import Jobs, Status
from ledger.jobs.job import ACTIVE
from projections.jobs import JobQueries, comments
from projections.jobs.queries import checked_status
from projections.jobs.timeline import newest_events

from ..access import READER, Log, Operator
from ..answers import answer, page, place_of, raw_page, told
from ..conditions import Key
from ..problems import Refusal
from ..reading import PlannedRoute
from . import shown
from .models import (
    Cancelled,
    CommentShown,
    Deleted,
    JobEventShown,
    JobShown,
    NewComment,
    NewJob,
    Submitted,
    WholeJob,
)
from .timelines import Line, line

ROUTES = APIRouter(route_class=PlannedRoute, prefix="/jobs", tags=["jobs"])
After = Annotated[
    str | None, Query(description="Only newer than this: a position, or a time with its offset.")
]
Before = Annotated[
    int | None, Query(ge=1, lt=2**62, description="Only older than this position, for the next page.")
]
Of = Annotated[int, Query(ge=1, le=500, description="At most so many.")]
OfEvents = Annotated[int, Query(ge=1, le=2000, description="At most so many.")]


@ROUTES.post("", **told(Submitted))
def submit(log: Log, caller: Operator, new: NewJob, key: Key = None) -> Response:
    """Submit a job, unless one with the same operation and payload is queued or running: 409 (S1-71)."""
    fields: dict[str, Any] = {"meta": new.meta, "description": new.description, "tags": tuple(new.tags)}
    with acting(actor=caller.name):
        id = Jobs(log).submit(
            new.operation, new.payload, queue=new.queue_name, unique=True, command=key, **fields
        )
    return answer({"id": id, "status": Status.QUEUED})


@ROUTES.get("", dependencies=[READER], **told(list[JobShown], headers=["Link"]))
def jobs(
    request: Request,
    log: Log,
    status: str | None = None,
    operation: str | None = None,
    include_children: bool = False,
    parent_job_id: UUID | None = None,
    after: After = None,
    before: Before = None,
    limit: Of = 50,
) -> Response:
    """Jobs, newest first: those of the top level, unless children or those of a parent are requested."""
    newer, since = place_of(after)
    found = JobQueries(log).list(
        status=_status(status), operation=operation, parent=parent_job_id, include_children=include_children,
        newer=newer or None, since=since, after=before, limit=limit,
    )  # fmt: skip
    rows = [shown.shown(job) for job in found]
    return page(request, rows, limit, {"before": found[-1].position} if found else None)


@ROUTES.get("/{id}", dependencies=[READER], **told(WholeJob))
def job(log: Log, id: UUID) -> Response:
    """One job, with its payload and meta."""
    return answer(shown.whole(shown.found(Jobs(log), str(id))))


@ROUTES.get("/{id}/events", dependencies=[READER], **told(list[JobEventShown], headers=["Link"]))
def events(
    request: Request, id: UUID, after: After = None, before: Before = None, limit: OfEvents = 200
) -> Response:
    """The events of a job and of its batches, newest first; those of a deleted job, too."""
    lines: Sequence[Line]
    state = request.app.state  # a front end polls this, and each dependency costs a tenth of the answer
    if after is None and before is None:
        lines = state.timelines.newest(id, limit)
    else:
        newer, since = place_of(after)
        place: dict[str, Any] = {"after": newer, "since": since, "before": before, "limit": limit}
        lines = [*map(line, newest_events(state.ledger, id, **place))]
    next_ = {"before": lines[-1].position} if lines else None
    return raw_page(request, [one.text for one in lines], limit, next_)


@ROUTES.post("/{id}/cancel", **told(Cancelled))
def cancel(log: Log, caller: Operator, id: UUID, key: Key = None) -> Response:
    """Cancel a job with its batches and children; one that is over stays as it is."""
    known = Jobs(log)
    before = shown.found(known, str(id))
    if before.status not in ACTIVE:
        return answer({"id": str(id), "status": before.status})
    children = known.child_statuses(before)
    with acting(actor=caller.name, command=key):
        after = known.cancel(id)
    many = sum(children[status] for status in ACTIVE)
    return answer({"id": str(id), "status": after.status, "children_cancelled": many})


@ROUTES.delete("/{id}", **told(Deleted))
def delete(log: Log, caller: Operator, id: UUID, key: Key = None) -> Response:
    """Take a job out of the lists; its history stays. 409 while it runs."""
    known = Jobs(log)
    shown.found(known, str(id))
    with acting(actor=caller.name, command=key):
        known.delete(id)
    return answer({"deleted": str(id)})


@ROUTES.post("/{id}/comments", **told(CommentShown, 201))
def add_comment(log: Log, caller: Operator, id: UUID, new: NewComment, key: Key = None) -> Response:
    """Comment on a job."""
    author = caller.name if new.author is None else new.author
    with acting(actor=caller.name, command=key):
        Jobs(log).comment(id, new.body, author)
    return answer(shown.comment(str(id), shown.said(log, id, new.body, author)), status=201)


@ROUTES.get("/{id}/comments", dependencies=[READER], **told(list[CommentShown], headers=["Link"]))
def comments_of(request: Request, log: Log, id: UUID, after: After = None, limit: OfEvents = 200) -> Response:
    """The comments on a job, oldest first."""
    newer, since = place_of(after)
    found = comments(log, id, after=newer, since=since, limit=limit)
    rows = [shown.comment(str(id), one) for one in found]
    return page(request, rows, limit, {"after": found[-1].position} if found else None)


def _status(status: str | None) -> str | None:
    """A status in its one spelling. Raises Refusal: 400 for an unknown one (spec 2.7)."""
    try:
        return None if status is None else checked_status(status, Status)
    except BadInput as error:
        raise Refusal(400, "UnknownStatus", str(error)) from None
