# ruff: noqa: E501, I001
# fmt: off
"""Made by `python -m ledger.pipelines.stub ledger.pipelines.lsm` from the declaration; change that."""

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

LSM: Final[Pipeline]

@dataclass(frozen=True)
class LSMProjectId(Ident): ...

@dataclass(frozen=True)
class LSMSliceId(LSMProjectId):
    slice_id: int

@dataclass(frozen=True)
class LSMChannelId(LSMSliceId):
    channel_id: int

@dataclass(frozen=True)
class LSMStripId(LSMChannelId):
    strip_id: int

@dataclass(frozen=True, slots=True, kw_only=True)
class LSMStripStateView(Item):
    slice_id: int
    channel_id: int = 1
    strip_id: int
    compressed: bool = False
    archived: bool = False
    uploaded: bool = False

class LSMStripState(OpenItem[LSMStripStateView]):
    @property
    def slice_id(self) -> int: ...
    @property
    def channel_id(self) -> int: ...
    @property
    def strip_id(self) -> int: ...
    @property
    def compressed(self) -> bool: ...
    @property
    def archived(self) -> bool: ...
    @property
    def uploaded(self) -> bool: ...
    def set_compressed(self, value: bool = True) -> None: ...
    def reset_compressed(self) -> None: ...
    def set_archived(self, value: bool = True) -> None: ...
    def reset_archived(self) -> None: ...
    def set_uploaded(self, value: bool = True) -> None: ...
    def reset_uploaded(self) -> None: ...

class LsmStripCreated(Created):
    """lsm.strip.created"""
class LsmStripTouched(Touched):
    """lsm.strip.touched"""
class LsmStripStarted(Started):
    """lsm.strip.started"""
class LsmStripCompleted(Completed):
    """lsm.strip.completed"""
class LsmStripFailed(Failed):
    """lsm.strip.failed"""
class LsmStripPending(MadePending):
    """lsm.strip.pending"""
class LsmStripDeleted(Deleted):
    """lsm.strip.deleted"""
class LsmStripReset(Reset):
    """lsm.strip.reset"""
class LsmStripEntered(Entered):
    """lsm.strip.entered"""
class LsmStripLeft(Left):
    """lsm.strip.left"""
class LsmStripCompressed(FlagSet):
    """lsm.strip.compressed"""
class LsmStripArchived(FlagSet):
    """lsm.strip.archived"""
class LsmStripUploaded(FlagSet):
    """lsm.strip.uploaded"""

@dataclass(frozen=True, slots=True, kw_only=True)
class LSMChannelStateView(Item):
    slice_id: int
    channel_id: int = 1
    mip_stitched: bool = False
    volume_stitched: bool = False
    volume_uploaded: bool = False
    strips: Mapping[int, LSMStripStateView] = ...
    def get_strip(self, strip_id: int) -> LSMStripStateView | None:
        """The strip, None where any part of the way to it is missing."""
    def iter_strips(self) -> Iterator[LSMStripStateView]:
        """Every strip, by its ids."""
    def all_completed(self, total_strips: int) -> bool:
        """Whether every expected strip is there and finished."""
    def all_succeeded(self, total_strips: int) -> bool:
        """Whether every expected strip is there and succeeded."""
    def all_compressed(self, total_strips: int) -> bool:
        """Whether every expected strip is there and compressed."""

