"""Conditional requests: an ETag is the version of a stream, in quotes (RFC 9110, 13; RFC 6585, 3)."""

from __future__ import annotations

import re
from typing import Annotated, Final

from fastapi import Header

from .problems import Refusal

_TAG: Final = re.compile(r'\s*(W/)?"([^"]*)"\s*')
IfMatch = Annotated[
    str | None,
    Header(
        description="The version that the decision rests on, as the ETag of a GET; `*`: whatever it is.",
        examples=['"3"'],
    ),
]
IfNoneMatch = Annotated[
    str | None, Header(description="The version that the client has: 304 if it is still that one.")
]
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key", max_length=200,
        description="A command id: a repeat with the same id records nothing, and answers as the first.",
    ),
]  # fmt: skip


def expected_version(if_match: str | None) -> int | None:
    """The version that a change requires; None for any. Raises Refusal: 428 without If-Match, 412."""
    if if_match is None:
        detail = 'give the header If-Match with the ETag of the GET, such as "3", or * for any version'
        raise Refusal(428, "PreconditionRequired", detail)
    if if_match.strip() == "*":
        return None
    tags = _TAG.fullmatch(if_match)
    if tags is None or tags[1] or not (tags[2].isascii() and tags[2].isdecimal() and len(tags[2]) < 19):
        raise Refusal(412, "PreconditionFailed", f"If-Match {if_match!a} is no ETag of one version")
    return int(tags[2])


def is_unchanged(if_none_match: str | None, version: int) -> bool:
    """Whether the client has this version already."""
    if if_none_match is None:
        return False
    return if_none_match.strip() == "*" or any(
        found[2] == str(version) for found in _TAG.finditer(if_none_match)
    )
