"""The numbering of mosaics: one rule, from 1, for any number of mosaics a slice (spec S0-43, S0-44)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import BadInput
from ledger.pipelines import (
    first_mosaic_for_slice,
    logical_mosaic,
    logical_slice,
    position_in_slice,
    slice_of_mosaic,
)

some = st.integers(1, 10**6)
few = st.integers(1, 7)


@pytest.mark.parametrize(
    ("mosaics_per_slice", "slices", "positions"),
    [
        (1, [1, 2, 3, 4, 5, 6, 7], [1, 1, 1, 1, 1, 1, 1]),
        (2, [1, 1, 2, 2, 3, 3, 4], [1, 2, 1, 2, 1, 2, 1]),
        (3, [1, 1, 1, 2, 2, 2, 3], [1, 2, 3, 1, 2, 3, 1]),
    ],
)
def test_slices_and_positions_of_the_first_mosaics(
    mosaics_per_slice: int, slices: list[int], positions: list[int]
) -> None:
    assert [slice_of_mosaic(m, mosaics_per_slice) for m in range(1, 8)] == slices
    assert [position_in_slice(m, mosaics_per_slice) for m in range(1, 8)] == positions


def test_a_slice_has_two_mosaics_where_nothing_is_said() -> None:
    assert [slice_of_mosaic(m) for m in (1, 2, 3)] == [1, 1, 2]
    assert [position_in_slice(m) for m in (1, 2, 3)] == [1, 2, 1]
    assert [first_mosaic_for_slice(s) for s in (1, 2, 3)] == [1, 3, 5]
    assert [first_mosaic_for_slice(s, 3) for s in (1, 2, 3)] == [1, 4, 7]


@given(some, few)
def test_a_mosaic_is_its_slice_and_its_position(mosaic_id: int, per_slice: int) -> None:
    slice_id = slice_of_mosaic(mosaic_id, per_slice)
    position = position_in_slice(mosaic_id, per_slice)
    assert 1 <= position <= per_slice
    assert first_mosaic_for_slice(slice_id, per_slice) + position - 1 == mosaic_id
    assert slice_of_mosaic(first_mosaic_for_slice(slice_id, per_slice), per_slice) == slice_id


@given(some, few, st.integers(-(10**6), 10**6))
def test_an_offset_moves_the_slice_and_keeps_the_position(
    mosaic_id: int, per_slice: int, offset: int
) -> None:
    source = slice_of_mosaic(mosaic_id, per_slice)
    if source + offset < 1:
        with pytest.raises(ValueError, match="slice_offset"):
            logical_mosaic(mosaic_id, offset, per_slice)
        return
    moved = logical_mosaic(mosaic_id, offset, per_slice)
    assert slice_of_mosaic(moved, per_slice) == logical_slice(source, offset) == source + offset
    assert position_in_slice(moved, per_slice) == position_in_slice(mosaic_id, per_slice)
    assert logical_mosaic(moved, -offset, per_slice) == mosaic_id


def test_a_scan_may_count_its_slices_from_zero() -> None:
    assert logical_slice(0, 1) == 1
    assert logical_slice(4) == 4
    assert logical_slice(5, -4) == 1


def test_an_offset_below_the_first_slice_names_offset_and_source() -> None:
    with pytest.raises(ValueError) as raised:
        logical_slice(3, -5)
    assert str(raised.value) == "slice_offset -5 maps source slice 3 to slice -2; slices count from 1"
    with pytest.raises(ValueError, match="slice_offset 0 maps source slice 0 to slice 0"):
        logical_slice(0)


@pytest.mark.parametrize("of", [slice_of_mosaic, position_in_slice, logical_mosaic])
@pytest.mark.parametrize("bad", [0, -1, True, None, "1", 1.0, 2**63], ids=repr)
def test_a_bad_mosaic_is_refused_by_name(of: Callable[[Any], int], bad: Any) -> None:
    with pytest.raises(BadInput, match=r"mosaic_id .* must be"):
        of(bad)


def test_a_mosaic_or_slice_before_the_first_says_so() -> None:
    with pytest.raises(ValueError) as raised:
        slice_of_mosaic(0)
    assert str(raised.value) == "mosaic_id 0 must be 1 or more: slices and their mosaics count from 1"
    with pytest.raises(ValueError, match="slice_id 0 must be 1 or more"):
        first_mosaic_for_slice(0)


@pytest.mark.parametrize("bad", [0, -2, True, None, "2", 2.0], ids=repr)
def test_a_slice_has_at_least_one_mosaic(bad: Any) -> None:
    for of in (slice_of_mosaic, position_in_slice, first_mosaic_for_slice):
        with pytest.raises(BadInput, match=r"mosaics_per_slice .* must be"):
            of(1, bad)


@pytest.mark.parametrize("bad", [True, None, "1", 1.0], ids=repr)
def test_an_offset_is_an_integer(bad: Any) -> None:
    with pytest.raises(BadInput, match=r"slice_offset .* must be an integer"):
        logical_slice(3, bad)