class LSMChannelState(OpenItem[LSMChannelStateView]):
    @property
    def slice_id(self) -> int: ...
    @property
    def channel_id(self) -> int: ...
    @property
    def mip_stitched(self) -> bool: ...
    @property
    def volume_stitched(self) -> bool: ...
    @property
    def volume_uploaded(self) -> bool: ...
    @property
    def strips(self) -> Mapping[int, LSMStripState]: ...
    def set_mip_stitched(self, value: bool = True) -> None: ...
    def reset_mip_stitched(self) -> None: ...
    def set_volume_stitched(self, value: bool = True) -> None: ...
    def reset_volume_stitched(self) -> None: ...
    def set_volume_uploaded(self, value: bool = True) -> None: ...
    def reset_volume_uploaded(self) -> None: ...
    def get_strip(self, strip_id: int) -> LSMStripState | None:
        """The strip, None where any part of the way to it is missing."""
    def iter_strips(self) -> Iterator[LSMStripState]:
        """Every strip, by its ids."""
    def get_or_create_strip(self, strip_id: int) -> LSMStripState:
        """The strip, created where there is none, with what is missing above it."""
    def all_completed(self, total_strips: int) -> bool:
        """Whether every expected strip is there and finished."""
    def all_succeeded(self, total_strips: int) -> bool:
        """Whether every expected strip is there and succeeded."""
    def all_compressed(self, total_strips: int) -> bool:
        """Whether every expected strip is there and compressed."""

class LsmChannelCreated(Created):
    """lsm.channel.created"""
class LsmChannelTouched(Touched):
    """lsm.channel.touched"""
class LsmChannelStarted(Started):
    """lsm.channel.started"""
class LsmChannelCompleted(Completed):
    """lsm.channel.completed"""
class LsmChannelFailed(Failed):
    """lsm.channel.failed"""
class LsmChannelPending(MadePending):
    """lsm.channel.pending"""
class LsmChannelDeleted(Deleted):
    """lsm.channel.deleted"""
class LsmChannelReset(Reset):
    """lsm.channel.reset"""
class LsmChannelEntered(Entered):
    """lsm.channel.entered"""
class LsmChannelLeft(Left):
    """lsm.channel.left"""
class LsmChannelMipStitched(FlagSet):
    """lsm.channel.mip_stitched"""
class LsmChannelVolumeStitched(FlagSet):
    """lsm.channel.volume_stitched"""
class LsmChannelVolumeUploaded(FlagSet):
    """lsm.channel.volume_uploaded"""

@dataclass(frozen=True, slots=True, kw_only=True)
class LSMSliceStateView(Item):
    slice_id: int
    channels: Mapping[int, LSMChannelStateView] = ...
    def get_channel(self, channel_id: int) -> LSMChannelStateView | None:
        """The channel, None where any part of the way to it is missing."""
    def iter_channels(self) -> Iterator[LSMChannelStateView]:
        """Every channel, by its ids."""
    def get_strip(self, channel_id: int, strip_id: int) -> LSMStripStateView | None:
        """The strip, None where any part of the way to it is missing."""
    def iter_strips(self) -> Iterator[LSMStripStateView]:
        """Every strip, by its ids."""
    def all_finished(self, total_channels: int = 1) -> bool:
        """Whether every expected channel is there and finished."""
    def all_succeeded(self, total_channels: int = 1) -> bool:
        """Whether every expected channel is there and succeeded."""

class LSMSliceState(OpenItem[LSMSliceStateView]):
    @property
    def slice_id(self) -> int: ...
    @property
    def channels(self) -> Mapping[int, LSMChannelState]: ...
    def get_channel(self, channel_id: int) -> LSMChannelState | None:
        """The channel, None where any part of the way to it is missing."""
    def iter_channels(self) -> Iterator[LSMChannelState]:
        """Every channel, by its ids."""
    def get_or_create_channel(self, channel_id: int) -> LSMChannelState:
        """The channel, created where there is none, with what is missing above it."""
    def get_strip(self, channel_id: int, strip_id: int) -> LSMStripState | None:
        """The strip, None where any part of the way to it is missing."""
    def iter_strips(self) -> Iterator[LSMStripState]:
        """Every strip, by its ids."""
    def get_or_create_strip(self, channel_id: int, strip_id: int) -> LSMStripState:
        """The strip, created where there is none, with what is missing above it."""
    def all_finished(self, total_channels: int = 1) -> bool:
        """Whether every expected channel is there and finished."""
    def all_succeeded(self, total_channels: int = 1) -> bool:
        """Whether every expected channel is there and succeeded."""

class LsmSliceCreated(Created):
    """lsm.slice.created"""
