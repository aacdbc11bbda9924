"""PS-OCT reports: batches of a mosaic, all mosaics, planned or not, keys, and their Markdown."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import BadInput, BadName
from projections.pipelines import (
    description,
    markdown,
    oct_all_mosaics,
    oct_mosaic_batches,
    oct_mosaic_report_key,
    oct_project_report_key,
)
from tests.projections.pipelines.trees import STATES, Children, psoct

FLAGS = ("complexed", "volume_processed", "enface_processed", "uploaded", "archived")
WORDS = st.builds(
    lambda state, flags: " ".join((state, *flags)),
    st.sampled_from(STATES),
    st.lists(st.sampled_from(FLAGS), unique=True),
)
MOSAICS = st.dictionaries(
    st.tuples(st.integers(0, 3), st.integers(0, 5)), st.dictionaries(st.integers(0, 6), WORDS, max_size=6)
)
DONE = "completed complexed volume_processed enface_processed"
PROJECT: Children = {
    (2, 3): {1: DONE},
    (1, 2): {2: f"{DONE} archived uploaded", 1: "running complexed", 3: "failed"},
    (1, 1): {},
}


# A mosaic.


def test_a_row_a_batch_by_its_id() -> None:
    report = oct_mosaic_batches(psoct(PROJECT), 2)
    assert report is not None
    marks = ("Enface processed", "Volume processed", "Complexed", "Archived", "Batch uploaded")
    no = dict.fromkeys(marks, "❌")
    assert report.records() == [
        {"Batch": 1, "Processing": "running"} | no | {"Complexed": "✅"},
        {"Batch": 2, "Processing": "completed"} | dict.fromkeys(marks, "✅"),
        {"Batch": 3, "Processing": "failed"} | no,
    ]
    assert (report.path["slice"], report.done, report.total, report.failed) == (1, 1, 3, 1)
    assert not report.complete


def test_a_planned_batch_that_is_missing_is_pending() -> None:
    planned = oct_mosaic_batches(psoct(PROJECT, batches_per_mosaic=2), 3)
    assert planned is not None
    assert (planned.rows[1].batch_id, planned.rows[1].complexed) == (2, False)
    assert planned.rows[1].cells() == (2, "pending", *["❌"] * 5)
    assert (planned.progress, planned.complete) == (50.0, False)
    assert planned == oct_mosaic_batches(psoct(PROJECT), 3, batches_per_mosaic=2)
    unplanned = oct_mosaic_batches(psoct(PROJECT), 3)
    assert unplanned is not None
    assert (unplanned.progress, unplanned.complete) == (100.0, True)


def test_batches_beyond_the_plan_are_told_and_not_counted() -> None:
    report = oct_mosaic_batches(psoct({(1, 1): dict.fromkeys((0, 1, 2, 5), DONE)}), 1, batches_per_mosaic=2)
    assert report is not None
    assert [row.batch_id for row in report.rows] == [1, 2]
    assert (report.done, report.total, report.beyond, report.complete) == (2, 2, 2, True)


def test_a_mosaic_without_batches_is_not_complete() -> None:
    for report in (
        oct_mosaic_batches(psoct(PROJECT), 1),
        oct_mosaic_batches(psoct(PROJECT), 3, batches_per_mosaic=0),
    ):
        assert report is not None
        assert (report.rows, report.total, report.progress, report.complete) == ((), 0, 0.0, False)
        assert "⏳ IN PROGRESS" in markdown(report)


def test_a_missing_mosaic_has_no_report() -> None:
    assert oct_mosaic_batches(psoct(PROJECT), 9) is None
    assert oct_mosaic_batches(psoct(PROJECT), 2, slice_id=2) is None
    assert oct_mosaic_batches(psoct({}), 1) is None


def test_a_mosaic_id_in_two_slices_needs_the_slice() -> None:
    view = psoct({(1, 2): {1: DONE}, (4, 2): {}})
    with pytest.raises(BadInput, match="mosaic 2 is in the slices 1, 4: give slice_id to choose one"):
        oct_mosaic_batches(view, 2)
    assert [report.total for i in (1, 4) if (report := oct_mosaic_batches(view, 2, slice_id=i))] == [1, 0]


@pytest.mark.parametrize("bad", [-1, True, 1.5, "4"])
def test_a_number_of_batches_is_a_count(bad: Any) -> None:
    with pytest.raises(BadName, match="batches_per_mosaic"):
        oct_all_mosaics(psoct(PROJECT), batches_per_mosaic=bad)


# All mosaics.


def test_a_row_a_mosaic_by_its_id() -> None:
    flags = {3: ["enface_stitched", "volume_stitched"], 2: ["enface_stitched", "enface_uploaded"]}
    report = oct_all_mosaics(psoct(PROJECT, flags=flags))
    yes, no = True, False
    fields = ("slice_id", "mosaic_id", "total", "started", "archived", "enface_processed", "uploaded")
    fields += ("enface_stitched", "enface_uploaded", "volume_stitched", "volume_uploaded")
    fields += ("failed", "running", "completed")
    assert [tuple(row.values[name] for name in fields) for row in report.rows] == [
        (1, 1, 0, 0, 0, 0, 0, no, no, no, no, 0, 0, 0),
        (1, 2, 3, 3, 1, 1, 1, yes, yes, no, no, 1, 1, 1),
        (2, 3, 1, 1, 0, 1, 0, yes, no, yes, no, 0, 0, 1),
    ]
    assert report.records()[2] == {
        "Mosaic ID": 3,
        "Total Batches": 1,
        "Started": 1,
        "Running": 0,
        "Completed": 1,
        "Archived": 0,
        "Enface processed": 1,
        "Uploaded": 0,
        "Enface Stitched": "✅",
        "Enface uploaded": "⏳",
        "3D Volume Stitched": "✅",
        "3D Volume Uploaded": "⏳",
    }
    assert (report.done, report.total, report.failed) == (2, 4, 1)
    assert [row.complete for row in report.rows] == [False, False, True]


def test_completed_batches_are_done_whatever_flags_they_have() -> None:
    """12 of 12 completed are 100 %, also where no enface image was made of them."""
    view = psoct({(1, 1): dict.fromkeys(range(1, 13), "completed")}, batches_per_mosaic=12)
    every, one = oct_all_mosaics(view), oct_mosaic_batches(view, 1)
    assert one is not None
    for report in (every, one):
        assert (report.done, report.total, report.progress) == (12, 12, 100.0)
        assert all(milestone.reached for milestone in report.milestones)
        assert "- Batches completed: 12/12 (100.0%)\n- Batches enface-processed: 0/12 (0.0%)\n" in markdown(
            report
        )
    assert (every.rows[0].completed, every.rows[0].progress, one.complete) == (12, 100.0, True)


def test_running_batches_are_told() -> None:
    report = oct_all_mosaics(psoct({(1, 1): {1: "running", 2: "running", 3: "pending"}}))
    assert (report.rows[0].running, report.rows[0].completed, report.done) == (2, 0, 0)
    assert "- Batches running: 2\n" in description(report)


def test_planned_batches_make_the_totals() -> None:
    report = oct_all_mosaics(psoct(PROJECT, batches_per_mosaic=2))
    assert [(row.total, row.enface_processed) for row in report.rows] == [(2, 0), (2, 1), (2, 1)]
    assert (report.total, report.done, report.beyond) == (6, 2, 1)
    assert oct_all_mosaics(psoct(PROJECT, batches_per_mosaic=2), batches_per_mosaic=2**62).total == 3 * 2**62


@given(MOSAICS, st.none() | st.integers(0, 7))
def test_the_rows_add_up_to_the_totals(mosaics: Children, batches: int | None) -> None:
    view = psoct(mosaics, batches_per_mosaic=batches)
    every = oct_all_mosaics(view)
    assert [(row.mosaic_id, row.slice_id) for row in every.rows] == sorted((m, s) for s, m in mosaics)
    assert every.done == sum(row.completed for row in every.rows) <= every.total
    assert every.total == sum(row.total for row in every.rows)
    assert 0.0 <= every.progress <= 100.0
    for row in every.rows:
        one = oct_mosaic_batches(view, row.mosaic_id, slice_id=row.slice_id)
        assert one is not None
        assert (one.done, one.total, one.failed) == (row.completed, row.total, row.failed)
        assert len(one.rows) == one.total
        assert one.progress == row.progress <= 100.0
        assert one.complete is row.complete is (row.progress == 100.0)
        assert row.started == sum(each.processing_state != "pending" for each in one.rows)
        assert row.started == row.running + row.completed + row.failed
        for flag in ("archived", "uploaded", "enface_processed"):
            assert getattr(row, flag) == sum(getattr(each, flag) for each in one.rows)
        for state in ("running", "completed"):
            assert getattr(row, state) == sum(each.processing_state == state for each in one.rows)
    there = sum(map(len, mosaics.values()))
    shown = [i for held in mosaics.values() for i in held if batches is None or 1 <= i <= batches]
    assert every.beyond == there - len(shown)


# Keys and Markdown.


def test_the_keys() -> None:
    report = oct_mosaic_batches(psoct(PROJECT), 3)
    assert report is not None
    assert report.key == oct_mosaic_report_key("brain-7", 3) == "brain-7-mosaic-3-progress"
    assert (
        oct_all_mosaics(psoct(PROJECT)).key
        == oct_project_report_key("BRAIN-7")
        == "brain-7-all-mosaics-progress"
    )
    with pytest.raises(BadName, match="mosaic_id"):
        oct_mosaic_report_key("p", -1)


def test_a_mosaic_as_markdown() -> None:
    report = oct_mosaic_batches(psoct(PROJECT), 3)
    assert report is not None
    assert markdown(report) == (
        "# Mosaic 3 Processing Progress\n\n"
        "- Project: Brain_7\n- Slice: 2\n- Mosaic ID: 3\n- Last Updated: 2026-01-02 03:04:05 UTC\n\n"
        "- Status: ✅ COMPLETE - All batches completed\n"
        "- Batches completed: 1/1 (100.0%)\n"
        "- Batches enface-processed: 1/1 (100.0%)\n\n"
        "Milestones:\n\n"
        "- ✅ 25% Complete\n- ✅ 50% Complete\n- ✅ 75% Complete\n- ✅ 100% Complete\n\n"
        "| Batch | Processing | Enface processed | Volume processed | Complexed | Archived "
        "| Batch uploaded |\n"
        "| ---: | --- | --- | --- | --- | --- | --- |\n"
        "| 1 | completed | ✅ | ✅ | ✅ | ❌ | ❌ |\n"
    )


def test_all_mosaics_as_markdown() -> None:
    text = description(oct_all_mosaics(psoct(PROJECT, flags={2: ["enface_stitched"]})))
    assert text.startswith("All Mosaics Processing Progress\n\n- Project: Brain_7\n- Total Mosaics: 3\n")
    assert (
        "- Complete Mosaics: 1/3\n- Enface Stitched: 1/3\n- Enface uploaded: 0/3\n"
        "- 3D Volume Stitched: 0/3\n- 3D Volume Uploaded: 0/3\n"
        "- Batches completed: 2/4 (50.0%)\n- Batches running: 1\n"
        "- Batches enface-processed: 2/4 (50.0%)\n- Failed: 1\n"
    ) in text
    assert "- ✅ 50% Complete\n- ⏳ 75% Complete\n" in text
