"""
The mosaics of each slice: the numbering of the PS-OCT pipeline, in one place (spec S0-43, S0-44).

Mosaic ids are unique in a whole project: with n mosaics a slice, slice 1 has mosaics 1 … n, slice 2 has
n + 1 … 2n. One rule, `slice_of_mosaic`, applies wherever a slice is not given (W0-09); slices and positions
count from 1. Where a scan begins at another slice than its project, `slice_offset` is the difference:
the project uses logical ids, the scan source ids.

All functions raise BadName, a ValueError, which names the wrong number.
"""

from __future__ import annotations

from typing import Final

from ..domain.names import checked_id
from ..errors import BadName

MOSAICS_PER_SLICE: Final = 2
"""The default number of mosaics of a slice."""


def slice_of_mosaic(mosaic_id: int, mosaics_per_slice: int = MOSAICS_PER_SLICE) -> int:
    """The slice of a mosaic: (m - 1) // n + 1."""
    return (_from_one("mosaic_id", mosaic_id) - 1) // checked_mosaics_per_slice(mosaics_per_slice) + 1


def position_in_slice(mosaic_id: int, mosaics_per_slice: int = MOSAICS_PER_SLICE) -> int:
    """The position of a mosaic in its slice, from 1 to n: (m - 1) % n + 1."""
    return (_from_one("mosaic_id", mosaic_id) - 1) % checked_mosaics_per_slice(mosaics_per_slice) + 1


def first_mosaic_for_slice(slice_id: int, mosaics_per_slice: int = MOSAICS_PER_SLICE) -> int:
    """The mosaic at position 1 of a slice: n * (s - 1) + 1."""
    return checked_mosaics_per_slice(mosaics_per_slice) * (_from_one("slice_id", slice_id) - 1) + 1


def logical_slice(source_slice_id: int, slice_offset: int = 0) -> int:
    """The slice of the project that a scan calls `source_slice_id`: source + offset, 1 or more."""
    checked_id("source_slice_id", source_slice_id)
    if type(slice_offset) is not int:
        raise BadName("slice_offset", slice_offset, "must be an integer")
    logical = source_slice_id + slice_offset
    if logical < 1:
        wrong = f"maps source slice {source_slice_id} to slice {logical}; slices count from 1"
        raise BadName("slice_offset", slice_offset, wrong)
    return logical


def logical_mosaic(
    source_mosaic_id: int, slice_offset: int = 0, mosaics_per_slice: int = MOSAICS_PER_SLICE
) -> int:
    """The mosaic of the project that a scan calls `source_mosaic_id`: at the same position in its slice."""
    source_slice_id = slice_of_mosaic(source_mosaic_id, mosaics_per_slice)
    first = first_mosaic_for_slice(logical_slice(source_slice_id, slice_offset), mosaics_per_slice)
    return first + position_in_slice(source_mosaic_id, mosaics_per_slice) - 1


def checked_mosaics_per_slice(mosaics_per_slice: int) -> int:
    """The number itself. Raises BadName where a slice cannot have so many mosaics."""
    return _from_one("mosaics_per_slice", mosaics_per_slice)


def _from_one(what: str, value: int) -> int:
    checked_id(what, value)
    if value < 1:
        raise BadName(what, value, "must be 1 or more: slices and their mosaics count from 1")
    return value