class LsmSliceTouched(Touched):
    """lsm.slice.touched"""
class LsmSliceStarted(Started):
    """lsm.slice.started"""
class LsmSliceCompleted(Completed):
    """lsm.slice.completed"""
class LsmSliceFailed(Failed):
    """lsm.slice.failed"""
class LsmSlicePending(MadePending):
    """lsm.slice.pending"""
class LsmSliceDeleted(Deleted):
    """lsm.slice.deleted"""
class LsmSliceReset(Reset):
    """lsm.slice.reset"""
class LsmSliceEntered(Entered):
    """lsm.slice.entered"""
class LsmSliceLeft(Left):
    """lsm.slice.left"""

@dataclass(frozen=True, slots=True, kw_only=True)
class LSMProjectStateView(Item):
    project_name: str
    strips_per_slice: int | None = None
    slices: Mapping[int, LSMSliceStateView] = ...
    def get_slice(self, slice_id: int) -> LSMSliceStateView | None:
        """The slice, None where any part of the way to it is missing."""
    def iter_slices(self) -> Iterator[LSMSliceStateView]:
        """Every slice, by its ids."""
    @overload
    def get_channel(self, slice_id: int, channel_id: int) -> LSMChannelStateView | None:
        """The channel, None where any part of the way to it is missing."""
    @overload
    def get_channel(self, ident: LSMChannelId) -> LSMChannelStateView | None:
        """The channel, None where any part of the way to it is missing."""
    def iter_channels(self) -> Iterator[LSMChannelStateView]:
        """Every channel, by its ids."""
    def get_channel_by_parts(self, slice_id: int, channel_id: int) -> LSMChannelStateView | None:
        """The same; mind the order of the ids."""
    @overload
    def get_strip(self, slice_id: int, channel_id: int, strip_id: int) -> LSMStripStateView | None:
        """The strip, None where any part of the way to it is missing."""
    @overload
    def get_strip(self, ident: LSMStripId) -> LSMStripStateView | None:
        """The strip, None where any part of the way to it is missing."""
    def iter_strips(self) -> Iterator[LSMStripStateView]:
        """Every strip, by its ids."""
    def get_strip_by_parts(
        self, slice_id: int, strip_id: int, channel_id: int = 1
    ) -> LSMStripStateView | None:
        """The same; mind the order of the ids."""
    def all_finished(self, total_slices: int = 1) -> bool:
        """Whether every expected slice is there and finished."""
    def all_succeeded(self, total_slices: int = 1) -> bool:
        """Whether every expected slice is there and succeeded."""

