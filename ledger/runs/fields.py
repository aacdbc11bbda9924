"""Fields of runs that clients give: how a value of each type is read into the JSON that facts keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from ..errors import BadInput, shown
from .json_values import checked_uuid, kept, time_text

Reader = Callable[[Any, str], Any]
"""Reads a value, given the name of its field. Raises BadInput."""


def read_fields(readers: Mapping[str, Reader], given: Mapping[str, Any], of: str) -> dict[str, Any]:
    """Given fields as facts keep them; None takes a field away. of: what they are fields of, for errors.

    Raises BadInput for an unknown field and an unreadable value.
    """
    read = {}
    for name, value in given.items():
        reader = readers.get(name)
        if reader is None:
            raise BadInput(f"a {of} has no field {shown(name)} that can be set")
        read[name] = None if value is None else reader(value, name)
    return read


def time_read(value: Any, what: str = "time") -> datetime:
    """A time of a client's JSON: ISO 8601 with its offset, `T` or a space between date and time; in UTC.

    Raises BadInput, also for a time without an offset (spec S3-02).
    """
    try:
        found = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise BadInput(f"{what} {shown(value)} must be a time in ISO 8601 with its offset from UTC") from None
    if found.utcoffset() is None:
        raise BadInput(f"{what} {shown(value)} has no offset from UTC: write it with Z or +00:00")
    try:
        return found if found.tzinfo is UTC else found.astimezone(UTC)
    except OverflowError:
        raise BadInput(f"{what} {shown(value)} is before the year 1 or after 9999 in UTC") from None


def uuid(value: Any, name: str) -> str:
    """An id, as text in lower case."""
    return checked_uuid(value)


def text(value: Any, name: str) -> str:
    """A text."""
    if not isinstance(value, str):
        raise BadInput(f"{name} {shown(value)} must be text")
    return value


def flag(value: Any, name: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise BadInput(f"{name} {shown(value)} must be true or false")
    return value


def count(value: Any, name: str) -> int:
    """An integer, 0 or more."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**62:
        raise BadInput(f"{name} {shown(value)} must be an integer, 0 or more")
    return value


def seconds(value: Any, name: str) -> float:
    """A number of seconds; a negative one, which a clock that went back makes, is 0 (spec W3-02)."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not value < 1e12:
        raise BadInput(f"{name} {shown(value)} must be a number of seconds")
    return max(0.0, float(value))


def time(value: Any, name: str) -> str:
    """A time with its offset, as ISO 8601 in UTC."""
    return time_text(time_read(value, name))


def json_object(value: Any, name: str) -> Any:
    """A JSON object."""
    if not isinstance(value, Mapping):
        raise BadInput(f"{name} {shown(value)} must be an object")
    return kept(value)


def texts(value: Any, name: str) -> list[str]:
    """A list of texts."""
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise BadInput(f"{name} {shown(value)} must be a list of texts")
    return list(value)


def texts_by_name(value: Any, name: str) -> Any:
    """An object of texts."""
    if not isinstance(value, Mapping) or not all(isinstance(item, str) for item in value.values()):
        raise BadInput(f"{name} {shown(value)} must be an object of texts")
    return kept(value)
