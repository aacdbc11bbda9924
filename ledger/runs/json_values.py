"""
JSON as runs and records keep it (spec S3-02, S3-03).

NaN, the infinities and -0.0 become null and 0.0, because a client may send them and JSONB cannot hold them.
Times are aware and UTC; a naive one is refused. Ids are UUIDs in lower case.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from datetime import UTC, datetime
from enum import Enum
from math import isfinite
from typing import Any
from uuid import UUID, uuid4

from ..domain.canonical_json import MAX_DEPTH
from ..errors import BadInput, shown

_LEAVES = frozenset({str, int, bool, type(None)})
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


def kept(value: Any, depth: int = 1) -> Any:
    """A value as it is kept: plain dicts, lists, texts, numbers.

    Raises BadInput for what is not JSON, or nested deeper than an event may be.
    """
    if type(value) in _LEAVES:
        return value
    if depth > MAX_DEPTH:
        raise BadInput(f"a value is nested deeper than {MAX_DEPTH} levels")
    match value:
        case Enum():
            return kept(value.value, depth)
        case float():
            return (value or 0.0) if isfinite(value) else None
        case Mapping():
            return {str(key): kept(item, depth + 1) for key, item in value.items()}
        case list() | tuple():
            return [kept(item, depth + 1) for item in value]
        case Set():
            return sorted(kept(item, depth + 1) for item in value)
        case datetime():
            return time_text(value)
        case UUID() | str() | int():
            return str(value) if isinstance(value, UUID | str) else int(value)
        case _:
            raise BadInput(f"{shown(value)} is not JSON")


def plain(value: Any) -> Any:
    """A frozen value as dicts and lists, for who encodes it as JSON."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    return value


def utc(value: datetime) -> datetime:
    """The same time in UTC. Raises BadInput for a naive one (spec S3-02)."""
    if value.utcoffset() is None:
        raise BadInput(f"time {value} has no offset from UTC: give an aware time")
    return value.astimezone(UTC)


def time_text(value: datetime) -> str:
    """The time as JSON text, in UTC with a final Z. Raises BadInput for a naive one."""
    return utc(value).isoformat().replace("+00:00", "Z")


def checked_uuid(value: object) -> str:
    """The id as text in lower case. Raises BadInput for what is not a UUID."""
    if type(value) is str and _UUID.match(value):  # nearly all are, and UUID takes twenty times as long
        return value
    try:
        return str(value if isinstance(value, UUID) else UUID(value))  # type: ignore[arg-type]
    except (ValueError, AttributeError, TypeError):
        raise BadInput(f"{shown(value)} is not an id: it must be a UUID") from None


def new_id() -> str:
    """A new random id."""
    return str(uuid4())