class LSMProjectState(OpenItem[LSMProjectStateView]):
    @property
    def project_name(self) -> str: ...
    @property
    def strips_per_slice(self) -> int | None: ...
    @property
    def slices(self) -> Mapping[int, LSMSliceState]: ...
    def get_slice(self, slice_id: int) -> LSMSliceState | None:
        """The slice, None where any part of the way to it is missing."""
    def iter_slices(self) -> Iterator[LSMSliceState]:
        """Every slice, by its ids."""
    def get_or_create_slice(self, slice_id: int) -> LSMSliceState:
        """The slice, created where there is none, with what is missing above it."""
    def delete_slice(self, slice_id: int) -> bool:
        """Delete a slice with all below it; False, and nothing changes, where there is none."""
    @overload
    def get_channel(self, slice_id: int, channel_id: int) -> LSMChannelState | None:
        """The channel, None where any part of the way to it is missing."""
    @overload
    def get_channel(self, ident: LSMChannelId) -> LSMChannelState | None:
        """The channel, None where any part of the way to it is missing."""
    def iter_channels(self) -> Iterator[LSMChannelState]:
        """Every channel, by its ids."""
    def get_channel_by_parts(self, slice_id: int, channel_id: int) -> LSMChannelState | None:
        """The same; mind the order of the ids."""
    @overload
    def get_or_create_channel(self, slice_id: int, channel_id: int) -> LSMChannelState:
        """The channel, created where there is none, with what is missing above it."""
    @overload
    def get_or_create_channel(self, ident: LSMChannelId) -> LSMChannelState:
        """The channel, created where there is none, with what is missing above it."""
    def get_or_create_channel_by_parts(self, slice_id: int, channel_id: int) -> LSMChannelState:
        """The same; mind the order of the ids."""
    def delete_channel(self, slice_id: int, channel_id: int) -> bool:
        """Delete a channel with all below it; False, and nothing changes, where there is none."""
    @overload
    def get_strip(self, slice_id: int, channel_id: int, strip_id: int) -> LSMStripState | None:
        """The strip, None where any part of the way to it is missing."""
    @overload
    def get_strip(self, ident: LSMStripId) -> LSMStripState | None:
        """The strip, None where any part of the way to it is missing."""
    def iter_strips(self) -> Iterator[LSMStripState]:
        """Every strip, by its ids."""
    def get_strip_by_parts(self, slice_id: int, strip_id: int, channel_id: int = 1) -> LSMStripState | None:
        """The same; mind the order of the ids."""
    @overload
    def get_or_create_strip(self, slice_id: int, channel_id: int, strip_id: int) -> LSMStripState:
        """The strip, created where there is none, with what is missing above it."""
    @overload
    def get_or_create_strip(self, ident: LSMStripId) -> LSMStripState:
        """The strip, created where there is none, with what is missing above it."""
    def get_or_create_strip_by_parts(
        self, slice_id: int, strip_id: int, channel_id: int = 1
    ) -> LSMStripState:
        """The same; mind the order of the ids."""
    def delete_strip(self, slice_id: int, channel_id: int, strip_id: int) -> bool:
        """Delete a strip with all below it; False, and nothing changes, where there is none."""
    def all_finished(self, total_slices: int = 1) -> bool:
        """Whether every expected slice is there and finished."""
    def all_succeeded(self, total_slices: int = 1) -> bool:
        """Whether every expected slice is there and succeeded."""

class LsmProjectCreated(ProjectCreated):
    """lsm.project.created"""
class LsmProjectTouched(Touched):
    """lsm.project.touched"""
class LsmProjectStarted(Started):
    """lsm.project.started"""
class LsmProjectCompleted(Completed):
    """lsm.project.completed"""
class LsmProjectFailed(Failed):
    """lsm.project.failed"""
class LsmProjectPending(MadePending):
    """lsm.project.pending"""
class LsmProjectDeleted(Deleted):
    """lsm.project.deleted"""
class LsmProjectReset(Reset):
    """lsm.project.reset"""
class LsmProjectEntered(Entered):
    """lsm.project.entered"""
class LsmProjectLeft(Left):
    """lsm.project.left"""
class LsmProjectPlanned(Planned):
    """lsm.project.planned"""

class LSMChannelReady(BecameReady):
    """lsm.channel.ready"""

class LSMChannelReadiness(OpenReadiness): ...

