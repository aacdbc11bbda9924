# ruff: noqa: E501, I001
# fmt: off
"""Made by `python -m ledger.pipelines.stub ledger.pipelines.psoct` from the declaration; change that."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, overload

from ledger.log.ledger import Ledger
from ledger.log.scope_locks import Locks
from ledger.pipelines.pipeline import Pipeline
from ledger.pipelines.facts import (
    Completed, Created, Deleted, Entered, Failed, FlagSet, Left, MadePending, Planned, ProjectCreated, Reset,
    Started, Touched,
)
from ledger.pipelines.ident import Ident
from ledger.pipelines.item import Item
from ledger.pipelines.item import OpenItem
from ledger.pipelines.readiness import BecameReady, OpenReadiness
from ledger.pipelines.service import StateService
from ledger.pipelines.service import ProjectStore

OCT: Final[Pipeline]

@dataclass(frozen=True)
class OCTProjectId(Ident): ...

@dataclass(frozen=True)
class OCTSliceId(OCTProjectId):
    slice_id: int

@dataclass(frozen=True)
class OCTMosaicId(OCTSliceId):
    mosaic_id: int

@dataclass(frozen=True)
class OCTBatchId(OCTMosaicId):
    batch_id: int

@dataclass(frozen=True, slots=True, kw_only=True)
class OCTBatchStateView(Item):
    slice_id: int
    mosaic_id: int
    batch_id: int
    complexed: bool = False
    volume_processed: bool = False
    enface_processed: bool = False
    archived: bool = False
    uploaded: bool = False

class OCTBatchState(OpenItem[OCTBatchStateView]):
    @property
    def slice_id(self) -> int: ...
    @property
    def mosaic_id(self) -> int: ...
    @property
    def batch_id(self) -> int: ...
    @property
    def complexed(self) -> bool: ...
    @property
    def volume_processed(self) -> bool: ...
    @property
    def enface_processed(self) -> bool: ...
    @property
    def archived(self) -> bool: ...
    @property
    def uploaded(self) -> bool: ...
    def set_complexed(self, value: bool = True) -> None: ...
    def reset_complexed(self) -> None: ...
    def set_volume_processed(self, value: bool = True) -> None: ...
    def reset_volume_processed(self) -> None: ...
    def set_enface_processed(self, value: bool = True) -> None: ...
    def reset_enface_processed(self) -> None: ...
    def set_archived(self, value: bool = True) -> None: ...
    def reset_archived(self) -> None: ...
    def set_uploaded(self, value: bool = True) -> None: ...
    def reset_uploaded(self) -> None: ...

class PsoctBatchCreated(Created):
    """psoct.batch.created"""
class PsoctBatchTouched(Touched):
    """psoct.batch.touched"""
class PsoctBatchStarted(Started):
    """psoct.batch.started"""
class PsoctBatchCompleted(Completed):
    """psoct.batch.completed"""
class PsoctBatchFailed(Failed):
    """psoct.batch.failed"""
class PsoctBatchPending(MadePending):
    """psoct.batch.pending"""
class PsoctBatchDeleted(Deleted):
    """psoct.batch.deleted"""
class PsoctBatchReset(Reset):
    """psoct.batch.reset"""
class PsoctBatchEntered(Entered):
    """psoct.batch.entered"""
class PsoctBatchLeft(Left):
    """psoct.batch.left"""
class PsoctBatchComplexed(FlagSet):
    """psoct.batch.complexed"""
class PsoctBatchVolumeProcessed(FlagSet):
    """psoct.batch.volume_processed"""
class PsoctBatchEnfaceProcessed(FlagSet):
    """psoct.batch.enface_processed"""
class PsoctBatchArchived(FlagSet):
    """psoct.batch.archived"""
class PsoctBatchUploaded(FlagSet):
    """psoct.batch.uploaded"""

@dataclass(frozen=True, slots=True, kw_only=True)
class OCTMosaicStateView(Item):
    slice_id: int
    mosaic_id: int
    enface_stitched: bool = False
    volume_stitched: bool = False
    enface_uploaded: bool = False
    volume_uploaded: bool = False
    batches: Mapping[int, OCTBatchStateView] = ...
    def get_batch(self, batch_id: int) -> OCTBatchStateView | None:
        """The batch, None where any part of the way to it is missing."""
    def iter_batches(self) -> Iterator[OCTBatchStateView]:
        """Every batch, by its ids."""
    def all_batches_done(self, total: int) -> bool:
        """Whether every expected batch is there and finished."""
    def all_batches_succeeded(self, total: int) -> bool:
        """Whether every expected batch is there and succeeded."""

class OCTMosaicState(OpenItem[OCTMosaicStateView]):
    @property
    def slice_id(self) -> int: ...
    @property
    def mosaic_id(self) -> int: ...
    @property
    def enface_stitched(self) -> bool: ...
    @property
    def volume_stitched(self) -> bool: ...
    @property
    def enface_uploaded(self) -> bool: ...
    @property
    def volume_uploaded(self) -> bool: ...
    @property
    def batches(self) -> Mapping[int, OCTBatchState]: ...
    def set_enface_stitched(self, value: bool = True) -> None: ...
    def reset_enface_stitched(self) -> None: ...
    def set_volume_stitched(self, value: bool = True) -> None: ...
    def reset_volume_stitched(self) -> None: ...
    def set_enface_uploaded(self, value: bool = True) -> None: ...
    def reset_enface_uploaded(self) -> None: ...
    def set_volume_uploaded(self, value: bool = True) -> None: ...
    def reset_volume_uploaded(self) -> None: ...
    def get_batch(self, batch_id: int) -> OCTBatchState | None:
        """The batch, None where any part of the way to it is missing."""
    def iter_batches(self) -> Iterator[OCTBatchState]:
        """Every batch, by its ids."""
    def get_or_create_batch(self, batch_id: int) -> OCTBatchState:
        """The batch, created where there is none, with what is missing above it."""
    def all_batches_done(self, total: int) -> bool:
        """Whether every expected batch is there and finished."""
    def all_batches_succeeded(self, total: int) -> bool:
        """Whether every expected batch is there and succeeded."""

class PsoctMosaicCreated(Created):
    """psoct.mosaic.created"""
class PsoctMosaicTouched(Touched):
    """psoct.mosaic.touched"""
class PsoctMosaicStarted(Started):
    """psoct.mosaic.started"""
class PsoctMosaicCompleted(Completed):
    """psoct.mosaic.completed"""
class PsoctMosaicFailed(Failed):
    """psoct.mosaic.failed"""
class PsoctMosaicPending(MadePending):
    """psoct.mosaic.pending"""
class PsoctMosaicDeleted(Deleted):
    """psoct.mosaic.deleted"""
class PsoctMosaicReset(Reset):
    """psoct.mosaic.reset"""
class PsoctMosaicEntered(Entered):
    """psoct.mosaic.entered"""
class PsoctMosaicLeft(Left):
    """psoct.mosaic.left"""
class PsoctMosaicEnfaceStitched(FlagSet):
    """psoct.mosaic.enface_stitched"""
class PsoctMosaicVolumeStitched(FlagSet):
    """psoct.mosaic.volume_stitched"""
class PsoctMosaicEnfaceUploaded(FlagSet):
    """psoct.mosaic.enface_uploaded"""
class PsoctMosaicVolumeUploaded(FlagSet):
    """psoct.mosaic.volume_uploaded"""

@dataclass(frozen=True, slots=True, kw_only=True)
class OCTSliceStateView(Item):
    slice_id: int
    registered: bool = False
    uploaded: bool = False
    mosaics: Mapping[int, OCTMosaicStateView] = ...
    def get_mosaic(self, mosaic_id: int) -> OCTMosaicStateView | None:
        """The mosaic, None where any part of the way to it is missing."""
    def iter_mosaics(self) -> Iterator[OCTMosaicStateView]:
        """Every mosaic, by its ids."""
    def get_batch(self, mosaic_id: int, batch_id: int) -> OCTBatchStateView | None:
        """The batch, None where any part of the way to it is missing."""
    def iter_batches(self) -> Iterator[OCTBatchStateView]:
        """Every batch, by its ids."""
    def all_mosaics_done(self, total: int | None = None) -> bool:
        """Whether every expected mosaic is there and finished."""
    def all_mosaics_succeeded(self, total: int | None = None) -> bool:
        """Whether every expected mosaic is there and succeeded."""
    def all_mosaics_enface_stitched(self, total: int | None = None) -> bool:
        """Whether every expected mosaic is there and enface stitched."""

class OCTSliceState(OpenItem[OCTSliceStateView]):
    @property
    def slice_id(self) -> int: ...
    @property
    def registered(self) -> bool: ...
    @property
    def uploaded(self) -> bool: ...
    @property
    def mosaics(self) -> Mapping[int, OCTMosaicState]: ...
    def set_registered(self, value: bool = True) -> None: ...
    def reset_registered(self) -> None: ...
    def set_uploaded(self, value: bool = True) -> None: ...
    def reset_uploaded(self) -> None: ...
    def get_mosaic(self, mosaic_id: int) -> OCTMosaicState | None:
        """The mosaic, None where any part of the way to it is missing."""
    def iter_mosaics(self) -> Iterator[OCTMosaicState]:
        """Every mosaic, by its ids."""
    def get_or_create_mosaic(self, mosaic_id: int) -> OCTMosaicState:
        """The mosaic, created where there is none, with what is missing above it."""
    def get_batch(self, mosaic_id: int, batch_id: int) -> OCTBatchState | None:
        """The batch, None where any part of the way to it is missing."""
    def iter_batches(self) -> Iterator[OCTBatchState]:
        """Every batch, by its ids."""
    def get_or_create_batch(self, mosaic_id: int, batch_id: int) -> OCTBatchState:
        """The batch, created where there is none, with what is missing above it."""
    def all_mosaics_done(self, total: int | None = None) -> bool:
        """Whether every expected mosaic is there and finished."""
    def all_mosaics_succeeded(self, total: int | None = None) -> bool:
        """Whether every expected mosaic is there and succeeded."""
    def all_mosaics_enface_stitched(self, total: int | None = None) -> bool:
        """Whether every expected mosaic is there and enface stitched."""

class PsoctSliceCreated(Created):
    """psoct.slice.created"""
class PsoctSliceTouched(Touched):
    """psoct.slice.touched"""
class PsoctSliceStarted(Started):
    """psoct.slice.started"""
class PsoctSliceCompleted(Completed):
    """psoct.slice.completed"""
class PsoctSliceFailed(Failed):
    """psoct.slice.failed"""
class PsoctSlicePending(MadePending):
    """psoct.slice.pending"""
class PsoctSliceDeleted(Deleted):
    """psoct.slice.deleted"""
class PsoctSliceReset(Reset):
    """psoct.slice.reset"""
class PsoctSliceEntered(Entered):
    """psoct.slice.entered"""
class PsoctSliceLeft(Left):
    """psoct.slice.left"""
class PsoctSliceRegistered(FlagSet):
    """psoct.slice.registered"""
class PsoctSliceUploaded(FlagSet):
    """psoct.slice.uploaded"""

@dataclass(frozen=True, slots=True, kw_only=True)
class OCTProjectStateView(Item):
    project_name: str
    batches_per_mosaic: int | None = None
    mosaics_per_slice: int | None = None
    slices: Mapping[int, OCTSliceStateView] = ...
    def get_slice(self, slice_id: int) -> OCTSliceStateView | None:
        """The slice, None where any part of the way to it is missing."""
    def iter_slices(self) -> Iterator[OCTSliceStateView]:
        """Every slice, by its ids."""
    @overload
    def get_mosaic(self, slice_id: int, mosaic_id: int) -> OCTMosaicStateView | None:
        """The mosaic, None where any part of the way to it is missing."""
    @overload
    def get_mosaic(self, ident: OCTMosaicId) -> OCTMosaicStateView | None:
        """The mosaic, None where any part of the way to it is missing."""
    def iter_mosaics(self) -> Iterator[OCTMosaicStateView]:
        """Every mosaic, by its ids."""
    def get_mosaic_by_parts(self, slice_id: int, mosaic_id: int) -> OCTMosaicStateView | None:
        """The same; mind the order of the ids."""
    @overload
    def get_batch(self, slice_id: int, mosaic_id: int, batch_id: int) -> OCTBatchStateView | None:
        """The batch, None where any part of the way to it is missing."""
    @overload
    def get_batch(self, ident: OCTBatchId) -> OCTBatchStateView | None:
        """The batch, None where any part of the way to it is missing."""
    def iter_batches(self) -> Iterator[OCTBatchStateView]:
        """Every batch, by its ids."""
    def get_batch_by_parts(self, slice_id: int, mosaic_id: int, batch_id: int) -> OCTBatchStateView | None:
        """The same; mind the order of the ids."""

class OCTProjectState(OpenItem[OCTProjectStateView]):
    @property
    def project_name(self) -> str: ...
    @property
    def batches_per_mosaic(self) -> int | None: ...
    @property
    def mosaics_per_slice(self) -> int | None: ...
    @property
    def slices(self) -> Mapping[int, OCTSliceState]: ...
    def get_slice(self, slice_id: int) -> OCTSliceState | None:
        """The slice, None where any part of the way to it is missing."""
    def iter_slices(self) -> Iterator[OCTSliceState]:
        """Every slice, by its ids."""
    def get_or_create_slice(self, slice_id: int) -> OCTSliceState:
        """The slice, created where there is none, with what is missing above it."""
    def delete_slice(self, slice_id: int) -> bool:
        """Delete a slice with all below it; False, and nothing changes, where there is none."""
    @overload
    def get_mosaic(self, slice_id: int, mosaic_id: int) -> OCTMosaicState | None:
        """The mosaic, None where any part of the way to it is missing."""
    @overload
    def get_mosaic(self, ident: OCTMosaicId) -> OCTMosaicState | None:
        """The mosaic, None where any part of the way to it is missing."""
    def iter_mosaics(self) -> Iterator[OCTMosaicState]:
        """Every mosaic, by its ids."""
    def get_mosaic_by_parts(self, slice_id: int, mosaic_id: int) -> OCTMosaicState | None:
        """The same; mind the order of the ids."""
    @overload
    def get_or_create_mosaic(self, slice_id: int, mosaic_id: int) -> OCTMosaicState:
        """The mosaic, created where there is none, with what is missing above it."""
    @overload
    def get_or_create_mosaic(self, ident: OCTMosaicId) -> OCTMosaicState:
        """The mosaic, created where there is none, with what is missing above it."""
    def get_or_create_mosaic_by_parts(self, slice_id: int, mosaic_id: int) -> OCTMosaicState:
        """The same; mind the order of the ids."""
    def delete_mosaic(self, slice_id: int, mosaic_id: int) -> bool:
        """Delete a mosaic with all below it; False, and nothing changes, where there is none."""
    @overload
    def get_batch(self, slice_id: int, mosaic_id: int, batch_id: int) -> OCTBatchState | None:
        """The batch, None where any part of the way to it is missing."""
    @overload
    def get_batch(self, ident: OCTBatchId) -> OCTBatchState | None:
        """The batch, None where any part of the way to it is missing."""
    def iter_batches(self) -> Iterator[OCTBatchState]:
        """Every batch, by its ids."""
    def get_batch_by_parts(self, slice_id: int, mosaic_id: int, batch_id: int) -> OCTBatchState | None:
        """The same; mind the order of the ids."""
    @overload
    def get_or_create_batch(self, slice_id: int, mosaic_id: int, batch_id: int) -> OCTBatchState:
        """The batch, created where there is none, with what is missing above it."""
    @overload
    def get_or_create_batch(self, ident: OCTBatchId) -> OCTBatchState:
        """The batch, created where there is none, with what is missing above it."""
    def get_or_create_batch_by_parts(self, slice_id: int, mosaic_id: int, batch_id: int) -> OCTBatchState:
        """The same; mind the order of the ids."""
    def delete_batch(self, slice_id: int, mosaic_id: int, batch_id: int) -> bool:
        """Delete a batch with all below it; False, and nothing changes, where there is none."""

class PsoctProjectCreated(ProjectCreated):
    """psoct.project.created"""
class PsoctProjectTouched(Touched):
    """psoct.project.touched"""
class PsoctProjectStarted(Started):
    """psoct.project.started"""
class PsoctProjectCompleted(Completed):
    """psoct.project.completed"""
class PsoctProjectFailed(Failed):
    """psoct.project.failed"""
class PsoctProjectPending(MadePending):
    """psoct.project.pending"""
class PsoctProjectDeleted(Deleted):
    """psoct.project.deleted"""
class PsoctProjectReset(Reset):
    """psoct.project.reset"""
class PsoctProjectEntered(Entered):
    """psoct.project.entered"""
class PsoctProjectLeft(Left):
    """psoct.project.left"""
class PsoctProjectPlanned(Planned):
    """psoct.project.planned"""

class OCTSliceReady(BecameReady):
    """psoct.slice.ready"""

class OCTSliceReadiness(OpenReadiness): ...

class OCTMosaicReady(BecameReady):
    """psoct.mosaic.ready"""

class OCTMosaicReadiness(OpenReadiness): ...

class OCTStateService(StateService):
    mosaics_per_slice: int
    def __init__(
        self, ledger: Ledger | ProjectStore | None = None, *, locks: Locks | None = None, mosaics_per_slice: int = 2
    ) -> None: ...
    def open_project(
        self, project: OCTProjectId | str, *, timeout_seconds: float | None = None
    ) -> AbstractContextManager[OCTProjectState]:
        """The project, open for change."""
    def open_project_by_parts(
        self, project_name: str, *, timeout_seconds: float | None = None
    ) -> AbstractContextManager[OCTProjectState]:
        """The project, open for change."""
    def read_project(
        self, project: OCTProjectId | str, *, timeout_seconds: float | None = None
    ) -> OCTProjectStateView:
        """The project and all below it; an empty one where there is none."""
    def read_project_by_parts(
        self, project_name: str, *, timeout_seconds: float | None = None
    ) -> OCTProjectStateView:
        """The project and all below it; an empty one where there is none."""
    def peek_project(self, project: OCTProjectId | str) -> OCTProjectStateView:
        """The same without waiting for anybody."""
    def peek_project_by_parts(self, project_name: str) -> OCTProjectStateView:
        """The same without waiting for anybody."""
    def open_slice(
        self, project: OCTSliceId | str, *, slice_id: int | None = None, timeout_seconds: float | None = None
    ) -> AbstractContextManager[OCTSliceState]:
        """The slice, open for change."""
    def open_slice_by_parts(
        self, project_name: str, *, slice_id: int, timeout_seconds: float | None = None
    ) -> AbstractContextManager[OCTSliceState]:
        """The slice, open for change."""
    def read_slice(
        self, project: OCTSliceId | str, *, slice_id: int | None = None, timeout_seconds: float | None = None
    ) -> OCTSliceStateView | None:
        """The slice and all below it; None where there is none."""
    def read_slice_by_parts(
        self, project_name: str, *, slice_id: int, timeout_seconds: float | None = None
    ) -> OCTSliceStateView | None:
        """The slice and all below it; None where there is none."""
    def peek_slice(
        self, project: OCTSliceId | str, *, slice_id: int | None = None
    ) -> OCTSliceStateView | None:
        """The same without waiting for anybody."""
    def peek_slice_by_parts(self, project_name: str, *, slice_id: int) -> OCTSliceStateView | None:
        """The same without waiting for anybody."""
    def open_mosaic(
        self, project: OCTMosaicId | str, *, slice_id: int | None = None, mosaic_id: int | None = None, timeout_seconds: float | None = None
    ) -> AbstractContextManager[OCTMosaicState]:
        """The mosaic, open for change."""
    def open_mosaic_by_parts(
        self, project_name: str, *, mosaic_id: int, slice_id: int | None = None, timeout_seconds: float | None = None
    ) -> AbstractContextManager[OCTMosaicState]:
        """The mosaic, open for change."""
    def read_mosaic(
        self, project: OCTMosaicId | str, *, slice_id: int | None = None, mosaic_id: int | None = None, timeout_seconds: float | None = None
    ) -> OCTMosaicStateView | None:
        """The mosaic and all below it; None where there is none."""
    def read_mosaic_by_parts(
        self, project_name: str, *, mosaic_id: int, slice_id: int | None = None, timeout_seconds: float | None = None
    ) -> OCTMosaicStateView | None:
        """The mosaic and all below it; None where there is none."""
    def peek_mosaic(
        self, project: OCTMosaicId | str, *, slice_id: int | None = None, mosaic_id: int | None = None
    ) -> OCTMosaicStateView | None:
        """The same without waiting for anybody."""
    def peek_mosaic_by_parts(
        self, project_name: str, *, mosaic_id: int, slice_id: int | None = None
    ) -> OCTMosaicStateView | None:
        """The same without waiting for anybody."""
    def open_batch(
        self, project: OCTBatchId | str, *, slice_id: int | None = None, mosaic_id: int | None = None, batch_id: int | None = None, timeout_seconds: float | None = None
    ) -> AbstractContextManager[OCTBatchState]:
        """The batch, open for change."""
    def open_batch_by_parts(
        self, project_name: str, *, mosaic_id: int, batch_id: int, slice_id: int | None = None, timeout_seconds: float | None = None
    ) -> AbstractContextManager[OCTBatchState]:
        """The batch, open for change."""
    def read_batch(
        self, project: OCTBatchId | str, *, slice_id: int | None = None, mosaic_id: int | None = None, batch_id: int | None = None, timeout_seconds: float | None = None
    ) -> OCTBatchStateView | None:
        """The batch and all below it; None where there is none."""
    def read_batch_by_parts(
        self, project_name: str, *, mosaic_id: int, batch_id: int, slice_id: int | None = None, timeout_seconds: float | None = None
    ) -> OCTBatchStateView | None:
        """The batch and all below it; None where there is none."""
    def peek_batch(
        self, project: OCTBatchId | str, *, slice_id: int | None = None, mosaic_id: int | None = None, batch_id: int | None = None
    ) -> OCTBatchStateView | None:
        """The same without waiting for anybody."""
    def peek_batch_by_parts(
        self, project_name: str, *, mosaic_id: int, batch_id: int, slice_id: int | None = None
    ) -> OCTBatchStateView | None:
        """The same without waiting for anybody."""

OCT_STATE_SERVICE: Final[OCTStateService]
