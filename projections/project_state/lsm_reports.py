"""
Reports of LSM projects: how far its channels are, and every strip of a slice (spec S0-90, S0-91).

Expected are the strips 1 … strips_per_slice of each channel that is there. Only they are counted, so there
is never more done than there is to do. A failed strip does not count as completed (W0-04).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from ledger import BadInput
from ledger.names import checked_id, project_key
from ledger.project_state import (
    LSMChannelStateView,
    LSMProjectStateView,
    LSMSliceStateView,
    LSMStripStateView,
    ProcessingState,
)

from .report import Report, checked_total, expected, how_many, last_change, mark, percent, percent_text


@dataclass(frozen=True, slots=True)
class LSMChannelRow:
    """How many strips of a channel there should be, and how many are what."""

    COLUMNS: ClassVar[tuple[str, ...]] = (
        *("Slice", "Channel", "Total Strips", "Compressed", "Archived", "Uploaded", "Completed"),
        "Progress",
    )

    slice_id: int
    channel_id: int
    total: int
    compressed: int
    archived: int
    uploaded: int
    completed: int
    failed: int = 0

    @property
    def progress(self) -> float:
        """How many of the strips are completed, in percent."""
        return percent(self.completed, self.total)

    def cells(self) -> tuple[int | str, ...]:
        counts = (self.total, self.compressed, self.archived, self.uploaded, self.completed)
        return (self.slice_id, self.channel_id, *counts, percent_text(self.completed, self.total))


@dataclass(frozen=True, slots=True, kw_only=True)
class LSMProjectSummary(Report[LSMChannelRow]):
    """A row a channel. done: strips completed; total: strips that there should be."""

    ROW = LSMChannelRow

    @property
    def title(self) -> str:
        return "LSM project strip processing summary"

    def totals(self) -> Iterator[str]:
        share = percent_text(self.done, self.total)
        yield f"Overall completed strip slots: {self.done}/{self.total} ({share})"


@dataclass(frozen=True, slots=True)
class LSMStripRow:
    """A strip of a slice; one that is missing is pending, and nothing is done with it."""

    COLUMNS: ClassVar[tuple[str, ...]] = (
        *("Strip", "Channel", "Processing", "Compressed", "Archived", "Uploaded"),
    )

    strip_id: int
    channel_id: int
    processing_state: ProcessingState = ProcessingState.PENDING
    compressed: bool = False
    archived: bool = False
    uploaded: bool = False

    def cells(self) -> tuple[int | str, ...]:
        marks = (mark(self.compressed), mark(self.archived), mark(self.uploaded))
        return (self.strip_id, self.channel_id, self.processing_state.value, *marks)


@dataclass(frozen=True, slots=True, kw_only=True)
class LSMSliceMatrix(Report[LSMStripRow]):
    """A row for each strip and channel. done: strips completed; total: the rows."""

    ROW = LSMStripRow
    slice_id: int

    @property
    def title(self) -> str:
        return "LSM slice strip status (one row per strip × channel)"

    def about(self) -> Iterator[tuple[str, str | int]]:
        yield "Slice", self.slice_id

    def totals(self) -> Iterator[str]:
        yield f"Completed strips: {self.done}/{self.total} ({percent_text(self.done, self.total)})"


def lsm_project_report_key(project_name: str) -> str:
    """The key of a project's summary; two spellings of one project have the same."""
    return f"{project_key(project_name)}-lsm-strip-progress"


def lsm_slice_report_key(project_name: str, slice_id: int) -> str:
    """The key of a slice's matrix."""
    return f"{project_key(project_name)}-lsm-slice-{checked_id('slice_id', slice_id):04d}-strips"


def lsm_project_summary(view: LSMProjectStateView, strips_per_slice: int | None = None) -> LSMProjectSummary:
    """How far each channel is, by slice and channel id (spec S0-90).

    strips_per_slice: how many strips a channel should have; by default what the project planned. Raises
    BadInput where it planned nothing.
    """
    total = _total(view, strips_per_slice)
    channels = [channel for each in _by_id(view) for channel in _channels(each)]
    rows = tuple(_channel_row(channel, total) for channel in channels)
    return LSMProjectSummary(
        project_name=view.project_name,
        key=lsm_project_report_key(view.project_name),
        rows=rows,
        done=sum(row.completed for row in rows),
        total=sum(row.total for row in rows),
        failed=sum(row.failed for row in rows),
        beyond=_beyond(channels, total),
        last_updated=last_change(view),
    )


def lsm_slice_matrix(
    view: LSMProjectStateView, slice_id: int, strips_per_slice: int | None = None
) -> LSMSliceMatrix | None:
    """Every strip of a slice, by strip and channel id; None where there is no such slice (spec S0-91).

    Raises BadInput where the number of strips is neither given nor planned.
    """
    total, found = _total(view, strips_per_slice), view.get_slice(slice_id)
    if found is None:
        return None
    channels = _channels(found)
    strips = [strip for channel in channels for strip in expected(channel.strips, total).values()]
    return LSMSliceMatrix(
        project_name=view.project_name,
        key=lsm_slice_report_key(view.project_name, slice_id),
        slice_id=slice_id,
        rows=tuple(_strip_row(channel, i) for i in range(1, total + 1) for channel in channels),
        done=how_many(strips, "succeeded"),
        total=total * len(channels),
        failed=_failed(strips),
        beyond=_beyond(channels, total),
        last_updated=last_change(found),
    )


def _total(view: LSMProjectStateView, given: int | None) -> int:
    total = checked_total("strips_per_slice", given, view.strips_per_slice)
    if total is None:
        raise BadInput(
            f"how many strips a slice of {view.project_name!r} has is not known: give strips_per_slice, "
            "or plan it once, by `project.plan(strips_per_slice=…)`"
        )
    return total


def _by_id(view: LSMProjectStateView) -> list[LSMSliceStateView]:
    return [view.slices[slice_id] for slice_id in sorted(view.slices)]


def _channels(view: LSMSliceStateView) -> list[LSMChannelStateView]:
    return [view.channels[channel_id] for channel_id in sorted(view.channels)]


def _channel_row(channel: LSMChannelStateView, total: int) -> LSMChannelRow:
    strips = list(expected(channel.strips, total).values())
    return LSMChannelRow(
        slice_id=channel.slice_id,
        channel_id=channel.channel_id,
        total=total,
        compressed=how_many(strips, "compressed"),
        archived=how_many(strips, "archived"),
        uploaded=how_many(strips, "uploaded"),
        completed=how_many(strips, "succeeded"),
        failed=_failed(strips),
    )


def _strip_row(channel: LSMChannelStateView, strip_id: int) -> LSMStripRow:
    strip = channel.get_strip(strip_id)
    if strip is None:
        return LSMStripRow(strip_id, channel.channel_id)
    flags = (strip.compressed, strip.archived, strip.uploaded)
    return LSMStripRow(strip_id, channel.channel_id, strip.processing_state, *flags)


def _failed(strips: list[LSMStripStateView]) -> int:
    return sum(1 for strip in strips if strip.processing_state is ProcessingState.FAILED)


def _beyond(channels: list[LSMChannelStateView], total: int) -> int:
    return sum(len(channel.strips) - len(expected(channel.strips, total)) for channel in channels)
