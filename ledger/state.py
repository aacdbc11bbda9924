"""States as JSON: what a head keeps of a fold, and how it becomes a state again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from json import JSONEncoder
from json.encoder import encode_basestring
from operator import is_
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter

from . import canon
from .frozen import FrozenDict, changed

S = TypeVar("S")

STAMP: Final = "\x01"
"""Stands in a state's text for the time of the append, which only the database knows."""

TREE: Final = {"tree": True}
"""Metadata of a field that is filled when a tree is read: `field(default=…, metadata=TREE)`. Not kept."""

_ANY: TypeAdapter[Any] = TypeAdapter(Any)
_LEAVES = frozenset({str, int, float, bool, type(None), datetime})
_ENCODE = JSONEncoder(ensure_ascii=False, allow_nan=False).encode


class Pending(datetime):
    """The time of an append that has not happened yet: shows this process's clock, becomes the database's."""

    @classmethod
    def clock(cls) -> Pending:
        """The present time of this process, aware, UTC."""
        return cls.now(UTC)


def dump(state: Any) -> str:
    """JSON text of a state (frozen dataclass), with STAMP for each Pending time. Raises BadBody."""
    return _WAYS[type(state)](state)


def _dump(state: Any) -> str:
    """What a value of any type is; `_WAYS` knows shorter ways for the frequent ones, to the same text."""
    match state:
        case float():
            return canon.number(state + 0.0)  # a computed -0.0 becomes 0.0
        case None | bool() | int():
            return _ENCODE(state)
        case Enum():
            return dump(state.value)
        case str():
            return _ENCODE(state)
        case Pending():
            return STAMP
        case datetime():
            return _moment(state)
        case Mapping():
            return "{" + ",".join(f"{_ENCODE(str(key))}:{dump(item)}" for key, item in state.items()) + "}"
        case tuple() | list():
            return "[" + ",".join(dump(item) for item in state) + "]"
        case frozenset() | set():  # in one order in every process
            return "[" + ",".join(sorted(dump(item) for item in state)) + "]"
        case _ if dataclasses.is_dataclass(state):
            kept = _kept(type(state))
            return "{" + ",".join(f'"{name}":{dump(getattr(state, name))}' for name in kept) + "}"
        case _:
            return _ANY.dump_json(state).decode()


def load(kind: type[S], data: str | bytes) -> S:
    """The state in JSON text that `dump` wrote, as deeply frozen as a folded one."""
    state = _adapter(kind).validate_json(data)
    return cast("S", state if _is_solid(kind) else _solid(state))


def load_each(kind: type[S], texts: Sequence[str]) -> list[S]:
    """The states in many texts; in one go, which takes a third of the time."""
    states: list[S] = _list_adapter(kind).validate_json(f"[{','.join(texts)}]")
    return states if _is_solid(kind) else [cast("S", _solid(state)) for state in states]


def _number(state: float) -> str:
    """Between these bounds `repr` writes no positive exponent; NaN is not between them."""
    return float.__repr__(state + 0.0) if -1e16 < state < 1e16 else canon.number(state)


def _moment(at: datetime) -> str:
    """By hand in half of the time that `isoformat` takes."""
    if at.tzinfo is not UTC:
        at = at.astimezone(UTC)
    return _MOMENT % (at.year, at.month, at.day, at.hour, at.minute, at.second, at.microsecond)


class _Ways(dict[type[Any], Callable[[Any], str]]):
    """How a value of exactly this type is dumped; found out once, because to ask costs most of the time."""

    def __missing__(self, kind: type[Any]) -> Callable[[Any], str]:
        self[kind] = way = _way_of(kind)
        return way


def _way_of(kind: type[Any]) -> Callable[[Any], str]:
    if dataclasses.is_dataclass(kind) and not issubclass(kind, _OTHERWISE):
        return _dumper_of(kind)
    if issubclass(kind, Enum) and not issubclass(kind, int | float):
        return lambda state: dump(state.value)
    return _dump


def _dumper_of(kind: type[Any]) -> Callable[[Any], str]:
    """A function that dumps a dataclass, written for its fields: a loop over them costs twice as much."""
    parts = [
        f"""\"{name}\":{{'null' if (v := state.{name}) is None else v if (t := type(v)) is int """
        f"""else text(v) if t is str else ways[t](v)}}"""
        for name in _kept(kind)
    ]
    scope: dict[str, Any] = {"text": encode_basestring, "ways": _WAYS}
    exec(f'def dumped(state): return f"""{{{{{",".join(parts)}}}}}"""', scope)  # names are identifiers
    return scope["dumped"]  # type: ignore[no-any-return]


