"""
States as JSON: how a head stores a state, and how it is read again.

msgspec writes and reads them. A plain walk over the state writes the values for which msgspec's text would
differ from JSONB's: floats that are not JSON, -0.0 and floats with an exponent (1e16 would come back as an
integer), sets in a fixed order, TREE fields left out below the top, and types that only pydantic supports.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from functools import cache
from json import JSONEncoder
from operator import attrgetter, is_
from threading import Lock
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Final, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from . import canonical_json
from .frozen import FrozenDict, changed

if TYPE_CHECKING:
    from pydantic import TypeAdapter

S = TypeVar("S")

STAMP: Final = "\x01"
"""Placeholder in a state's text for the time of the append, which the database sets."""

TREE: Final = {"tree": True}
"""Metadata of a field that is filled when a tree is read: `field(default=…, metadata=TREE)`. Not kept."""

_ENCODE = JSONEncoder(ensure_ascii=False, allow_nan=False).encode


class UnreadableState(ValueError):
    """A text does not fit the class of states: fold the events."""


class Pending(datetime):
    """The time of a coming append: shows this process's clock until the append, then the database's time."""

    @classmethod
    def clock(cls) -> Pending:
        """The present time of this process, aware, UTC."""
        return cls.now(UTC)


# Writing


def dump(state: Any) -> str:
    """JSON text of a state (frozen dataclass), with STAMP for each Pending time. Raises BadBody."""
    shape = _shape(type(state))
    if shape is not None and (shape.unsure is None or all(map(_as_jsonb, shape.unsure(state)))):
        try:
            return shape.encode(shape.kept(state) if shape.has_tree else state).decode()
        except (TypeError, ValueError, OverflowError):
            pass  # the walk writes it, or finds the error
    return _walked(state)


def _walked(value: Any) -> str:
    """The text of any value; the same as msgspec's where JSONB keeps msgspec's text unchanged."""
    match value:
        case float():
            return canonical_json.number(value + 0.0)  # a computed -0.0 becomes 0.0
        case None | bool() | int():
            return _ENCODE(value)
        case Enum():
            return _walked(value.value)
        case str():
            return _ENCODE(value)
        case Pending():
            return STAMP
        case datetime():
            return f'"{value.isoformat().replace("+00:00", "Z")}"'
        case Mapping():
            return "{" + ",".join(f"{_ENCODE(str(key))}:{_walked(item)}" for key, item in value.items()) + "}"
        case tuple() | list():
            return "[" + ",".join(map(_walked, value)) + "]"
        case frozenset() | set():  # in one order in every process
            return "[" + ",".join(sorted(map(_walked, value))) + "]"
        case _ if dataclasses.is_dataclass(value):
            kept = _kept(type(value))
            return "{" + ",".join(f'"{name}":{_walked(getattr(value, name))}' for name in kept) + "}"
        case _:
            return _adapter(Any).dump_json(value).decode()


def _new_encoder() -> Callable[[Any], bytes]:
    import msgspec  # late: a look at the log needs no states

    stamp = msgspec.Raw(STAMP.encode())

    def raw(value: Any) -> msgspec.Raw:
        return stamp if type(value) is Pending else msgspec.Raw(_walked(value).encode())

    return msgspec.json.Encoder(enc_hook=raw).encode


class _Shape:
    """What was found out about a class of states.

    unsure: returns the values of fields for which msgspec's text may differ from JSONB's. timed: the names of
    fields that may contain a time, and a function that returns their values.
    """

    def __init__(self, kind: type[Any]) -> None:
        self.encode = _encoder()
        self._names = names = _kept(kind)
        self._values = _values_of(names)
        self.has_tree = len(names) < len(dataclasses.fields(kind))
        hints = _hints(kind)
        unsure = [name for name in names if not _is_plain(hints.get(name, Any))]
        self.unsure = _values_of(unsure) if unsure else None
        timed = tuple(name for name in names if not _is_timeless(hints.get(name, Any)))
        self.timed = timed, _values_of(timed)

    def kept(self, state: Any) -> dict[str, Any]:
        """The fields of a state that are kept."""
        return dict(zip(self._names, self._values(state)))  # noqa: B905  equally long; strict costs time


def _shape_of(kind: type[Any]) -> _Shape | None:
    walked = (str, int, float, datetime, Enum, Mapping, tuple, list, frozenset, set)
    return _Shape(kind) if dataclasses.is_dataclass(kind) and not issubclass(kind, walked) else None


