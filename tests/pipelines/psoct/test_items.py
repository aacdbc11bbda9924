"""What is permanent about the PS-OCT items: topics, cascades as the spec says them, totals of a plan."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import Any

import pytest

from ledger import BadInput
from ledger.domain.known import KNOWN
from ledger.pipelines import OCT, OCTBatchState, OCTMosaicState, OCTProjectState, OCTSliceState, OpenItem

START = datetime(2026, 1, 1, tzinfo=UTC)
FLAGS: dict[type[OpenItem[Any]], tuple[str, ...]] = {
    OCTProjectState: (),
    OCTSliceState: ("registered", "uploaded"),
    OCTMosaicState: ("enface_stitched", "volume_stitched", "enface_uploaded", "volume_uploaded"),
    OCTBatchState: ("complexed", "volume_processed", "enface_processed", "uploaded", "archived"),
}


def given(kind: type[OpenItem[Any]], *key: str | int) -> Any:
    """An item that was created, with every flag set."""
    facts = [KNOWN.events[f"{kind.CATEGORY}.{flag}"]() for flag in FLAGS[kind]]
    created = kind.FACTS.created(**({"project_name": "p"} if kind is OCTProjectState else {"under": 1}))
    return kind(*key, past=[(fact, START) for fact in [created, *facts]])


def flags_set(item: Any) -> set[str]:
    return {flag for flag in FLAGS[type(item)] if getattr(item, flag)}


def test_the_topics_are_these_for_ever() -> None:
    always = {"created", "touched", "started", "completed", "failed", "pending", "deleted", "reset"}
    always |= {"entered", "left"}
    wanted = {f"{kind.CATEGORY}.{word}" for kind in OCT for word in (*always, *FLAGS[kind])}
    wanted |= {"psoct.project.planned"}
    levels = tuple(f"{kind.CATEGORY}." for kind in OCT)
    assert [kind.CATEGORY for kind in OCT] == ["psoct.project", "psoct.slice", "psoct.mosaic", "psoct.batch"]
    assert {
        t for t in KNOWN.events if t.startswith(levels) and t.count(".") == 2 and not t.endswith(".ready")
    } == wanted
    for topic in wanted:
        assert pickle.loads(pickle.dumps(KNOWN.events[topic])) is KNOWN.events[topic]


def test_a_batch_that_is_complexed_anew_is_processed_anew() -> None:
    batch = given(OCTBatchState, "p", 1, 2, 3)
    batch.reset_complexed()
    assert flags_set(batch) == {"uploaded", "archived"}


def test_a_batch_that_is_archived_anew_is_uploaded_anew() -> None:
    batch = given(OCTBatchState, "p", 1, 2, 3)
    batch.reset_archived()
    assert flags_set(batch) == {"complexed", "volume_processed", "enface_processed"}


@pytest.mark.parametrize("flag", ["volume_processed", "enface_processed", "uploaded"])
def test_the_others_of_a_batch_fall_alone(flag: str) -> None:
    batch = given(OCTBatchState, "p", 1, 2, 3)
    getattr(batch, f"reset_{flag}")()
    assert flags_set(batch) == {*FLAGS[OCTBatchState]} - {flag}


@pytest.mark.parametrize(
    ("flag", "left"),
    [
        ("enface_stitched", {"volume_stitched", "volume_uploaded"}),
        ("volume_stitched", {"enface_stitched", "enface_uploaded"}),
        ("enface_uploaded", {"enface_stitched", "volume_stitched", "volume_uploaded"}),
        ("volume_uploaded", {"enface_stitched", "volume_stitched", "enface_uploaded"}),
    ],
)
def test_a_mosaic_loses_the_upload_of_what_is_stitched_anew(flag: str, left: set[str]) -> None:
    mosaic = given(OCTMosaicState, "p", 1, 2)
    getattr(mosaic, f"reset_{flag}")()
    assert flags_set(mosaic) == left


def test_a_slice_that_is_registered_anew_is_uploaded_anew() -> None:
    one = given(OCTSliceState, "p", 1)
    one.reset_uploaded()
    assert flags_set(one) == {"registered"}
    one.set_uploaded()
    one.reset_registered()
    assert flags_set(one) == set()


def test_a_project_plans_both_numbers_and_no_others() -> None:
    project = given(OCTProjectState, "p")
    project.plan(batches_per_mosaic=30)
    project.plan(mosaics_per_slice=3, batches_per_mosaic=30)
    assert (project.batches_per_mosaic, project.mosaics_per_slice) == (30, 3)
    with pytest.raises(BadInput, match="its totals: batches_per_mosaic, mosaics_per_slice"):
        project.plan(strips_per_slice=4)
    with pytest.raises(BadInput, match=r"no total of psoct\.slice; its totals: none"):
        given(OCTSliceState, "p", 1).plan(mosaics_per_slice=3)
