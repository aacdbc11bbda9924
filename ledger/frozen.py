"""Values that cannot be changed, all the way down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class FrozenDict(Mapping[K, V]):
    """A mapping that cannot be changed; equal to any mapping with the same items, and pickled by value."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[K, V] | None = None) -> None:
        object.__setattr__(self, "_items", dict(items or {}))

    def __getitem__(self, key: K) -> V:
        return self._items[key]  # type: ignore[no-any-return, attr-defined]

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)  # type: ignore[attr-defined]

    def __len__(self) -> int:
        return len(self._items)  # type: ignore[attr-defined]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a FrozenDict cannot be changed")

    def __reduce__(self) -> tuple[type[FrozenDict[K, V]], tuple[dict[K, V]]]:
        return FrozenDict, (dict(self._items),)  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"FrozenDict({self._items!r})"  # type: ignore[attr-defined]


def frozen(value: Any) -> Any:
    """The same value with every dict, list and set in it made unchangeable."""
    if type(value) in _LEAVES:
        return value
    match value:
        case Mapping():
            return FrozenDict({key: frozen(item) for key, item in value.items()})
        case tuple() if hasattr(value, "_make"):  # a named tuple stays one
            return value._make(frozen(item) for item in value)
        case list() | tuple():
            return tuple(frozen(item) for item in value)
        case set():
            return frozenset(value)
        case _:
            return value


_LEAVES = frozenset({str, int, float, bool, type(None)})