_MOMENT = '"%04d-%02d-%02dT%02d:%02d:%02d.%06dZ"'
_OTHERWISE = (float, int, Enum, str, datetime, Mapping, tuple, list, frozenset, set)
"""What is dumped as that, even if it is a dataclass."""

_WAYS: Final[_Ways] = _Ways(
    {
        str: encode_basestring,
        int: int.__repr__,
        float: _number,
        bool: lambda state: "true" if state else "false",
        NoneType: lambda _: "null",
        Pending: lambda _: STAMP,
        datetime: _moment,
        tuple: lambda state: "[" + ",".join([_WAYS[type(item)](item) for item in state]) + "]",
        FrozenDict: lambda state: (
            "{" + ",".join(f"{_ENCODE(str(k))}:{dump(v)}" for k, v in state.items()) + "}"
        ),
    }
)


def _solid(value: Any) -> Any:
    """The value with all that pydantic made mutable frozen; its dataclasses are new, so changed in place."""
    if type(value) is dict and not value:
        return FrozenDict()
    match value:
        case None | str() | int() | float():
            return value
        case Mapping():
            return FrozenDict({key: _solid(item) for key, item in value.items()})
        case list() | tuple():
            return (
                type(value)._make(map(_solid, value))
                if hasattr(value, "_make")
                else tuple(map(_solid, value))
            )
        case set():
            return frozenset(value)
        case _ if dataclasses.is_dataclass(value):
            for name in _kept(type(value)):
                if type(item := getattr(value, name)) not in _LEAVES:
                    object.__setattr__(value, name, _solid(item))
            return value
        case _:
            return value


def stamped(state: S, at: datetime) -> S:
    """The same state with every Pending time replaced by the database's time of the append."""
    changes = _stamper(type(state))(state, at)
    return changed(state, **changes) if changes else state


def _stamped(value: Any, at: datetime) -> Any:
    """The value itself where no time in it is pending."""
    match value:
        case Pending():
            return at
        case tuple():
            if _LEAVES.issuperset(map(type, value)):
                return value
            items = [_stamped(item, at) for item in value]
            if all(map(is_, items, value)):
                return value
            return type(value)._make(items) if hasattr(value, "_make") else tuple(items)
        case Mapping():
            if _LEAVES.issuperset(map(type, value.values())):
                return value
            changes = {key: _stamped(item, at) for key, item in value.items()}
            if all(map(is_, changes.values(), value.values())):
                return value
            return type(value)(changes)  # type: ignore[call-arg]
        case _:
            return stamped(value, at) if dataclasses.is_dataclass(value) else value


def _stamper_of(kind: type[Any]) -> Callable[[Any, datetime], dict[str, Any]]:
    """A function that finds what becomes of a state's fields; written for them, and most hold no time."""
    lines = [
        f" if type(v := state.{name}) not in leaves and (new := stamp(v, at)) is not v: found['{name}'] = new"
        for name in _kept(kind)
    ]
    scope: dict[str, Any] = {"leaves": _LEAVES, "stamp": _stamped}
    exec("\n".join(["def stamper(state, at):", " found = {}", *lines, " return found"]), scope)
    return scope["stamper"]  # type: ignore[no-any-return]


def _kept_names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind) if "tree" not in field.metadata)


def _list_adapter_of(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(list[kind])  # type: ignore[valid-type]


def _solid_as_read(kind: type[Any]) -> bool:
    """Whether pydantic makes nothing mutable of this type, so that nothing is left to freeze."""
    hints = get_type_hints(kind)
    return all(_is_solid_type(hints[name]) for name in _kept(kind))


def _is_solid_type(hint: Any) -> bool:
    if isinstance(hint, type) and not get_args(hint):
        named = issubclass(hint, tuple) and hasattr(hint, "_fields")
        fields = get_type_hints(hint).values() if named else ()
        return (named or issubclass(hint, _SOLID)) and all(map(_is_solid_type, fields))
    if get_origin(hint) in (tuple, UnionType, Union):
        return all(part is Ellipsis or _is_solid_type(part) for part in get_args(hint))
    return False


_SOLID = (str, int, float, bool, type(None), datetime, Enum)

# Plain callables to the type checker: to it, a class is not always hashable.
_kept: Callable[[Any], tuple[str, ...]] = cache(_kept_names)
_stamper: Callable[[Any], Callable[[Any, datetime], dict[str, Any]]] = cache(_stamper_of)
_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)
_list_adapter: Callable[[Any], TypeAdapter[Any]] = cache(_list_adapter_of)
_is_solid: Callable[[Any], bool] = cache(_solid_as_read)
