"""PS-OCT views: aggregates exactly as the spec counts, lookups, plain values (spec S0-41, S0-42)."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime
from typing import Any

import pytest

from ledger import BadName
from ledger.domain.frozen import FrozenDict
from ledger.pipelines import (
    OCTBatchStateView,
    OCTMosaicStateView,
    OCTProjectStateView,
    OCTSliceStateView,
    OCTStateService,
    Status,
)

AT = datetime(2026, 1, 1, tzinfo=UTC)


def times(status: str) -> dict[str, Any]:
    return {
        "status": Status(status),
        "processing_finished_at": AT if status in ("completed", "failed") else None,
    }


def batch(batch_id: int, status: str = "completed", **fields: Any) -> OCTBatchStateView:
    return OCTBatchStateView(slice_id=1, mosaic_id=2, batch_id=batch_id, **times(status), **fields)


def mosaic(mosaic_id: int, status: str = "completed", *batches: OCTBatchStateView, **fields: Any) -> Any:
    below = FrozenDict({each.batch_id: each for each in batches})
    return OCTMosaicStateView(slice_id=1, mosaic_id=mosaic_id, batches=below, **times(status), **fields)


def slice_of(*mosaics: Any) -> OCTSliceStateView:
    return OCTSliceStateView(slice_id=1, mosaics=FrozenDict({each.mosaic_id: each for each in mosaics}))


@pytest.fixture
def project() -> OCTProjectStateView:
    one = slice_of(mosaic(1, "completed", batch(1), batch(2, "failed")), mosaic(2, "pending", batch(7)))
    other = OCTSliceStateView(slice_id=3, mosaics=FrozenDict({5: mosaic(5)}))
    return OCTProjectStateView(project_name="p", slices=FrozenDict({1: one, 3: other}))


@pytest.mark.parametrize(
    ("batches", "total", "done", "succeeded"),
    [
        ([], 0, False, False),
        ([], 1, False, False),
        ([batch(5, "pending")], 0, True, True),
        ([batch(1), batch(2)], 2, True, True),
        ([batch(1), batch(2)], 3, False, False),
        ([batch(1), batch(3)], 2, False, False),
        ([batch(0), batch(1)], 2, False, False),
        ([batch(0, "running"), batch(1), batch(2), batch(9, "pending")], 2, True, True),
        ([batch(1), batch(2, "failed")], 2, True, False),
        ([batch(1), batch(2, "running")], 2, False, False),
    ],
)
def test_all_batches_done_needs_a_batch_and_counts_the_ids_from_one(
    batches: list[OCTBatchStateView], total: int, done: bool, succeeded: bool
) -> None:
    view = mosaic(2, "pending", *batches)
    assert view.all_batches_done(total) is done
    assert view.all_batches_succeeded(total) is succeeded


@pytest.mark.parametrize(
    ("mosaics", "total", "done", "succeeded"),
    [
        ([], None, False, False),
        ([], 1, False, False),
        ([mosaic(1)], None, False, False),
        ([mosaic(1)], 0, False, False),
        ([mosaic(1)], 1, True, True),
        ([mosaic(7), mosaic(8)], None, True, True),
        ([mosaic(7), mosaic(8)], 0, True, True),
        ([mosaic(7), mosaic(8)], 2, True, True),
        ([mosaic(7), mosaic(8)], 3, False, False),
        ([mosaic(7), mosaic(8, "failed")], 2, True, False),
        ([mosaic(7), mosaic(8, "running")], 2, False, False),
        ([mosaic(7), mosaic(8), mosaic(9, "pending")], 2, False, False),
        ([mosaic(7), mosaic(8, "pending")], 1, False, False),
    ],
)
def test_all_mosaics_done_counts_what_is_there_whatever_its_ids(
    mosaics: list[Any], total: int | None, done: bool, succeeded: bool
) -> None:
    assert slice_of(*mosaics).all_mosaics_done(total) is done
    assert slice_of(*mosaics).all_mosaics_succeeded(total) is succeeded
    if total is None:
        assert slice_of(*mosaics).all_mosaics_done() is done


@pytest.mark.parametrize(
    ("stitched", "total", "answer"),
    [
        ([], None, False),
        ([True], None, False),
        ([True, True], None, True),
        ([True, True], 0, True),
        ([True, False], 1, False),
        ([True, True, False], 2, False),
        ([True, True, True], 2, True),
        ([True], 1, True),
    ],
)
def test_all_mosaics_enface_stitched_looks_at_the_flag_alone(
    stitched: list[bool], total: int | None, answer: bool
) -> None:
    states = ("pending", "failed", "running")
    view = slice_of(
        *(mosaic(i, states[i % 3], enface_stitched=flag) for i, flag in enumerate(stitched, 1)),
    )
    assert view.all_mosaics_enface_stitched(total) is answer
    assert not slice_of(mosaic(1), mosaic(2)).all_mosaics_enface_stitched()


@pytest.mark.parametrize("total", [-1, True, 1.5, "2"])
def test_a_total_is_a_count(total: Any) -> None:
    for ask in (
        mosaic(1).all_batches_done,
        mosaic(1).all_batches_succeeded,
        slice_of().all_mosaics_done,
        slice_of().all_mosaics_succeeded,
        slice_of().all_mosaics_enface_stitched,
    ):
        with pytest.raises(BadName, match="the total"):
            ask(total)


def test_lookups_give_none_for_missing_parts(project: OCTProjectStateView) -> None:
    assert project.get_slice(1) is project.slices[1]
    assert project.get_mosaic(1, 2) is project.slices[1].get_mosaic(2) is project.slices[1].mosaics[2]
    found = project.get_batch(1, 1, 2)
    assert found is project.slices[1].mosaics[1].get_batch(2)
    assert found is not None
    assert found.processing_state == "failed"
    assert project.get_slice(2) is None
    assert project.get_mosaic(2, 1) is project.get_mosaic(1, 9) is None
    for missing in ((1, 1, 9), (1, 9, 1), (9, 1, 1), (3, 5, 1)):
        assert project.get_batch(*missing) is None


def test_iterations_go_by_id(project: OCTProjectStateView) -> None:
    assert [each.mosaic_id for each in project.iter_mosaics()] == [1, 2, 5]
    assert [each.batch_id for each in project.iter_batches()] == [1, 2, 7]
    assert [each.mosaic_id for each in project.slices[1].iter_mosaics()] == [1, 2]
    assert [each.batch_id for each in project.slices[1].mosaics[1].iter_batches()] == [1, 2]


def test_a_project_has_no_all_finished(project: OCTProjectStateView) -> None:
    assert not hasattr(project, "all_finished")


def test_lookups_and_aggregates_work_on_what_is_open(service: OCTStateService) -> None:
    with service.open_project("p") as opened:
        for mosaic_id in (2, 1):
            for batch_id in (2, 1):
                opened.get_or_create_batch(1, mosaic_id, batch_id).mark_completed()
            opened.get_or_create_mosaic(1, mosaic_id).set_enface_stitched()
        one = opened.get_slice(1)
        assert one is not None
        assert one.all_mosaics_enface_stitched()
        assert not one.all_mosaics_done()
        assert one.mosaics[1].all_batches_done(2)
        assert one.mosaics[1].all_batches_succeeded(2)
        assert not one.get_or_create_mosaic(3).all_batches_done(0)
        assert not one.all_mosaics_enface_stitched()
        assert [each.mosaic_id for each in opened.iter_mosaics()] == [1, 2, 3]
        assert [(each.mosaic_id, each.batch_id) for each in opened.iter_batches()] == [
            (m, b) for m in (1, 2) for b in (1, 2)
        ]
        assert opened.get_batch(1, 2, 1) is one.mosaics[2].get_batch(1)
    again = service.read_slice("p", slice_id=1)
    assert again is not None
    assert (again.all_mosaics_enface_stitched(), again.mosaics[2].all_batches_done(2)) == (False, True)


def test_a_view_as_plain_values_is_json(project: OCTProjectStateView) -> None:
    plain = json.loads(json.dumps(project.to_dict()))
    assert (plain["batches_per_mosaic"], plain["mosaics_per_slice"]) == (None, None)
    common = {"processing_state", "created_at", "updated_at", "attempts", "reason", "under_way"}
    common |= {"processing_started_at", "processing_finished_at"}
    found = plain["slices"]["1"]["mosaics"]["1"]["batches"]["2"]
    assert {name: value for name, value in found.items() if name not in common} == {
        "slice_id": 1,
        "mosaic_id": 2,
        "batch_id": 2,
        "complexed": False,
        "volume_processed": False,
        "enface_processed": False,
        "uploaded": False,
        "archived": False,
    }
    assert (found["processing_state"], found["processing_finished_at"]) == ("failed", AT.isoformat())
    assert pickle.loads(pickle.dumps(project)) == project
