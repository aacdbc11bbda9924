"""Arrays and records in PostgreSQL's binary form: what psycopg makes of them too, at several times the cost.

Only for calls in libpq's own words (`Line.call`); a connection of the user's has its own ways to say things.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

BINARY: Final = 1
"""The format of `texts` and `raws` to libpq; `integers` are text."""

_TEXT, _BYTEA = 25, 17
_ARRAY = Struct(">iiiii")
"""Dimensions, whether there may be nulls, type of the elements, how many, first index; then each of them."""
_COLUMN = Struct(">ii")
"""Type and length of a column; the value follows. In an array the length alone."""
_COUNT = Struct(">i")
_VERSION = Struct(">4xq")
_NULL = _COUNT.pack(-1)


def texts(values: Sequence[str | None] | None) -> bytes | None:
    """A text[] of UTF-8."""
    if values is None:
        return None
    return _array(_TEXT, [None if value is None else value.encode() for value in values])


def raws(values: Sequence[bytes | None] | None) -> bytes | None:
    """A bytea[]."""
    return None if values is None else _array(_BYTEA, values)


def integers(values: Sequence[int]) -> bytes:
    """An array of any integers, as text."""
    return b"{%s}" % ",".join(map(str, values)).encode()


def versions(array: bytes) -> list[int]:
    """What a bigint[] without nulls holds."""
    return [version for (version,) in _VERSION.iter_unpack(array[_ARRAY.size :])]


def columns(record: bytes) -> list[bytes | None]:
    """The columns of a record."""
    (count,) = _COUNT.unpack_from(record)
    found: list[bytes | None] = []
    place = _COUNT.size
    for _ in range(count):
        _, size = _COLUMN.unpack_from(record, place)
        place += _COLUMN.size
        found.append(None if size < 0 else record[place : place + size])
        place += max(size, 0)
    return found


def _array(kind: int, values: Sequence[bytes | None]) -> bytes:
    parts = [_ARRAY.pack(1, 1, kind, len(values), 1)]
    for value in values:
        parts += (_NULL,) if value is None else (_COUNT.pack(len(value)), value)
    return b"".join(parts)
