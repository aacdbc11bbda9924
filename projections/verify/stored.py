"""The text that PostgreSQL makes of a state: a quick way to see that a head holds it, since most do."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

from ledger.state import TREE, dump


def as_stored(state: Any) -> str | None:
    """The text that JSONB gives back for a state; None where the state holds more than plain values.

    What is not equal to it may still be the same JSON, and is compared in the slow way.
    """
    parts = []
    for prefix, name in _names(type(state)):
        value = getattr(state, name)
        write = _WRITERS.get(type(value))
        if write is not None:
            parts.append(prefix + write(value))
        elif value == ():
            parts.append(prefix + "[]")
        elif isinstance(value, str):  # a status
            parts.append(prefix + dump(value))
        else:
            return None
    return "{" + ", ".join(parts) + "}"


def _names_of(kind: type[Any]) -> list[tuple[str, str]]:
    """The fields that are kept, as JSONB orders them: by length, then by their bytes."""
    kept = [field.name for field in dataclasses.fields(kind) if not TREE.items() <= field.metadata.items()]
    return [
        (f'"{name}": ', name) for name in sorted(kept, key=lambda name: (len(name.encode()), name.encode()))
    ]


def _time(at: datetime) -> str:
    return f'"{at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds")}Z"'


_WRITERS: Final[dict[type[Any], Callable[[Any], str]]] = {
    type(None): lambda _: "null",
    bool: lambda value: "true" if value else "false",
    int: int.__repr__,
    str: json.JSONEncoder(ensure_ascii=False).encode,
    datetime: _time,
}
# A plain callable to the type checker: to it, a class is not always hashable.
_names: Callable[[Any], list[tuple[str, str]]] = cache(_names_of)
