"""Whether the server lives and can be used, and its metrics."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from ledger import LedgerError
from projections.metrics import metrics as told_metrics

from .access import OPEN, READER, Log
from .answers import answer, told
from .models import Health
from .problems import Refusal
from .reading import PlannedRoute

ROUTES = APIRouter(route_class=PlannedRoute, tags=["health"])


@ROUTES.get("/healthz", dependencies=[OPEN], **told(Health))
@ROUTES.get("/health", dependencies=[OPEN], **told(Health))
async def healthz() -> Response:
    """Whether the process answers."""
    return answer({"status": "ok"})


@ROUTES.get("/readyz", dependencies=[OPEN], **told(Health))
@ROUTES.get("/health/ready", dependencies=[OPEN], **told(Health))
def readyz(log: Log) -> Response:
    """Whether the ledger can be read: 503 if not."""
    try:
        return answer({"status": "ready", "position": log.bound()})
    except LedgerError as error:
        raise Refusal(503, "NotReady", str(error), Retry_After="1") from error


@ROUTES.get("/metrics", dependencies=[READER], **told(None, content="text/plain"))
def metrics(log: Log) -> Response:
    """The state of views, jobs and readers, in Prometheus' text format."""
    return Response(told_metrics(log), media_type="text/plain; version=0.0.4; charset=utf-8")
