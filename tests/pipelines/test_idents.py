"""Who an item is: idents, their text, their keys, and what they refuse."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import BadInput, BadName
from ledger.pipelines import LSMChannelId, LSMProjectId, LSMSliceId, LSMStripId, LSMStripState

STRIP = LSMStripId("p", 1, 2, 3)
BAD_IDS: list[Any] = [-1, True, False, None, "1", 1.0, float("nan"), 2**63, b"1", [1]]


def test_each_extends_the_former() -> None:
    assert issubclass(LSMStripId, LSMChannelId)
    assert issubclass(LSMChannelId, LSMSliceId)
    assert issubclass(LSMSliceId, LSMProjectId)
    assert LSMStripId(project_name="p", slice_id=1, channel_id=2, strip_id=3) == STRIP


def test_the_text_lists_keys_and_values() -> None:
    assert str(STRIP) == "project_name='p' slice_id=1 channel_id=2 strip_id=3"
    assert str(LSMProjectId("p")) == "project_name='p'"


def test_they_are_frozen_hashable_and_picklable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        STRIP.strip_id = 4  # type: ignore[misc]
    assert {STRIP: 1}[LSMStripId("p", 1, 2, 3)] == 1
    assert pickle.loads(pickle.dumps(STRIP)) == STRIP


@pytest.mark.parametrize("bad", BAD_IDS, ids=repr)
@pytest.mark.parametrize("place", ["slice_id", "channel_id", "strip_id"])
def test_bad_ids_are_refused_by_name(place: str, bad: Any) -> None:
    with pytest.raises(BadName, match=f"{place} .* must be an integer, 0 or more"):
        LSMStripId(**{"project_name": "p", "slice_id": 0, "channel_id": 0, "strip_id": 0, place: bad})


@pytest.mark.parametrize("bad", ["", None, 7, b"p", "a\0b", "\ud800", "x" * 2000], ids=ascii)
def test_bad_project_names_are_refused(bad: Any) -> None:
    with pytest.raises(BadName):
        LSMProjectId(bad)


@pytest.mark.parametrize("spelling", ["A_b", "a-b", "A-B", "a_B"])
def test_spellings_of_one_project_share_the_streams(spelling: str) -> None:
    assert LSMStripId(spelling, 1, 2, 3).key == ("a-b", 1, 2, 3)
    assert LSMStripState.name_of(spelling, 1, 2, 3) == "lsm.strip/a-b/1/2/3"


@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_other_projects_never_share_a_stream(one: str, other: str) -> None:
    try:
        idents = LSMSliceId(one, 1), LSMSliceId(other, 1)
    except BadName:
        return
    same = one.lower().replace("_", "-") == other.lower().replace("_", "-")
    assert (idents[0].key == idents[1].key) is same


def test_an_ident_or_a_name_with_ids() -> None:
    ids = {"slice_id": 1, "channel_id": 2, "strip_id": 3}
    assert LSMStripId.of("p", dict(ids)) == STRIP
    assert LSMStripId.of(STRIP, dict.fromkeys(ids)) is STRIP
    assert LSMSliceId.of(STRIP, {"slice_id": None}) == LSMSliceId("p", 1)


def test_what_names_too_little_or_too_much_is_refused() -> None:
    with pytest.raises(BadInput, match="is a LSMSliceId; a LSMStripId is needed here"):
        LSMStripId.of(LSMSliceId("p", 1), {})
    with pytest.raises(BadInput, match="not both"):
        LSMStripId.of(STRIP, {"slice_id": 1})
    with pytest.raises(BadInput, match="slice_id and strip_id must be given"):
        LSMStripId.of("p", {"channel_id": 1, "slice_id": None, "strip_id": None})
    with pytest.raises(BadInput, match="2 parts were given"):
        LSMStripState("p", 1)
