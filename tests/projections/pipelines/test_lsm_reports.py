"""LSM reports: counts, rows for what is missing, totals, keys, and their Markdown."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import BadInput, BadName, Ledger
from ledger.pipelines import LSMStateService
from projections.pipelines import (
    Report,
    lsm_project_report_key,
    lsm_project_summary,
    lsm_slice_matrix,
    lsm_slice_report_key,
    markdown,
)
from tests.projections.pipelines.trees import AT, STATES, Children, lsm

FLAGS = ("compressed", "archived", "uploaded")
WORDS = st.builds(
    lambda state, flags: " ".join((state, *flags)),
    st.sampled_from(STATES),
    st.lists(st.sampled_from(FLAGS), unique=True),
)
CHANNELS = st.dictionaries(
    st.tuples(st.integers(0, 3), st.integers(0, 3)), st.dictionaries(st.integers(0, 6), WORDS, max_size=6)
)
PROJECT: Children = {
    (2, 1): {1: "completed compressed archived uploaded", 2: "failed compressed"},
    (1, 1): {3: "completed", 1: "completed compressed", 2: "running"},
    (1, 0): {1: "pending"},
}


def channels_in(report: Report) -> list[tuple[int, ...]]:
    """Ids, total, the three flags, completed and failed of each row."""
    counts = ("total", "compressed", "archived", "uploaded", "completed", "failed")
    return [tuple(row.values[name] for name in ("slice_id", "channel_id", *counts)) for row in report.rows]


# The summary (spec S0-90).


def test_a_row_a_channel_by_its_ids() -> None:
    summary = lsm_project_summary(lsm(PROJECT), 3)
    assert channels_in(summary) == [
        (1, 0, 3, 0, 0, 0, 0, 0),
        (1, 1, 3, 1, 0, 0, 2, 0),
        (2, 1, 3, 2, 1, 1, 1, 1),
    ]
    assert (summary.done, summary.total, summary.failed, summary.beyond) == (3, 9, 1, 0)
    assert [row["Progress"] for row in summary.records()] == ["0.0%", "66.7%", "33.3%"]
    assert summary.records()[2] == {
        "Slice": 2,
        "Channel": 1,
        "Total Strips": 3,
        "Compressed": 2,
        "Archived": 1,
        "Uploaded": 1,
        "Completed": 1,
        "Progress": "33.3%",
    }


def test_a_failed_strip_is_not_completed() -> None:
    summary = lsm_project_summary(lsm({(1, 1): {1: "failed compressed archived uploaded"}}), 1)
    assert (summary.done, summary.progress, summary.failed) == (0, 0.0, 1)


def test_strips_beyond_the_plan_are_told_and_not_counted() -> None:
    strips = dict.fromkeys((0, 1, 2, 3, 9), "completed compressed")
    summary = lsm_project_summary(lsm({(1, 1): strips}), 2)
    assert channels_in(summary) == [(1, 1, 2, 2, 0, 0, 2, 0)]
    assert (summary.progress, summary.beyond) == (100.0, 3)
    assert "- Not counted, because their ids are unexpected: 3\n" in markdown(summary)


def test_no_slots_are_no_progress() -> None:
    for view, strips in ((lsm({}), 4), (lsm(PROJECT), 0)):
        summary = lsm_project_summary(view, strips)
        assert (summary.done, summary.total, summary.progress) == (0, 0, 0.0)
        assert not any(milestone.reached for milestone in summary.milestones)
        assert all(row.cells()[-1] == "0.0%" for row in summary.rows)
    assert "Nothing is recorded yet." in markdown(lsm_project_summary(lsm({}), 4))


def test_the_plan_of_the_project_is_used_where_no_number_is_given() -> None:
    view = lsm(PROJECT, strips_per_slice=4)
    assert lsm_project_summary(view) == lsm_project_summary(lsm(PROJECT), 4)
    assert lsm_project_summary(view, 3).total == 9
    assert lsm_project_summary(lsm(PROJECT, strips_per_slice=0)).total == 0
    matrix = lsm_slice_matrix(view, 1)
    assert matrix is not None
    assert matrix.total == 8


def test_without_a_plan_a_number_must_be_given() -> None:
    with pytest.raises(BadInput, match="strips per slice of 'Brain_7' is unknown: give strips_per_slice"):
        lsm_project_summary(lsm({}))
    with pytest.raises(BadInput, match="or plan it once"):
        lsm_slice_matrix(lsm(PROJECT), 1)


@pytest.mark.parametrize("bad", [-1, True, 1.5, "4"])
def test_a_number_of_strips_is_a_count(bad: Any) -> None:
    with pytest.raises(BadName, match="strips_per_slice"):
        lsm_project_summary(lsm(PROJECT), bad)


def test_a_number_too_large_to_count_to_is_no_trouble() -> None:
    summary = lsm_project_summary(lsm(PROJECT), 2**62)
    assert (summary.done, summary.total) == (3, 3 * 2**62)
    assert summary.rows[0].cells()[-1] == "0.0%"


@given(CHANNELS, st.integers(0, 7))
def test_the_rows_add_up_to_the_totals(channels: Children, strips: int) -> None:
    view = lsm(channels)
    summary = lsm_project_summary(view, strips)
    records = summary.records()
    assert [(row.slice_id, row.channel_id) for row in summary.rows] == sorted(channels)
    assert sum(int(record["Completed"]) for record in records) == summary.done <= summary.total
    assert sum(int(record["Total Strips"]) for record in records) == summary.total == strips * len(channels)
    for progress in (summary.progress, *(row.progress for row in summary.rows)):
        assert 0.0 <= progress <= 100.0
    inside = [words for held in channels.values() for i, words in held.items() if 1 <= i <= strips]
    assert summary.done == sum(words.startswith("completed") for words in inside)
    assert summary.failed == sum(words.startswith("failed") for words in inside)
    for flag in FLAGS:
        assert sum(int(record[flag.capitalize()]) for record in records) == sum(flag in w for w in inside)
    assert summary.beyond == sum(map(len, channels.values())) - len(inside)


# The matrix (spec S0-91).


def test_a_row_a_strip_and_channel() -> None:
    matrix = lsm_slice_matrix(lsm(PROJECT), 1, 2)
    assert matrix is not None
    assert matrix.records() == [
        {"Strip": 1, "Channel": 0, "Processing": "pending"} | dict.fromkeys(matrix.columns[3:], "❌"),
        {"Strip": 1, "Channel": 1, "Processing": "completed"}
        | {"Compressed": "✅", "Archived": "❌", "Uploaded": "❌"},
        {"Strip": 2, "Channel": 0, "Processing": "pending"} | dict.fromkeys(matrix.columns[3:], "❌"),
        {"Strip": 2, "Channel": 1, "Processing": "running"} | dict.fromkeys(matrix.columns[3:], "❌"),
    ]
    assert (matrix.done, matrix.total, matrix.beyond) == (1, 4, 1)


def test_a_missing_strip_is_pending() -> None:
    matrix = lsm_slice_matrix(lsm({(1, 0): {2: "failed uploaded"}}), 1, 3)
    assert matrix is not None
    assert matrix.rows[0].cells() == (1, 0, "pending", "❌", "❌", "❌")
    assert [row.processing_state for row in matrix.rows] == ["pending", "failed", "pending"]
    assert matrix.rows[0].cells() == (1, 0, "pending", "❌", "❌", "❌")
    assert matrix.rows[1].cells() == (2, 0, "failed", "❌", "❌", "✅")
    assert matrix.failed == 1


def test_a_missing_slice_has_no_matrix() -> None:
    assert lsm_slice_matrix(lsm(PROJECT), 3, 4) is None
    assert lsm_slice_matrix(lsm(PROJECT, strips_per_slice=2), 0) is None


@given(CHANNELS, st.integers(0, 7))
def test_the_matrices_of_all_slices_add_up_to_the_summary(channels: Children, strips: int) -> None:
    view = lsm(channels)
    summary = lsm_project_summary(view, strips)
    matrices = [matrix for i in view.slices if (matrix := lsm_slice_matrix(view, i, strips)) is not None]
    assert len(matrices) == len(view.slices)
    for matrix in matrices:
        assert len(matrix.rows) == matrix.total
        assert [row.cells()[:2] for row in matrix.rows] == sorted(row.cells()[:2] for row in matrix.rows)
        assert matrix.done == sum(row.processing_state == "completed" for row in matrix.rows)
    for name in ("done", "total", "failed", "beyond"):
        assert sum(getattr(matrix, name) for matrix in matrices) == getattr(summary, name)


# Keys.


def test_the_keys() -> None:
    assert lsm_project_summary(lsm(PROJECT), 1).key == "brain-7-lsm-strip-progress"
    matrix = lsm_slice_matrix(lsm(PROJECT), 1, 1)
    assert matrix is not None
    assert matrix.key == "brain-7-lsm-slice-0001-strips"
    assert lsm_slice_report_key("p", 12345) == "p-lsm-slice-12345-strips"


def test_two_spellings_of_a_project_have_one_key() -> None:
    assert lsm_project_report_key("A_b") == lsm_project_report_key("a-B") == "a-b-lsm-strip-progress"
    assert lsm_slice_report_key("A_b", 1) == lsm_slice_report_key("a-b", 1)
    with pytest.raises(BadName):
        lsm_project_report_key("")
    with pytest.raises(BadName, match="slice_id"):
        lsm_slice_report_key("p", -1)


# Markdown.


def test_the_summary_as_markdown() -> None:
    assert markdown(lsm_project_summary(lsm(PROJECT), 3)) == (
        "# LSM project strip processing summary\n\n"
        "- Project: Brain_7\n"
        "- Last Updated: 2026-01-02 03:04:05 UTC\n\n"
        "- Overall completed strip slots: 3/9 (33.3%)\n"
        "- Failed: 1\n\n"
        "Milestones:\n\n"
        "- ✅ 25% Complete\n- ⏳ 50% Complete\n- ⏳ 75% Complete\n- ⏳ 100% Complete\n\n"
        "| Slice | Channel | Total Strips | Compressed | Archived | Uploaded | Completed | Progress |\n"
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n"
        "| 1 | 0 | 3 | 0 | 0 | 0 | 0 | 0.0% |\n"
        "| 1 | 1 | 3 | 1 | 0 | 0 | 2 | 66.7% |\n"
        "| 2 | 1 | 3 | 2 | 1 | 1 | 1 | 33.3% |\n"
    )


def test_the_matrix_as_markdown() -> None:
    matrix = lsm_slice_matrix(lsm({(1, 0): {1: "completed archived"}}), 1, 2)
    assert matrix is not None
    text = markdown(matrix)
    assert text.startswith("# LSM slice strip status (one row per strip × channel)\n\n- Project: Brain_7\n")
    assert "- Slice: 1\n" in text
    assert "- Completed strips: 1/2 (50.0%)\n" in text
    assert text.endswith("| 1 | 0 | completed | ❌ | ✅ | ❌ |\n| 2 | 0 | pending | ❌ | ❌ | ❌ |\n")


def test_the_time_is_that_of_the_last_change_shown() -> None:
    view = lsm(PROJECT)
    later = dataclasses.replace(view, updated_at=AT + timedelta(hours=1))
    assert lsm_project_summary(later, 3).last_updated == AT + timedelta(hours=1)
    matrix = lsm_slice_matrix(later, 1, 3)
    assert matrix is not None
    assert matrix.last_updated == AT
    assert "- Last Updated: never\n" in markdown(lsm_project_summary(lsm({}), 1))


# What is recorded.


def test_what_is_recorded_is_reported(log: Ledger) -> None:
    """Given a planned project, when one of its two strips is completed, then half of it is reported done."""
    service = LSMStateService(log)
    with service.open_project("Brain_7") as project:
        project.plan(strips_per_slice=2)
        project.get_or_create_strip_by_parts(1, 2).mark_completed()
    view = service.read_project("brain-7")
    summary = lsm_project_summary(view)
    assert channels_in(summary) == [(1, 1, 2, 0, 0, 0, 1, 0)]
    assert summary.progress == 50.0
    assert summary.last_updated == view.slices[1].channels[1].strips[2].updated_at
    assert markdown(summary) == markdown(lsm_project_summary(service.peek_project("BRAIN_7")))
