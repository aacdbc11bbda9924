"""
Reports of PS-OCT projects: every batch of a mosaic, and how far all mosaics are (spec S0-92).

Where the number of batches of a mosaic is given or planned, the batches 1 … that number are expected: only
they are counted, and one that is missing is pending. Where it is not, the batches that are there are the
expected ones, which says nothing of those still to come. Done is a batch that has the flag enface_processed;
how many failed is told beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ledger import BadInput
from ledger.names import checked_id, project_key
from ledger.project_state import ProcessingState
from ledger.project_state.psoct import OCTBatchStateView, OCTMosaicStateView, OCTProjectStateView

from .report import (
    NOT_YET,
    YES,
    Report,
    checked_total,
    expected,
    how_many,
    last_change,
    mark,
    percent,
    percent_text,
)


@dataclass(frozen=True, slots=True)
class OCTBatchRow:
    """A batch of a mosaic; one that is missing is pending, and nothing is done with it."""

    COLUMNS: ClassVar[tuple[str, ...]] = (
        *("Batch", "Processing", "Enface processed", "Volume processed", "Complexed", "Archived"),
        "Batch uploaded",
    )

    batch_id: int
    processing_state: ProcessingState = ProcessingState.PENDING
    enface_processed: bool = False
    volume_processed: bool = False
    complexed: bool = False
    archived: bool = False
    uploaded: bool = False

    def cells(self) -> tuple[int | str, ...]:
        processed = (mark(self.enface_processed), mark(self.volume_processed), mark(self.complexed))
        return (
            *(self.batch_id, self.processing_state.value, *processed),
            *(mark(self.archived), mark(self.uploaded)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OCTMosaicBatches(Report[OCTBatchRow]):
    """A row a batch. done: batches enface-processed; total: the rows."""

    ROW = OCTBatchRow
    slice_id: int
    mosaic_id: int

    @property
    def title(self) -> str:
        return f"Mosaic {self.mosaic_id} Processing Progress"

    @property
    def complete(self) -> bool:
        """Whether there are batches, and all are enface-processed."""
        return 0 < self.total == self.done

    def about(self) -> Iterator[tuple[str, str | int]]:
        yield "Slice", self.slice_id
        yield "Mosaic ID", self.mosaic_id

    def totals(self) -> Iterator[str]:
        done = f"{YES} COMPLETE - All batches enface-processed"
        yield f"Status: {done if self.complete else f'{NOT_YET} IN PROGRESS - Processing batches...'}"
        share = percent_text(self.done, self.total)
        yield f"Batches enface-processed: {self.done}/{self.total} ({share})"


@dataclass(frozen=True, slots=True)
class OCTMosaicRow:
    """How many batches of a mosaic there should be, how many are what, and what was made of them."""

    COLUMNS: ClassVar[tuple[str, ...]] = (
        *("Mosaic ID", "Total Batches", "Started", "Archived", "Enface processed", "Uploaded"),
        *("Enface Stitched", "Enface uploaded", "3D Volume Stitched", "3D Volume Uploaded"),
    )

    slice_id: int
    mosaic_id: int
    total: int
    started: int
    archived: int
    enface_processed: int
    uploaded: int
    enface_stitched: bool
    enface_uploaded: bool
    volume_stitched: bool
    volume_uploaded: bool
    failed: int = 0

    @property
    def progress(self) -> float:
        """How many of the batches are enface-processed, in percent."""
        return percent(self.enface_processed, self.total)

    @property
    def complete(self) -> bool:
        """Whether there are batches, and all are enface-processed."""
        return 0 < self.total == self.enface_processed

    def cells(self) -> tuple[int | str, ...]:
        counts = (self.total, self.started, self.archived, self.enface_processed, self.uploaded)
        flags = [self.enface_stitched, self.enface_uploaded, self.volume_stitched, self.volume_uploaded]
        return (self.mosaic_id, *counts, *(mark(flag, NOT_YET) for flag in flags))


@dataclass(frozen=True, slots=True, kw_only=True)
class OCTAllMosaics(Report[OCTMosaicRow]):
    """A row a mosaic. done: batches enface-processed; total: batches that there should be."""

    ROW = OCTMosaicRow

    @property
    def title(self) -> str:
        return "All Mosaics Processing Progress"

    def about(self) -> Iterator[tuple[str, str | int]]:
        yield "Total Mosaics", len(self.rows)

    def totals(self) -> Iterator[str]:
        for name, quality in (
            ("Complete Mosaics", "complete"),
            ("Enface Stitched", "enface_stitched"),
            ("Enface uploaded", "enface_uploaded"),
            ("3D Volume Stitched", "volume_stitched"),
            ("3D Volume Uploaded", "volume_uploaded"),
        ):
            yield f"{name}: {how_many(self.rows, quality)}/{len(self.rows)}"
        share = percent_text(self.done, self.total)
        yield f"Batches enface-processed: {self.done}/{self.total} ({share})"


def oct_mosaic_report_key(project_name: str, mosaic_id: int) -> str:
    """The key of a mosaic's batches; two spellings of one project have the same."""
    return f"{project_key(project_name)}-mosaic-{checked_id('mosaic_id', mosaic_id)}-progress"


