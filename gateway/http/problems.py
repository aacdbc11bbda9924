"""
What went wrong, for an HTTP client: one table from errors to statuses, and problems as RFC 9457 has them.

A problem has the members type, title, status and detail; `parts` holds those of the error.
"""

from __future__ import annotations

import json
import logging
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ledger import errors as e

from ..cli.error_report import understood
from ..cli.output import plain

LOG: Final = logging.getLogger("gateway.http")
TYPE: Final = "application/problem+json"
URN: Final = "urn:pledger:"

STATUSES: Final[dict[type[Exception], int]] = {
    e.UnknownView: 404,
    e.UnknownMachine: 404,
    e.BadInput: 422,
    e.BadParameters: 409,
    e.CommandReused: 422,
    e.LockTimeout: 423,
    e.Refused: 409,
    e.JobUnsuccessful: 409,
    e.StreamNotFound: 404,
    e.RecordNotFound: 404,
    e.RecordProtected: 403,
    e.TokenNotFound: 404,
    e.CursorMismatch: 410,
    e.ViewFailed: 503,
    e.BadKey: 503,
    e.KafkaFailed: 502,
    e.SchemaMismatch: 503,
    e.ServerUnavailable: 503,
    e.LedgerError: 500,
}
"""The status of each error; an error that is not here has that of the nearest class above it."""
RETRY_AFTER: Final = "1"
"""Seconds after which a client may try again, where the server cannot be used at the moment."""


class Problem(BaseModel):
    """What went wrong (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    parts: dict[str, Any] = {}
    model_config = {
        "extra": "allow",
        "json_schema_extra": {
            "example": {
                "type": "urn:pledger:StreamNotFound", "title": "StreamNotFound", "status": 404,
                "detail": "no event is recorded under 'job/5f6c'", "parts": {"stream": "job/5f6c"},
            }
        },
    }  # fmt: skip


class Refusal(Exception):
    """A request that the server itself refuses: a status, a name, a sentence, and further members."""

    def __init__(self, status: int, name: str, detail: str, **headers: str) -> None:
        super().__init__(detail)
        self.status, self.name, self.detail = status, name, detail
        self.headers = {key.replace("_", "-"): value for key, value in headers.items()}


def status_of(error: Exception) -> int:
    """The HTTP status of one of the ledger's errors: that of the nearest class in the table."""
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def problem(
    status: int, name: str, detail: str, headers: dict[str, str] | None = None, **members: Any
) -> Response:
    """The answer that says what went wrong."""
    body = {"type": f"{URN}{name}", "title": name, "status": status, "detail": detail, **members}
    text = json.dumps(plain(body), ensure_ascii=False).encode("utf-8", "backslashreplace")
    return Response(text, status, headers, media_type=TYPE)


def answer_problems(app: FastAPI) -> None:
    """Answer every error as a problem."""
    app.add_exception_handler(e.LedgerError, _of_ledger)
    app.add_exception_handler(Refusal, _of_server)
    app.add_exception_handler(RequestValidationError, _of_request)
    app.add_exception_handler(HTTPException, _of_framework)
    app.add_exception_handler(Exception, _defect)


async def _of_ledger(_: Request, error: Exception) -> Response:
    found, status = understood(error), status_of(error)
    headers = {"Retry-After": RETRY_AFTER} if status == 503 else None
    if status >= 500:
        LOG.warning("%s: %s", found.name, found.message)
    return problem(status, found.name, found.message, headers, parts=found.parts, **_more(error))


async def _of_server(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return problem(error.status, error.name, error.detail, error.headers)


async def _of_request(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    wrong = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
    return problem(422, "InvalidRequest", "; ".join(wrong), parts={"wrong": wrong})


async def _of_framework(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    name = "BodyTooLarge" if error.status_code == 413 else "HTTPError"
    return problem(error.status_code, name, str(error.detail), dict(error.headers or {}))


async def _defect(_: Request, error: Exception) -> Response:
    detail = f"{type(error).__name__}: a defect of pledger; its log has the traceback"
    return problem(500, "Defect", detail)


def _more(error: Exception) -> dict[str, Any]:
    """The members that a front end of the original reads (spec 2.7)."""
    if isinstance(error, e.DuplicateJob):
        named = {"error": "duplicate_active_job", "existing_job_id": error.job}
        return {**named, "message": str(error)}
    return {}