def _values_of(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that returns the values of these fields."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda state: tuple(getattr(state, name) for name in names)


def _is_plain(hint: Any) -> bool:
    """Whether JSONB keeps msgspec's text of every value of this type unchanged."""
    if get_origin(hint) in (tuple, UnionType, Union):
        return all(part is Ellipsis or _is_plain(part) for part in get_args(hint))
    if not isinstance(hint, type) or get_args(hint):
        return False
    if issubclass(hint, Enum):
        return all(isinstance(one.value, str | int) for one in hint)
    if dataclasses.is_dataclass(hint):
        hints, kept = _hints(hint), _kept(hint)
        return len(kept) == len(dataclasses.fields(hint)) and all(_is_plain(hints.get(n, Any)) for n in kept)
    if issubclass(hint, tuple):
        return hasattr(hint, "_fields") and all(map(_is_plain, _hints(hint).values()))
    return hint in _PLAIN


def _is_timeless(hint: Any) -> bool:
    """Whether no time is in any value of this type."""
    if get_origin(hint) in (tuple, UnionType, Union):
        return all(part is Ellipsis or _is_timeless(part) for part in get_args(hint))
    return isinstance(hint, type) and (hint in _TIMELESS or issubclass(hint, Enum))


def _as_jsonb(value: Any) -> bool:
    """Whether JSONB keeps msgspec's text of this value unchanged; our own mappings go through the walk."""
    kind = type(value)
    if kind in _PLAIN or kind is FrozenDict:
        return True
    if kind is float:
        return 1e-4 <= abs(value) < 1e16 or str(value) == "0.0"  # no exponent, and a number
    if kind is tuple:
        return all(map(_as_jsonb, value))
    shape = _shape(kind)
    if shape is None or shape.has_tree:
        return False
    return shape.unsure is None or all(map(_as_jsonb, shape.unsure(value)))


# Reading


def load(kind: type[S], data: str | bytes, *, frozen: bool = True) -> S:
    """The state in JSON text that `dump` wrote, as deeply frozen as a folded one. Raises UnreadableState.

    frozen: False leaves mappings as dicts, in a quarter of the time, for who only reads them.
    """
    try:
        state = decoder(kind)(data)
        return cast("S", _solid(state) if frozen and not _is_solid(kind) else state)
    except Exception as error:  # of msgspec, of pydantic, of the class
        raise UnreadableState(str(error)) from error


def load_each(kind: type[S], texts: Sequence[str], *, frozen: bool = True) -> list[S]:
    """The states in many texts, read in one call, which takes half the time. Raises UnreadableState.

    frozen: as in `load`.
    """
    try:
        states: list[S] = decoder(list[kind])(f"[{','.join(texts)}]")  # type: ignore[valid-type]
        return states if not frozen or _is_solid(kind) else [cast("S", _solid(state)) for state in states]
    except Exception as error:
        raise UnreadableState(str(error)) from error


def _decoder_of(kind: Any) -> Callable[[str | bytes], Any]:
    """The function that reads it: msgspec's; for pydantic's own types and unions of texts, pydantic's."""
    import msgspec

    with _one_decoder_at_a_time:
        try:
            return msgspec.json.Decoder(kind).decode
        except (TypeError, NameError):
            return _adapter(kind).validate_json


def _adapter_of(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter  # late: nearly nobody needs it

    return TypeAdapter(kind)


def _solid(value: Any) -> Any:
    """The value with everything mutable in it frozen; its dataclasses are new, so changed in place."""
    if type(value) is dict and not value:
        return FrozenDict()
    match value:
        case None | str() | int() | float():
            return value
        case Mapping():
            return FrozenDict({key: _solid(item) for key, item in value.items()})
        case list() | tuple():
            items = map(_solid, value)
            return type(value)._make(items) if hasattr(value, "_make") else tuple(items)
        case set():
            return frozenset(value)
        case _ if dataclasses.is_dataclass(value):
            for name in _kept(type(value)):
                if type(item := getattr(value, name)) not in _LEAVES:
                    object.__setattr__(value, name, _solid(item))
            return value
        case _:
            return value


def _solid_as_read(kind: type[Any]) -> bool:
    """Whether values of this type are read without anything mutable, so that nothing must be frozen."""
    hints = _hints(kind)
    return all(_is_solid_type(hints.get(name, Any)) for name in _kept(kind))


def _is_solid_type(hint: Any) -> bool:
    if isinstance(hint, type) and not get_args(hint):
        named = issubclass(hint, tuple) and hasattr(hint, "_fields")
        fields = _hints(hint).values() if named else ()
        return (named or issubclass(hint, _SOLID)) and all(map(_is_solid_type, fields))
    if get_origin(hint) in (tuple, UnionType, Union):
        return all(part is Ellipsis or _is_solid_type(part) for part in get_args(hint))
    return False


# Stamping


def stamped(state: S, at: datetime) -> S:
    """The same state with every Pending time replaced by the database's time of the append."""
    shape = _shape(type(state))
    if shape is None:
        return state
    names, values = shape.timed
    changes = {}
    for name, value in zip(names, values(state)):  # noqa: B905  as long as each other, and strict costs time
        kind = type(value)
        if kind is Pending:
            changes[name] = at
        elif kind not in _LEAVES and (new := _stamped(value, at)) is not value:
            changes[name] = new
    return changed(state, **changes) if changes else state


def _stamped(value: Any, at: datetime) -> Any:
    """The value with pending times replaced; the value itself where there are none."""
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


# Facts about classes, computed once per class.


def _kept_names(kind: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind) if "tree" not in field.metadata)


def _hints(kind: type[Any]) -> dict[str, Any]:
    """The types of a class's fields; none where one is not known at run time."""
    try:
        return get_type_hints(kind)
    except NameError:
        return {}


_LEAVES = frozenset({str, int, float, bool, NoneType, datetime})
_TIMELESS = frozenset({str, int, float, bool, NoneType})
_PLAIN = frozenset({str, int, bool, NoneType, datetime, Pending})
_SOLID = (str, int, float, bool, NoneType, datetime, Enum)

_one_decoder_at_a_time = Lock()
"""msgspec lets other threads see what it keeps of a class before it is complete; to use that is a crash."""

# Plain callables to the type checker: to it, a class is not always hashable.
_kept: Callable[[Any], tuple[str, ...]] = cache(_kept_names)
_encoder = cache(_new_encoder)
_shape: Callable[[Any], _Shape | None] = cache(_shape_of)
decoder: Callable[[Any], Callable[[str | bytes], Any]] = cache(_decoder_of)
"""Returns the function that reads JSON text of a type, any number of threads at once; it freezes nothing."""
_adapter: Callable[[Any], TypeAdapter[Any]] = cache(_adapter_of)
_is_solid: Callable[[Any], bool] = cache(_solid_as_read)