def oct_project_report_key(project_name: str) -> str:
    """The key of all mosaics of a project."""
    return f"{project_key(project_name)}-all-mosaics-progress"


def oct_mosaic_batches(
    view: OCTProjectStateView,
    mosaic_id: int,
    *,
    slice_id: int | None = None,
    batches_per_mosaic: int | None = None,
) -> OCTMosaicBatches | None:
    """Every batch of a mosaic, by id; None where there is no such mosaic.

    slice_id: needed only where more than one slice has a mosaic of this id; BadInput says so. Of batches
    see the head of this module; batches_per_mosaic is by default what the project planned.
    """
    mosaic = _mosaic(view, mosaic_id, slice_id)
    if mosaic is None:
        return None
    ids, batches = _expected(view, mosaic, batches_per_mosaic)
    rows = tuple(_batch_row(i, batches.get(i)) for i in ids)
    return OCTMosaicBatches(
        project_name=view.project_name,
        key=oct_mosaic_report_key(view.project_name, mosaic_id),
        slice_id=mosaic.slice_id,
        mosaic_id=mosaic_id,
        rows=rows,
        done=how_many(rows, "enface_processed"),
        total=len(ids),
        failed=_failed(batches),
        beyond=len(mosaic.batches) - len(batches),
        last_updated=last_change(mosaic),
    )


def oct_all_mosaics(view: OCTProjectStateView, *, batches_per_mosaic: int | None = None) -> OCTAllMosaics:
    """How far each mosaic is, by mosaic and slice id.

    Of batches see the head of this module; batches_per_mosaic is by default what the project planned.
    """
    mosaics = sorted(view.iter_mosaics(), key=lambda mosaic: (mosaic.mosaic_id, mosaic.slice_id))
    found = [(mosaic, *_expected(view, mosaic, batches_per_mosaic)) for mosaic in mosaics]
    rows = tuple(_mosaic_row(mosaic, len(ids), batches) for mosaic, ids, batches in found)
    return OCTAllMosaics(
        project_name=view.project_name,
        key=oct_project_report_key(view.project_name),
        rows=rows,
        done=sum(row.enface_processed for row in rows),
        total=sum(row.total for row in rows),
        failed=sum(row.failed for row in rows),
        beyond=sum(len(mosaic.batches) - len(batches) for mosaic, _, batches in found),
        last_updated=last_change(view),
    )


Batches = dict[int, OCTBatchStateView]


def _mosaic(view: OCTProjectStateView, mosaic_id: int, slice_id: int | None) -> OCTMosaicStateView | None:
    if slice_id is not None:
        return view.get_mosaic(slice_id, mosaic_id)
    found = [each for each in view.iter_mosaics() if each.mosaic_id == mosaic_id]
    if len(found) > 1:
        slices = ", ".join(str(mosaic.slice_id) for mosaic in found)
        raise BadInput(f"mosaic {mosaic_id} is in the slices {slices}; say which one is meant, by slice_id")
    return found[0] if found else None


def _expected(
    view: OCTProjectStateView, mosaic: OCTMosaicStateView, given: int | None
) -> tuple[Sequence[int], Batches]:
    """The ids of the batches that there should be, and those of them that are there, by id."""
    total = checked_total("batches_per_mosaic", given, view.batches_per_mosaic)
    if total is None:
        return sorted(mosaic.batches), dict(mosaic.batches)
    return range(1, total + 1), expected(mosaic.batches, total)


def _batch_row(batch_id: int, batch: OCTBatchStateView | None) -> OCTBatchRow:
    if batch is None:
        return OCTBatchRow(batch_id)
    flags = (batch.enface_processed, batch.volume_processed, batch.complexed, batch.archived, batch.uploaded)
    return OCTBatchRow(batch_id, batch.processing_state, *flags)


def _mosaic_row(mosaic: OCTMosaicStateView, total: int, batches: Batches) -> OCTMosaicRow:
    there = batches.values()
    return OCTMosaicRow(
        slice_id=mosaic.slice_id,
        mosaic_id=mosaic.mosaic_id,
        total=total,
        started=sum(1 for batch in there if batch.processing_state is not ProcessingState.PENDING),
        archived=how_many(there, "archived"),
        enface_processed=how_many(there, "enface_processed"),
        uploaded=how_many(there, "uploaded"),
        enface_stitched=mosaic.enface_stitched,
        enface_uploaded=mosaic.enface_uploaded,
        volume_stitched=mosaic.volume_stitched,
        volume_uploaded=mosaic.volume_uploaded,
        failed=_failed(batches),
    )


def _failed(batches: Batches) -> int:
    return sum(1 for batch in batches.values() if batch.processing_state is ProcessingState.FAILED)
