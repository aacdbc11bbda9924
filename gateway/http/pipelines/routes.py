"""Routes of projects: the state of a project, or of one item of it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from ledger.log.read import leave_out
from ledger.pipelines import PIPELINES, Pipeline, ProjectStore
from projections.audit import Moment, as_of

from ...cli.output import plain
from ..access import READER, Log
from ..answers import answer, told
from ..problems import Refusal
from ..reading import PlannedRoute
from ..streams import At, Position, moment_of

ROUTES = APIRouter(route_class=PlannedRoute, prefix="/projects", tags=["projects"])
Item = Annotated[
    str | None,
    Query(description="The ids of an item from the first level below the project down, such as 1/2/7."),
]


@ROUTES.get("/{pipeline}/{project}", dependencies=[READER], **told(dict[str, Any]))
def project(
    log: Log, pipeline: str, project: str, item: Item = None, at: At = None, position: Position = None
) -> Response:
    """The state of a project, or of an item and all below it: now, or as of a position or a time.

    It does not wait: an item that is open for change elsewhere is shown as it was before.
    """
    known = PIPELINES.get(pipeline)
    if known is None:
        names = ", ".join(sorted(PIPELINES)) or "none"
        raise Refusal(404, "UnknownPipeline", f"no pipeline is named {pipeline!a}; known: {names}")
    ids = _ids(known, item)
    moment = moment_of(at, position)
    upto = None if moment == Moment() else as_of(log, moment).position
    view = ProjectStore(known, log).peek_item(known.ident(project, ids), upto=upto, unread=leave_out)
    if view is None:
        raise Refusal(404, "NotThere", f"project {project!a} has nothing at {item or 'its top'}")
    return answer(plain(view.to_dict()))


def _ids(pipeline: Pipeline, item: str | None) -> dict[str, int]:
    """The ids by level. Raises Refusal."""
    given = [] if not item else item.split("/")
    names = pipeline.names
    fits = all(one.isascii() and one.isdecimal() and len(one) < 10 for one in given)
    if not fits or len(given) > len(names):
        detail = f"item {item!a} must be numbers of {' / '.join(names)}, from the first one on"
        raise Refusal(422, "InvalidRequest", detail)
    return dict(zip(names, map(int, given), strict=False))
