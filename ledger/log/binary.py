"""
PostgreSQL's binary format of arrays and records, as the calls of an append send and read them.

psycopg gives the same result at several times the cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from struct import Struct
from typing import Any, Final

TEXT: Final = 25
BYTEA: Final = 17
"""The types of an array's elements, as their object ids."""
_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
_ARRAY: Final = Struct(">iiiii")
"""Header of an array: dimensions, whether it may contain nulls, element type, length, first index."""
_COLUMN: Final = Struct(">ii")
"""Type and length of a column; the value follows. An element of an array has only the length."""
_COUNT: Final = Struct(">i")
_NUMBER: Final = Struct(">4xq")
_NULL: Final = _COUNT.pack(-1)

number: Callable[[bytes], int] = partial(int.from_bytes, byteorder="big", signed=True)
"""An integer of any size."""


def time_of(micros: int) -> datetime:
    """A time, which PostgreSQL counts in microseconds since 2000."""
    return _EPOCH + timedelta(microseconds=micros)


def micros_of(time: datetime) -> int:
    """The same number of a time that psycopg has read."""
    return (time - _EPOCH) // timedelta(microseconds=1)


def array(values: Sequence[Any], kind: int = TEXT) -> bytes | None:
    """A text[] or bytea[]; null if it has values and all of them are null."""
    parts = [_ARRAY.pack(1, 1, kind, len(values), 1)]
    for value in values:
        if value is None:
            parts.append(_NULL)
        else:
            raw = value if kind == BYTEA else value.encode()
            parts += (_COUNT.pack(len(raw)), raw)
    return None if values and values.count(None) == len(values) else b"".join(parts)


def text(value: str) -> bytes:
    """An element of a text[]."""
    raw = value.encode()
    return _COUNT.pack(len(raw)) + raw


def optional(value: str | None) -> bytes:
    """An element of a text[] that may be null."""
    return _NULL if value is None else text(value)


def joined(elements: Sequence[bytes]) -> bytes:
    """A text[] of these elements."""
    return _ARRAY.pack(1, 1, TEXT, len(elements), 1) + b"".join(elements)


def integers(values: Sequence[int]) -> bytes:
    """An array of any integers: in the format of texts."""
    return b"{%s}" % ",".join(map(str, values)).encode()


def columns(record: bytes) -> list[bytes | None]:
    """The columns of a record."""
    (count,), place = _COUNT.unpack_from(record), _COUNT.size
    found: list[bytes | None] = []
    for _ in range(count):
        _, size = _COLUMN.unpack_from(record, place)
        place += _COLUMN.size
        found.append(None if size < 0 else record[place : place + size])
        place += max(size, 0)
    return found


def elements(array: bytes | None) -> list[bytes | None]:
    """The elements of an array."""
    assert array is not None
    found, place, end = list[bytes | None](), _ARRAY.size, len(array)
    while place < end:
        (size,) = _COUNT.unpack_from(array, place)
        place += _COUNT.size
        found.append(None if size < 0 else array[place : place + size])
        place += max(size, 0)
    return found


def texts(array: bytes | None) -> list[str]:
    """The elements of a text[]; None for a null, where the caller expects one."""
    return [None if one is None else one.decode() for one in elements(array)]  # type: ignore[misc]


def numbers(array: bytes | None) -> list[int]:
    """The elements of a bigint[] or timestamptz[] without nulls."""
    assert array is not None
    return [each for (each,) in _NUMBER.iter_unpack(array[_ARRAY.size :])]
