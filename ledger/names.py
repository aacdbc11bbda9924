"""Stream names: built here and nowhere else, so that no two different keys share one."""

from __future__ import annotations

import re
from typing import Final

from .errors import BadName

MAX_BYTES: Final = 1000
"""Longest stream name in UTF-8; an index entry of PostgreSQL holds little more than twice this."""

_CATEGORY = re.compile(r"[a-z][a-z0-9_.-]*\Z")
_TOPIC = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*\Z")
_ESCAPED = re.compile(r"[%/\x01-\x1f\x7f]")
_ESCAPE = re.compile(r"%([0-9A-F]{2})")


def stream_name(category: str, *parts: str | int) -> str:
    """The name of the stream with this key: `category/part/part`, `%`, `/` and control characters escaped.

    An integer part is its decimal text. Raises BadName for what cannot be a name.
    """
    if not _CATEGORY.match(category):
        raise BadName("category", category, "must be lower-case letters, digits, '_', '.', '-', a letter first")
    return checked("/".join((category, *(_escaped(part) for part in parts))))


def split_name(stream: str) -> tuple[str, tuple[str, ...]]:
    """Category and key parts of a stream name; the inverse of `stream_name`."""
    category, *parts = stream.split("/")
    return category, tuple(_ESCAPE.sub(lambda m: chr(int(m[1], 16)), part) for part in parts)


def checked(stream: str) -> str:
    """The name itself, if PostgreSQL can hold it: not empty, no NUL, no lone surrogate, at most MAX_BYTES."""
    if not isinstance(stream, str) or not stream:
        raise BadName("stream name", stream, "must be text that is not empty")
    if "\x00" in stream:
        raise BadName("stream name", stream, "contains NUL, which PostgreSQL cannot store")
    try:
        size = len(stream.encode())
    except UnicodeEncodeError:
        raise BadName("stream name", stream, "contains a lone surrogate, which is not text") from None
    if size > MAX_BYTES:
        raise BadName("stream name", stream, f"has {size} bytes, more than {MAX_BYTES}")
    return stream


def checked_topic(topic: str) -> str:
    """The topic itself, if it is lower-case words joined by dots (`strip.completed`)."""
    if not isinstance(topic, str) or not _TOPIC.match(topic) or len(topic) > 200:
        raise BadName("topic", topic, "must be lower-case words joined by dots, such as 'strip.completed'")
    return topic


def checked_id(what: str, value: int) -> int:
    """The id itself, if it is an integer of 0 or more (spec 1.3)."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadName(what, value, "must be an integer, 0 or more")
    return value


def project_key(project_name: str) -> str:
    """The one spelling under which a project is kept: lower case, `_` as `-` (spec S0-11, W0-14)."""
    if not isinstance(project_name, str) or not project_name:
        raise BadName("project_name", project_name, "must be text that is not empty")
    return project_name.lower().replace("_", "-")


def _escaped(part: str | int) -> str:
    if isinstance(part, bool) or not isinstance(part, str | int):
        raise BadName("key part", part, "must be text or an integer")
    if isinstance(part, int):
        return str(part)
    if "\x00" in part:
        raise BadName("key part", part, "contains NUL, which PostgreSQL cannot store")
    return _ESCAPED.sub(lambda m: f"%{ord(m[0]):02X}", part)
