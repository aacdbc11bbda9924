"""States as JSON: what a head keeps of a fold, and how it becomes a state again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from json import JSONEncoder
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter

from . import canon

S = TypeVar("S")

STAMP: Final = "\x01"
"""Stands in a state's text for the time of the append, which only the database knows."""

TREE: Final = {"tree": True}
"""Metadata of a field that is filled when a tree is read: `field(default=…, metadata=TREE)`. Not kept."""

_ENCODE = JSONEncoder(ensure_ascii=False, allow_nan=False).encode


class Pending(datetime):
    """The time of an append that has not happened yet: shows this process's clock, becomes the database's."""

    @classmethod
    def clock(cls) -> Pending:
        """The present time of this process, aware, UTC."""
        return cls.now(UTC)


def dump(state: Any) -> str:
    """JSON text of a state (frozen dataclass), with STAMP for each Pending time."""
    match state:
        case float():
            return canon.number(state)
        case None | bool() | int():
            return _ENCODE(state)
        case Enum():
            return dump(state.value)
        case str():
            return _ENCODE(state)
        case Pending():
            return STAMP
        case datetime():
            return f'"{state.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"'
        case Mapping():
            return "{" + ",".join(f"{_ENCODE(str(key))}:{dump(item)}" for key, item in state.items()) + "}"
        case tuple() | list() | frozenset() | set():
            return "[" + ",".join(dump(item) for item in state) + "]"
        case _:
            return "{" + ",".join(f'"{name}":{dump(getattr(state, name))}' for name in _kept(type(state))) + "}"


def load(kind: type[S], data: str | bytes) -> S:
    """The state in JSON text that `dump` wrote."""
    return _adapter(kind).validate_json(data)


def stamped(state: S, at: datetime) -> S:
    """The same state with every Pending time replaced by the database's time of the append."""
    changes = {
        name: at if isinstance(value, Pending) else _stamped(value, at)
        for name in _kept(type(state))
        if isinstance(value := getattr(state, name), Pending | tuple | Mapping) or dataclasses.is_dataclass(value)
    }
    return dataclasses.replace(state, **changes) if changes else state  # type: ignore[type-var]


def _stamped(value: Any, at: datetime) -> Any:
    match value:
        case Pending():
            return at
        case tuple():
            return tuple(_stamped(item, at) for item in value)
        case Mapping():
            return type(value)({key: _stamped(item, at) for key, item in value.items()})  # type: ignore[call-arg]
        case _:
            return stamped(value, at) if dataclasses.is_dataclass(value) else value


@cache
def _kept(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind) if "tree" not in field.metadata)


@cache
def _adapter(kind: type[S]) -> TypeAdapter[S]:
    return TypeAdapter(kind)