class LSMStateService(StateService):
    def __init__(
        self, ledger: Ledger | ProjectStore | None = None, *, locks: Locks | None = None
    ) -> None: ...
    def open_project(
        self, project: LSMProjectId | str, *, timeout_seconds: float | None = None
    ) -> AbstractContextManager[LSMProjectState]:
        """The project, open for change."""
    def open_project_by_parts(
        self, project_name: str, *, timeout_seconds: float | None = None
    ) -> AbstractContextManager[LSMProjectState]:
        """The project, open for change."""
    def read_project(
        self, project: LSMProjectId | str, *, timeout_seconds: float | None = None
    ) -> LSMProjectStateView:
        """The project and all below it; an empty one where there is none."""
    def read_project_by_parts(
        self, project_name: str, *, timeout_seconds: float | None = None
    ) -> LSMProjectStateView:
        """The project and all below it; an empty one where there is none."""
    def peek_project(self, project: LSMProjectId | str) -> LSMProjectStateView:
        """The same without waiting for anybody."""
    def peek_project_by_parts(self, project_name: str) -> LSMProjectStateView:
        """The same without waiting for anybody."""
    def open_slice(
        self, project: LSMSliceId | str, *, slice_id: int | None = None, timeout_seconds: float | None = None
    ) -> AbstractContextManager[LSMSliceState]:
        """The slice, open for change."""
    def open_slice_by_parts(
        self, project_name: str, *, slice_id: int, timeout_seconds: float | None = None
    ) -> AbstractContextManager[LSMSliceState]:
        """The slice, open for change."""
    def read_slice(
        self, project: LSMSliceId | str, *, slice_id: int | None = None, timeout_seconds: float | None = None
    ) -> LSMSliceStateView | None:
        """The slice and all below it; None where there is none."""
    def read_slice_by_parts(
        self, project_name: str, *, slice_id: int, timeout_seconds: float | None = None
    ) -> LSMSliceStateView | None:
        """The slice and all below it; None where there is none."""
    def peek_slice(
        self, project: LSMSliceId | str, *, slice_id: int | None = None
    ) -> LSMSliceStateView | None:
        """The same without waiting for anybody."""
    def peek_slice_by_parts(self, project_name: str, *, slice_id: int) -> LSMSliceStateView | None:
        """The same without waiting for anybody."""
    def open_channel(
        self, project: LSMChannelId | str, *, slice_id: int | None = None, channel_id: int | None = None, timeout_seconds: float | None = None
    ) -> AbstractContextManager[LSMChannelState]:
        """The channel, open for change."""
    def open_channel_by_parts(
        self, project_name: str, *, slice_id: int, channel_id: int, timeout_seconds: float | None = None
    ) -> AbstractContextManager[LSMChannelState]:
        """The channel, open for change."""
    def read_channel(
        self, project: LSMChannelId | str, *, slice_id: int | None = None, channel_id: int | None = None, timeout_seconds: float | None = None
    ) -> LSMChannelStateView | None:
        """The channel and all below it; None where there is none."""
    def read_channel_by_parts(
        self, project_name: str, *, slice_id: int, channel_id: int, timeout_seconds: float | None = None
    ) -> LSMChannelStateView | None:
        """The channel and all below it; None where there is none."""
    def peek_channel(
        self, project: LSMChannelId | str, *, slice_id: int | None = None, channel_id: int | None = None
    ) -> LSMChannelStateView | None:
        """The same without waiting for anybody."""
    def peek_channel_by_parts(
        self, project_name: str, *, slice_id: int, channel_id: int
    ) -> LSMChannelStateView | None:
        """The same without waiting for anybody."""
    def open_strip(
        self, project: LSMStripId | str, *, slice_id: int | None = None, channel_id: int | None = None, strip_id: int | None = None, timeout_seconds: float | None = None
    ) -> AbstractContextManager[LSMStripState]:
        """The strip, open for change."""
    def open_strip_by_parts(
        self, project_name: str, *, slice_id: int, strip_id: int, channel_id: int = 1, timeout_seconds: float | None = None
    ) -> AbstractContextManager[LSMStripState]:
        """The strip, open for change."""
    def read_strip(
        self, project: LSMStripId | str, *, slice_id: int | None = None, channel_id: int | None = None, strip_id: int | None = None, timeout_seconds: float | None = None
    ) -> LSMStripStateView | None:
        """The strip and all below it; None where there is none."""
    def read_strip_by_parts(
        self, project_name: str, *, slice_id: int, strip_id: int, channel_id: int = 1, timeout_seconds: float | None = None
    ) -> LSMStripStateView | None:
        """The strip and all below it; None where there is none."""
    def peek_strip(
        self, project: LSMStripId | str, *, slice_id: int | None = None, channel_id: int | None = None, strip_id: int | None = None
    ) -> LSMStripStateView | None:
        """The same without waiting for anybody."""
    def peek_strip_by_parts(
        self, project_name: str, *, slice_id: int, strip_id: int, channel_id: int = 1
    ) -> LSMStripStateView | None:
        """The same without waiting for anybody."""

LSM_STATE_SERVICE: Final[LSMStateService]
