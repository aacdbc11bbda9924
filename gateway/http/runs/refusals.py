"""What went wrong, in the form that Prefect's clients read: `{"detail": …}` or `{"exception_message": …}`."""

from __future__ import annotations

import logging
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ledger import BadInput, LedgerError, StreamConflict

from ...cli.error_report import understood
from ..answers import JSON, encoded
from ..problems import RETRY_AFTER, Refusal, status_of

LOG: Final = logging.getLogger("gateway.http")


class Unfit(Exception):
    """A body that does not fit the route: 422 with what is wrong where."""

    def __init__(self, detail: str, place: tuple[str | int, ...] = ("body",)) -> None:
        super().__init__(detail)
        self.detail, self.place = detail, place


async def of_body(_: Request, error: Exception) -> Response:
    """422, as Prefect says that a body does not fit."""
    assert isinstance(error, Unfit)
    wrong = [{"loc": error.place, "msg": error.detail, "type": "value_error"}]
    return _answer(422, {"exception_message": "Invalid request received.", "exception_detail": wrong})


async def of_ledger(request: Request, error: Exception) -> Response:
    """One of the ledger's errors, with the status that it has in all routes."""
    found, status = understood(error), status_of(error)
    if isinstance(error, StreamConflict):  # others wrote all the time: clients repeat a 503, and no 409
        status = 503
    if isinstance(error, BadInput) and status == 422:
        return await of_body(request, Unfit(found.message))
    if status >= 500:
        LOG.warning("%s: %s", found.name, found.message)
    headers = {"Retry-After": RETRY_AFTER} if status == 503 else None
    return _answer(status, {"detail": found.message, "exception_message": found.message}, headers)


async def of_server(_: Request, error: Exception) -> Response:
    """A request that the server itself refuses."""
    assert isinstance(error, Refusal)
    body = {"exception_message": error.detail} if error.status in (401, 403) else {"detail": error.detail}
    return _answer(error.status, body, error.headers)


async def of_framework(_: Request, error: Exception) -> Response:
    """No such route, or no such method."""
    assert isinstance(error, HTTPException)
    return _answer(error.status_code, {"detail": str(error.detail)}, dict(error.headers or {}))


async def of_defect(_: Request, error: Exception) -> Response:
    """500: a defect of ours."""
    detail = f"{type(error).__name__}: a defect of pledger; its log has the traceback"
    return _answer(500, {"exception_message": "Internal Server Error", "detail": detail})


HANDLERS: Final = {
    Unfit: of_body, LedgerError: of_ledger, Refusal: of_server, HTTPException: of_framework,
    Exception: of_defect,
}  # fmt: skip


def _answer(status: int, body: object, headers: dict[str, str] | None = None) -> Response:
    return Response(encoded(body), status, headers, media_type=JSON)
