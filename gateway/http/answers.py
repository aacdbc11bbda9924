"""Answers as JSON, the parameters of pages, and what OpenAPI says of an operation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from fastapi import Request
from starlette.responses import JSONResponse, Response

from ..cli.output import plain
from .problems import Problem, Refusal

JSON: Final = "application/json"
_ENCODE: Final = msgspec.json.Encoder(enc_hook=plain).encode  # a FrozenDict is none of its own types


def answer(
    value: Any,
    *,
    status: int = 200,
    etag: int | None = None,
    more: tuple[Request, Mapping[str, Any]] | None = None,
) -> Response:
    """A value as JSON. etag: a version. more: the request, and the parameters of its next page."""
    headers = {}
    if etag is not None:
        headers["ETag"] = f'"{etag}"'
    if more is not None:
        headers |= _link(*more)
    return Response(encoded(plain(value)), status, headers, media_type=JSON)


def encoded(value: Any) -> bytes:
    """The value as JSON; what msgspec cannot write, such as 2**70, by the standard library."""
    try:
        return _ENCODE(value)
    except (OverflowError, TypeError, ValueError):
        return json.dumps(plain(value), ensure_ascii=False).encode()


def page(
    request: Request, rows: Sequence[Any], limit: int, next_: Mapping[str, Any] | None = None
) -> Response:
    """A page of rows; a full page has a Link to the next one, with these parameters."""
    more = (request, next_) if next_ is not None and len(rows) >= limit else None
    return answer(rows, more=more)


def raw_page(request: Request, texts: Sequence[str], limit: int, next_: Mapping[str, Any] | None) -> Response:
    """A page of rows that are JSON text already."""
    headers = _link(request, next_) if next_ is not None and len(texts) >= limit else None
    return Response(f"[{','.join(texts)}]", headers=headers, media_type=JSON)


def _link(request: Request, next_: Mapping[str, Any]) -> dict[str, str]:
    """The address of the next page (RFC 8288)."""
    return {"Link": f'<{request.url.include_query_params(**next_)}>; rel="next"'}


def place_of(after: str | None) -> tuple[int, datetime | None]:
    """A position, or a time with its offset, in a parameter `after` (spec 2.7, W1-18). Raises Refusal."""
    if after is None:
        return 0, None
    if after.isascii() and after.isdecimal() and len(after) < 19:
        return int(after), None
    try:
        at = datetime.fromisoformat(after.replace(" ", "+") if "T" in after else after)
    except ValueError:
        at = None
    if at is None or not 1 < at.year < 9999:
        raise Refusal(
            422,
            "InvalidRequest",
            f"after {after!a} must be a position, or a time such as 2026-03-01T14:00+01:00",
        )
    return 0, at if at.utcoffset() is not None else at.astimezone()


def told(
    model: Any,
    status: int = 200,
    about: str = "Done.",
    *,
    headers: Sequence[str] = (),
    content: str = JSON,
) -> dict[str, Any]:
    """What OpenAPI says of an operation's answers; the routes make the answers themselves."""
    fine: dict[str, Any] = {"description": about}
    if headers:
        fine["headers"] = {name: {"schema": {"type": "string"}} for name in headers}
    if model is not None:
        fine["model"] = model
    else:
        fine["content"] = {content: {"schema": {"type": "string"}}}
    wrong = {"description": "What went wrong.", "model": Problem}
    kind = Response if model is None else JSONResponse  # only for the document
    return {
        "status_code": status, "response_model": None, "response_class": kind,
        "responses": {status: fine, "default": wrong},
    }  # fmt: skip
