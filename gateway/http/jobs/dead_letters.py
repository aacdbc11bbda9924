"""The dead letters at the paths of the original (spec 2.7, W1-19)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from ledger import Ledger, acting
from ledger.jobs.dead_letters import discard, redrive
from projections.jobs import JobQueries
from projections.jobs.dead_letters import dead_groups

from ...dead_letters import Act, acted, foresee, nothing, pages
from ..access import READER, Admin, Caller, Log
from ..answers import answer, told
from ..reading import PlannedRoute
from .models import DeadActed, DeadFilter, DeadSummary

ROUTES = APIRouter(route_class=PlannedRoute, prefix="/admin/dlq", tags=["dead letters"])
Only = Annotated[str | None, Query()]


@ROUTES.get("/summary", dependencies=[READER], **told(DeadSummary))
def summary(log: Log, operation: Only = None, queue: Only = None) -> Response:
    """How many dead letters there are, by queue and operation."""
    JobQueries(log).check_made()
    groups = [
        {"queue": q, "operation": o, "kind": kind, "count": many}
        for q, o, kind, many in dead_groups(log)
        if operation in (None, o) and queue in (None, q)
    ]
    return answer({"total": sum(one["count"] for one in groups), "groups": groups})


@ROUTES.post("/replay", **told(DeadActed))
def replay(log: Log, caller: Admin, wanted: DeadFilter) -> Response:
    """Redrive dead letters; without `dry_run: false` it only says which."""
    return _each(log, caller, wanted, redrive, foresee, with_jobs=True)


@ROUTES.post("/purge", **told(DeadActed))
def purge(log: Log, caller: Admin, wanted: DeadFilter) -> Response:
    """Discard dead letters: they stay failed, with their history, and are listed no more."""
    return _each(log, caller, wanted, discard, nothing, with_jobs=False)


def _each(
    log: Ledger, caller: Caller, wanted: DeadFilter, act: Callable[..., None], look: Act, *, with_jobs: bool
) -> Response:
    does = look if wanted.dry_run else partial(act)
    found = pages(JobQueries(log), operation=wanted.operation, queue=wanted.queue)
    chosen = [*islice(found, wanted.max_messages)]
    with acting(actor=caller.name):
        rows = [*acted(log, chosen, does, wanted.reason, with_jobs=with_jobs)]
    refused = [{"stream": one.stream, "reason": why} for one, why in rows if why is not None]
    done = 0 if wanted.dry_run else len(rows) - len(refused)
    return answer({"dry_run": wanted.dry_run, "matched": len(rows), "done": done, "refused": refused})
