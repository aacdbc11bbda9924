"""Views: lookups and aggregates, immutable all the way down, picklable, as plain values."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from ledger import BadName
from ledger.domain.frozen import FrozenDict
from ledger.pipelines import (
    Claim,
    Item,
    LSMChannelStateView,
    LSMProjectStateView,
    LSMSliceStateView,
    LSMStripId,
    LSMStripStateView,
    Status,
)

AT = datetime(2026, 1, 1, tzinfo=UTC)


def strip(strip_id: int, status: str = "completed", **fields: Any) -> LSMStripStateView:
    finished = AT if status in ("completed", "failed") else None
    return LSMStripStateView(
        slice_id=1,
        channel_id=0,
        strip_id=strip_id,
        status=Status(status),
        processing_finished_at=finished,
        **fields,
    )


def channel(*strips: LSMStripStateView) -> LSMChannelStateView:
    return LSMChannelStateView(
        slice_id=1, channel_id=0, status=Status.PENDING, strips=FrozenDict({s.strip_id: s for s in strips})
    )


def ended(view: Any, status: Status = Status.COMPLETED) -> Any:
    return dataclasses.replace(view, status=status, processing_finished_at=AT)


@pytest.fixture
def project() -> LSMProjectStateView:
    held = channel(strip(1), strip(2, "failed"))
    other = dataclasses.replace(held, channel_id=1, strips=FrozenDict({7: strip(7)}))
    one = LSMSliceStateView(slice_id=1, channels=FrozenDict({0: held, 1: other}))
    return LSMProjectStateView(
        project_name="p", slices=FrozenDict({1: one, 3: LSMSliceStateView(slice_id=3)})
    )


@pytest.mark.parametrize(
    ("strips", "total", "completed", "succeeded"),
    [
        ([], 0, True, True),
        ([], 1, False, False),
        ([strip(1), strip(2)], 2, True, True),
        ([strip(1), strip(2)], 3, False, False),
        ([strip(1), strip(3)], 2, False, False),
        ([strip(0), strip(1)], 2, False, False),
        ([strip(0, "running"), strip(1), strip(2), strip(9, "pending")], 2, True, True),
        ([strip(1), strip(2, "failed")], 2, True, False),
        ([strip(1), strip(2, "running")], 2, False, False),
    ],
)
def test_aggregates_count_the_ids_from_one(
    strips: list[LSMStripStateView], total: int, completed: bool, succeeded: bool
) -> None:
    assert channel(*strips).all_completed(total) is completed
    assert channel(*strips).all_succeeded(total) is succeeded


def test_all_compressed_looks_at_the_flag_alone() -> None:
    assert channel(strip(1, "running", compressed=True)).all_compressed(1)
    assert not channel(strip(1, compressed=True), strip(2)).all_compressed(2)
    assert not channel(strip(1, compressed=True)).all_compressed(2)


def test_slices_and_projects_look_at_their_children_alone(project: LSMProjectStateView) -> None:
    one = project.slices[1]
    assert not one.all_finished()
    done = dataclasses.replace(one, channels=FrozenDict({1: ended(one.channels[1], Status.FAILED)}))
    assert done.all_finished()
    assert not done.all_succeeded()
    assert not done.all_finished(2)
    assert not project.all_finished()
    whole = dataclasses.replace(project, slices=FrozenDict({1: ended(one)}))
    assert whole.all_finished()
    assert whole.all_succeeded()
    assert not whole.all_finished(total_slices=2)
    assert whole.all_finished(0)


@pytest.mark.parametrize("total", [-1, True, 1.5, None])
def test_a_total_is_a_count(total: Any) -> None:
    for ask in (
        channel().all_completed,
        channel().all_compressed,
        LSMSliceStateView(slice_id=1).all_finished,
    ):
        with pytest.raises(BadName, match="the total"):
            ask(total)


def test_lookups_give_none_for_missing_parts(project: LSMProjectStateView) -> None:
    assert project.get_slice(1) is project.slices[1]
    assert project.get_slice(2) is None
    assert project.get_channel_by_parts(1, 0) is project.slices[1].channels[0]
    assert project.get_channel_by_parts(1, 5) is None
    assert project.get_channel_by_parts(2, 0) is None
    found = project.get_strip(LSMStripId("p", 1, 0, 2))
    assert found is project.get_strip_by_parts(1, 2, 0) is project.slices[1].channels[0].strips[2]
    assert project.get_strip_by_parts(1, 7) is project.slices[1].channels[1].strips[7]
    for missing in ((1, 9, 0), (1, 1, 9), (9, 1, 0), (3, 1, 0)):
        assert project.get_strip_by_parts(*missing) is None


def test_iter_strips_goes_by_id(project: LSMProjectStateView) -> None:
    assert [each.strip_id for each in project.iter_strips()] == [1, 2, 7]


CHANGES: list[Callable[[LSMProjectStateView], object]] = [
    lambda view: setattr(view, "project_name", "q"),
    lambda view: setattr(view.slices[1].channels[0].strips[1], "uploaded", True),
    lambda view: view.slices.__setitem__(2, view.slices[1]),  # type: ignore[attr-defined]
    lambda view: view.slices[1].channels.pop(0),  # type: ignore[attr-defined]
    lambda view: view.slices[1].channels[0].strips.clear(),  # type: ignore[attr-defined]
    lambda view: setattr(view.slices, "_items", {}),
    lambda view: setattr(view, "new", 1),
]


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_in_a_view_can_be_changed(
    project: LSMProjectStateView, change: Callable[[LSMProjectStateView], object]
) -> None:
    before = copy.deepcopy(project)
    with pytest.raises((AttributeError, TypeError)):
        change(project)
    assert project == before


def test_a_view_is_pickled_and_compared_by_value(project: LSMProjectStateView) -> None:
    again = pickle.loads(pickle.dumps(project))
    assert again == project
    assert hash(again) == hash(project)
    with pytest.raises(AttributeError):
        again.slices[1].channels[0].strips[1].uploaded = True


def test_a_view_as_plain_values_is_json(project: LSMProjectStateView) -> None:
    plain = json.loads(json.dumps(project.to_dict()))
    assert plain["slices"]["1"]["channels"]["0"]["strips"]["2"] == {
        "processing_state": "failed",
        "created_at": None,
        "updated_at": None,
        "processing_started_at": None,
        "processing_finished_at": "2026-01-01T00:00:00+00:00",
        "attempts": 0,
        "reason": None,
        "under_way": [],
        "slice_id": 1,
        "channel_id": 0,
        "strip_id": 2,
        "archived": False,
        "compressed": False,
        "uploaded": False,
    }


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Noted(Item):
    """A view with a field of a user's own."""

    notes: tuple[str, ...] = ()


def test_a_field_of_ones_own_may_be_a_tuple() -> None:
    noted = Noted(notes=("sharp",), under_way=(Claim("uploaded", 3),)).to_dict()
    assert (noted["notes"], noted["under_way"]) == (["sharp"], ["uploaded"])
