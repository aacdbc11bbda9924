"""Values in plain form: what JSON can hold, and text that does nothing to a terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ledger import Recorded

# Control characters, and those that change the direction of what follows: a name must not act on a terminal.
_ACTS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def clean(text: str) -> str:
    """The text on one line, with every character that would act on a terminal written as an escape."""
    return _ACTS.sub(lambda m: f"\\x{ord(m[0]):02x}" if m[0] < "\u0100" else f"\\u{ord(m[0]):04x}", text)


def plain(value: Any) -> Any:
    """The value as dicts, lists and what JSON knows; times as ISO with their offset, keys as text."""
    match value:
        case None | bool() | int() | float():
            return value
        case Enum():
            return plain(value.value)
        case str():
            return str(value)
        case datetime():
            return iso(value)
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case set() | frozenset():
            return sorted((plain(item) for item in value), key=repr)
        case _ if is_dataclass(value):
            return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        case _ if hasattr(value, "model_dump"):
            return plain(value.model_dump())
        case _:
            return str(value)


def iso(at: datetime) -> str:
    """A time in UTC, to the microsecond, always of one width."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def local(at: datetime) -> str:
    """A time for a reader at a terminal: in the local zone, with its offset."""
    return at.astimezone().isoformat(sep=" ", timespec="seconds")


def event_json(event: Recorded) -> str:
    """One recorded event as a JSON object on one line; the body exactly as it is stored, no number re-read.

    Keys: position, stream, version, topic, schema, recorded_at, actor, data (null for another application's
    bytes), raw (those bytes in hexadecimal, else null), meta.
    """
    head = {
        "position": event.position,
        "stream": event.stream,
        "version": event.version,
        "topic": event.topic,
        "schema": event.schema,
        "recorded_at": iso(event.recorded_at),
        "actor": event.meta.actor,
    }
    raw = "null" if event.raw is None else f'"{event.raw.hex()}"'
    start = json.dumps(head, ensure_ascii=False)[:-1]
    return f'{start}, "data": {event.data or "null"}, "raw": {raw}, "meta": {event.meta_data or "{}"}}}'


def body(event: Recorded) -> str:
    """The body of an event for the eye: its JSON text, or how many bytes another application recorded."""
    if event.raw is not None:
        return f"<{len(event.raw)} bytes>"
    return "" if event.data in (None, "{}") else clean(event.data or "")


def brief(event: Recorded) -> str:
    """The same for a terminal: of a machine's move first from where to where, then what was said with it."""
    if event.data is None or '"to_state"' not in event.data or '"from_state"' not in event.data:
        return body(event)
    told: Any = json.loads(event.data)
    if not isinstance(told, dict) or not {"to_state", "from_state"} <= told.keys():
        return body(event)
    said = json.dumps(told["metadata"], ensure_ascii=False) if told.get("metadata") else ""
    return clean(f"{told['from_state'] or 'nothing'} -> {told['to_state']}  {said}".rstrip())
