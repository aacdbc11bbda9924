"""
The service of the PS-OCT pipeline's project state; service.py says what its methods have in common.

    service = OCTStateService(log, mosaics_per_slice=2)
    with service.open_batch("brain_7", mosaic_id=3, batch_id=1) as batch:    # of slice 2
        batch.mark_completed()
        batch.set_complexed()

Without a slice_id, the slice of a mosaic is counted; psoct_slices.py says how.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from .ident import OCTBatchId, OCTMosaicId, OCTProjectId, OCTSliceId
from .psoct import (
    OCT,
    OCTBatchState,
    OCTBatchStateView,
    OCTMosaicState,
    OCTMosaicStateView,
    OCTProjectState,
    OCTProjectStateView,
    OCTSliceState,
    OCTSliceStateView,
)
from .psoct_slices import SliceCounting

Seconds = float | None
"""How long to wait at most; None: without bound."""


class OCTStateService(SliceCounting):
    """The state of PS-OCT projects: `open_*` to change, `read_*` and `peek_*` to look."""

    LEVELS = OCT

    # Changing

    def open_project(
        self, project: OCTProjectId | str, *, timeout_seconds: Seconds = None
    ) -> AbstractContextManager[OCTProjectState]:
        """The project, open for change."""
        return self._open(OCTProjectState, project, [], timeout_seconds)

    def open_slice(
        self, project: OCTSliceId | str, *, slice_id: int | None = None, timeout_seconds: Seconds = None
    ) -> AbstractContextManager[OCTSliceState]:
        """The slice, open for change."""
        return self._open(OCTSliceState, project, [slice_id], timeout_seconds)

    def open_mosaic(
        self,
        project: OCTMosaicId | str,
        *,
        mosaic_id: int | None = None,
        slice_id: int | None = None,
        timeout_seconds: Seconds = None,
    ) -> AbstractContextManager[OCTMosaicState]:
        """The mosaic, open for change."""
        return self._open(OCTMosaicState, project, [slice_id, mosaic_id], timeout_seconds)

    def open_batch(
        self,
        project: OCTBatchId | str,
        *,
        mosaic_id: int | None = None,
        batch_id: int | None = None,
        slice_id: int | None = None,
        timeout_seconds: Seconds = None,
    ) -> AbstractContextManager[OCTBatchState]:
        """The batch, open for change."""
        return self._open(OCTBatchState, project, [slice_id, mosaic_id, batch_id], timeout_seconds)

    def open_project_by_parts(
        self, project_name: str, *, timeout_seconds: Seconds = None
    ) -> AbstractContextManager[OCTProjectState]:
        """The project of this name, open for change."""
        return self._open(OCTProjectState, project_name, [], timeout_seconds)

    def open_slice_by_parts(
        self, project_name: str, *, slice_id: int, timeout_seconds: Seconds = None
    ) -> AbstractContextManager[OCTSliceState]:
        """The slice with these ids, open for change."""
        return self._open(OCTSliceState, project_name, [slice_id], timeout_seconds)

    def open_mosaic_by_parts(
        self,
        project_name: str,
        *,
        mosaic_id: int,
        slice_id: int | None = None,
        timeout_seconds: Seconds = None,
    ) -> AbstractContextManager[OCTMosaicState]:
        """The mosaic with these ids, open for change."""
        return self._open(OCTMosaicState, project_name, [slice_id, mosaic_id], timeout_seconds)

    def open_batch_by_parts(
        self,
        project_name: str,
        *,
        mosaic_id: int,
        batch_id: int,
        slice_id: int | None = None,
        timeout_seconds: Seconds = None,
    ) -> AbstractContextManager[OCTBatchState]:
        """The batch with these ids, open for change."""
        return self._open(OCTBatchState, project_name, [slice_id, mosaic_id, batch_id], timeout_seconds)

    # Looking, where the answer matters

    def read_project(
        self, project: OCTProjectId | str, *, timeout_seconds: Seconds = None
    ) -> OCTProjectStateView:
        """The project and all below it; an empty one where nobody created it."""
        ident = OCTProjectId.of(project, {})
        found = self._read(OCTProjectState, ident, [], timeout_seconds)
        return found or OCTProjectStateView(project_name=ident.project_name)

    def read_slice(
        self, project: OCTSliceId | str, *, slice_id: int | None = None, timeout_seconds: Seconds = None
    ) -> OCTSliceStateView | None:
        """The slice and all below it."""
        return self._read(OCTSliceState, project, [slice_id], timeout_seconds)

    def read_mosaic(
        self,
        project: OCTMosaicId | str,
        *,
        mosaic_id: int | None = None,
        slice_id: int | None = None,
        timeout_seconds: Seconds = None,
    ) -> OCTMosaicStateView | None:
        """The mosaic with its batches."""
        return self._read(OCTMosaicState, project, [slice_id, mosaic_id], timeout_seconds)

    def read_batch(
        self,
        project: OCTBatchId | str,
        *,
        mosaic_id: int | None = None,
        batch_id: int | None = None,
        slice_id: int | None = None,
        timeout_seconds: Seconds = None,
    ) -> OCTBatchStateView | None:
        """The batch."""
        return self._read(OCTBatchState, project, [slice_id, mosaic_id, batch_id], timeout_seconds)

    def read_project_by_parts(
        self, project_name: str, *, timeout_seconds: Seconds = None
    ) -> OCTProjectStateView:
        """The project of this name."""
        return self.read_project(project_name, timeout_seconds=timeout_seconds)

    def read_slice_by_parts(
        self, project_name: str, *, slice_id: int, timeout_seconds: Seconds = None
    ) -> OCTSliceStateView | None:
        """The slice with these ids."""
        return self._read(OCTSliceState, project_name, [slice_id], timeout_seconds)

    def read_mosaic_by_parts(
        self,
        project_name: str,
        *,
        mosaic_id: int,
        slice_id: int | None = None,
        timeout_seconds: Seconds = None,
    ) -> OCTMosaicStateView | None:
        """The mosaic with these ids."""
        return self._read(OCTMosaicState, project_name, [slice_id, mosaic_id], timeout_seconds)

    def read_batch_by_parts(
        self,
        project_name: str,
        *,
        mosaic_id: int,
        batch_id: int,
        slice_id: int | None = None,
        timeout_seconds: Seconds = None,
    ) -> OCTBatchStateView | None:
        """The batch with these ids."""
        return self._read(OCTBatchState, project_name, [slice_id, mosaic_id, batch_id], timeout_seconds)

    # Looking, for display

    def peek_project(self, project: OCTProjectId | str) -> OCTProjectStateView:
        """The project and all below it; an empty one where nobody created it."""
        ident = OCTProjectId.of(project, {})
        return self._peek(OCTProjectState, ident, []) or OCTProjectStateView(project_name=ident.project_name)

    def peek_slice(
        self, project: OCTSliceId | str, *, slice_id: int | None = None
    ) -> OCTSliceStateView | None:
        """The slice and all below it."""
        return self._peek(OCTSliceState, project, [slice_id])

    def peek_mosaic(
        self, project: OCTMosaicId | str, *, mosaic_id: int | None = None, slice_id: int | None = None
    ) -> OCTMosaicStateView | None:
        """The mosaic with its batches."""
        return self._peek(OCTMosaicState, project, [slice_id, mosaic_id])

    def peek_batch(
        self,
        project: OCTBatchId | str,
        *,
        mosaic_id: int | None = None,
        batch_id: int | None = None,
        slice_id: int | None = None,
    ) -> OCTBatchStateView | None:
        """The batch."""
        return self._peek(OCTBatchState, project, [slice_id, mosaic_id, batch_id])

    def peek_project_by_parts(self, project_name: str) -> OCTProjectStateView:
        """The project of this name."""
        return self.peek_project(project_name)

    def peek_slice_by_parts(self, project_name: str, *, slice_id: int) -> OCTSliceStateView | None:
        """The slice with these ids."""
        return self._peek(OCTSliceState, project_name, [slice_id])

    def peek_mosaic_by_parts(
        self, project_name: str, *, mosaic_id: int, slice_id: int | None = None
    ) -> OCTMosaicStateView | None:
        """The mosaic with these ids."""
        return self._peek(OCTMosaicState, project_name, [slice_id, mosaic_id])

    def peek_batch_by_parts(
        self, project_name: str, *, mosaic_id: int, batch_id: int, slice_id: int | None = None
    ) -> OCTBatchStateView | None:
        """The batch with these ids."""
        return self._peek(OCTBatchState, project_name, [slice_id, mosaic_id, batch_id])


OCT_STATE_SERVICE = OCTStateService()
"""The service of the ledger that this process finds; it connects when it is first used."""
