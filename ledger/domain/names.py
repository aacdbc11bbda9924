"""Stream names: built only here, so that two different keys never share a name."""

from __future__ import annotations

import re
from typing import Final

from ..errors import BadName

MAX_BYTES: Final = 1000
"""Longest stream name in UTF-8; an index entry of PostgreSQL holds little more than twice this."""

_CATEGORY = re.compile(r"[a-z][a-z0-9_.-]*\Z")
_TOPIC = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*\Z")
_LAST = "\U0010ffff"
_ESCAPED = re.compile(rf"[%/\x01-\x1f\x7f{_LAST}]")
_ESCAPE = re.compile(r"%(U|[0-9A-F]{2})")


def stream_name(category: str, *parts: str | int) -> str:
    """The name of the stream with this key: `category/part/part`, `%`, `/` and control characters escaped.

    An integer part is its decimal text. U+10FFFF is escaped too: it ends the ranges in which the store looks
    for names with a prefix. Raises BadName for what cannot be a name.
    """
    if not _is_text(category) or not _CATEGORY.match(category):
        raise BadName(
            "category", category, "must be lower-case letters, digits, '_', '.', '-', a letter first"
        )
    return checked("/".join((category, *map(_escaped, parts))))


def split_name(stream: str) -> tuple[str, tuple[str, ...]]:
    """Category and key parts of a stream name; the inverse of `stream_name`."""
    category, *parts = stream.split("/")
    return category, tuple(_ESCAPE.sub(_unescaped, part) for part in parts)


def checked(stream: str) -> str:
    """The name itself, if PostgreSQL can hold and find it: 1 to MAX_BYTES, no NUL, surrogate or U+10FFFF."""
    if type(stream) is str and stream.isascii() and 0 < len(stream) <= MAX_BYTES and "\x00" not in stream:
        return stream
    if _is_text(stream) and _LAST in stream:
        raise BadName("stream name", stream, "contains U+10FFFF, which is no character; use `stream_name`")
    return _storable("stream name", stream)


def checked_command(command: str) -> str:
    """The command id itself, if PostgreSQL can hold it: text, 1 to MAX_BYTES."""
    return _storable("command id", command)


def _storable(what: str, text: str) -> str:
    if not _is_text(text) or not text:
        raise BadName(what, text, "must be text that is not empty")
    if "\x00" in text:
        raise BadName(what, text, "contains NUL, which PostgreSQL cannot store")
    try:
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        raise BadName(what, text, "contains a lone surrogate, which is not text") from None
    if size > MAX_BYTES:
        raise BadName(what, text, f"has {size} bytes, more than {MAX_BYTES}")
    return text


def checked_topic(topic: str) -> str:
    """The topic itself, if it is lower-case words joined by dots (`strip.completed`)."""
    if not _is_text(topic) or not _TOPIC.match(topic) or len(topic) > 200:
        raise BadName("topic", topic, "must be lower-case words joined by dots, such as 'strip.completed'")
    return topic


def checked_id(what: str, value: int) -> int:
    """The id itself, if it is an integer from 0 to 2**63 - 1 (spec 1.3)."""
    if not _is_integer(value) or not 0 <= value < 2**63:
        raise BadName(what, value, "must be an integer, 0 or more, below 2**63")
    return value


def project_key(project_name: str) -> str:
    """The one spelling under which a project is kept: lower case, `_` as `-` (spec S0-11, W0-14)."""
    if not _is_text(project_name) or not project_name:
        raise BadName("project_name", project_name, "must be text that is not empty")
    return project_name.lower().replace("_", "-")


def _escaped(part: str | int) -> str:
    if isinstance(part, str):
        if "\x00" in part:
            raise BadName("key part", part, "contains NUL, which PostgreSQL cannot store")
        return _ESCAPED.sub(_escape, part)
    if not _is_integer(part) or not -(2**63) <= part < 2**63:
        raise BadName("key part", part, "must be text or an integer of 64 bits")
    return int.__repr__(part)


def _escape(found: re.Match[str]) -> str:
    return "%U" if found[0] == _LAST else f"%{ord(found[0]):02X}"


def _unescaped(found: re.Match[str]) -> str:
    return _LAST if found[1] == "U" else chr(int(found[1], 16))


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
