"""
The service of the LSM pipeline's project state; service.py says what its methods have in common.

    service = LSMStateService(log)
    with service.open_strip("brain_7", slice_id=1, strip_id=2, channel_id=0) as strip:
        strip.mark_completed()
        strip.set_uploaded(True)
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from .ident import Ident, LSMChannelId, LSMProjectId, LSMSliceId, LSMStripId
from .lsm import (
    LSM,
    LSMChannelState,
    LSMChannelStateView,
    LSMProjectState,
    LSMProjectStateView,
    LSMSliceState,
    LSMSliceStateView,
    LSMStripState,
    LSMStripStateView,
)
from .open_item import OpenItem
from .service import Ids, StateService

Seconds = float | None
"""How long to wait at most; None: without bound."""


class LSMStateService(StateService):
    """The state of LSM projects: `open_*` to change, `read_*` and `peek_*` to look."""

    LEVELS = LSM

    # Changing

    def open_project(
        self, project: LSMProjectId | str, *, timeout_seconds: Seconds = None
    ) -> AbstractContextManager[LSMProjectState]:
        """The project, open for change."""
        return self._open(LSMProjectState, project, [], timeout_seconds)

    def open_slice(
        self, project: LSMSliceId | str, *, slice_id: int | None = None, timeout_seconds: Seconds = None
    ) -> AbstractContextManager[LSMSliceState]:
        """The slice, open for change."""
        return self._open(LSMSliceState, project, [slice_id], timeout_seconds)

    def open_channel(
        self,
        project: LSMChannelId | str,
        *,
        slice_id: int | None = None,
        channel_id: int | None = None,
        timeout_seconds: Seconds = None,
    ) -> AbstractContextManager[LSMChannelState]:
        """The channel, open for change."""
        return self._open(LSMChannelState, project, [slice_id, channel_id], timeout_seconds)

    def open_strip(
        self,
        project: LSMStripId | str,
        *,
        slice_id: int | None = None,
        strip_id: int | None = None,
        channel_id: int | None = None,
        timeout_seconds: Seconds = None,
    ) -> AbstractContextManager[LSMStripState]:
        """The strip, open for change; of channel 1 where none is named."""
        return self._open(LSMStripState, project, [slice_id, channel_id, strip_id], timeout_seconds)

    def open_project_by_parts(
        self, project_name: str, *, timeout_seconds: Seconds = None
    ) -> AbstractContextManager[LSMProjectState]:
        """The project of this name, open for change."""
        return self._open(LSMProjectState, project_name, [], timeout_seconds)

    def open_slice_by_parts(
        self, project_name: str, *, slice_id: int, timeout_seconds: Seconds = None
    ) -> AbstractContextManager[LSMSliceState]:
        """The slice with these ids, open for change."""
        return self._open(LSMSliceState, project_name, [slice_id], timeout_seconds)

    def open_channel_by_parts(
        self, project_name: str, *, slice_id: int, channel_id: int, timeout_seconds: Seconds = None
    ) -> AbstractContextManager[LSMChannelState]:
        """The channel with these ids, open for change."""
        return self._open(LSMChannelState, project_name, [slice_id, channel_id], timeout_seconds)

    def open_strip_by_parts(
        self,
        project_name: str,
        *,
        slice_id: int,
        strip_id: int,
        channel_id: int = 1,
        timeout_seconds: Seconds = None,
    ) -> AbstractContextManager[LSMStripState]:
        """The strip with these ids, open for change."""
        return self._open(LSMStripState, project_name, [slice_id, channel_id, strip_id], timeout_seconds)

    # Looking, where the answer matters

    def read_project(
        self, project: LSMProjectId | str, *, timeout_seconds: Seconds = None
    ) -> LSMProjectStateView:
        """The project and all below it; an empty one where nobody created it."""
        found = self._read(LSMProjectState, project, [], timeout_seconds)
        return found or self._blank(project)

    def read_slice(
        self, project: LSMSliceId | str, *, slice_id: int | None = None, timeout_seconds: Seconds = None
    ) -> LSMSliceStateView | None:
        """The slice and all below it."""
        return self._read(LSMSliceState, project, [slice_id], timeout_seconds)

    def read_channel(
        self,
        project: LSMChannelId | str,
        *,
        slice_id: int | None = None,
        channel_id: int | None = None,
        timeout_seconds: Seconds = None,
    ) -> LSMChannelStateView | None:
        """The channel with its strips."""
        return self._read(LSMChannelState, project, [slice_id, channel_id], timeout_seconds)

    def read_strip(
        self,
        project: LSMStripId | str,
        *,
        slice_id: int | None = None,
        strip_id: int | None = None,
        channel_id: int | None = None,
        timeout_seconds: Seconds = None,
    ) -> LSMStripStateView | None:
        """The strip; of channel 1 where none is named."""
        return self._read(LSMStripState, project, [slice_id, channel_id, strip_id], timeout_seconds)

    def read_project_by_parts(
        self, project_name: str, *, timeout_seconds: Seconds = None
    ) -> LSMProjectStateView:
        """The project of this name."""
        found = self._read(LSMProjectState, project_name, [], timeout_seconds)
        return found or self._blank(project_name)

    def read_slice_by_parts(
        self, project_name: str, *, slice_id: int, timeout_seconds: Seconds = None
    ) -> LSMSliceStateView | None:
        """The slice with these ids."""
        return self._read(LSMSliceState, project_name, [slice_id], timeout_seconds)

    def read_channel_by_parts(
        self, project_name: str, *, slice_id: int, channel_id: int, timeout_seconds: Seconds = None
    ) -> LSMChannelStateView | None:
        """The channel with these ids."""
        return self._read(LSMChannelState, project_name, [slice_id, channel_id], timeout_seconds)

    def read_strip_by_parts(
        self,
        project_name: str,
        *,
        slice_id: int,
        strip_id: int,
        channel_id: int = 1,
        timeout_seconds: Seconds = None,
    ) -> LSMStripStateView | None:
        """The strip with these ids."""
        return self._read(LSMStripState, project_name, [slice_id, channel_id, strip_id], timeout_seconds)

    # Looking, for display

    def peek_project(self, project: LSMProjectId | str) -> LSMProjectStateView:
        """The project and all below it; an empty one where nobody created it."""
        found = self._peek(LSMProjectState, project, [])
        return found or self._blank(project)

    def peek_slice(
        self, project: LSMSliceId | str, *, slice_id: int | None = None
    ) -> LSMSliceStateView | None:
        """The slice and all below it."""
        return self._peek(LSMSliceState, project, [slice_id])

    def peek_channel(
        self, project: LSMChannelId | str, *, slice_id: int | None = None, channel_id: int | None = None
    ) -> LSMChannelStateView | None:
        """The channel with its strips."""
        return self._peek(LSMChannelState, project, [slice_id, channel_id])

    def peek_strip(
        self,
        project: LSMStripId | str,
        *,
        slice_id: int | None = None,
        strip_id: int | None = None,
        channel_id: int | None = None,
    ) -> LSMStripStateView | None:
        """The strip; of channel 1 where none is named."""
        return self._peek(LSMStripState, project, [slice_id, channel_id, strip_id])

    def peek_project_by_parts(self, project_name: str) -> LSMProjectStateView:
        """The project of this name."""
        found = self._peek(LSMProjectState, project_name, [])
        return found or self._blank(project_name)

    def peek_slice_by_parts(self, project_name: str, *, slice_id: int) -> LSMSliceStateView | None:
        """The slice with these ids."""
        return self._peek(LSMSliceState, project_name, [slice_id])

    def peek_channel_by_parts(
        self, project_name: str, *, slice_id: int, channel_id: int
    ) -> LSMChannelStateView | None:
        """The channel with these ids."""
        return self._peek(LSMChannelState, project_name, [slice_id, channel_id])

    def peek_strip_by_parts(
        self, project_name: str, *, slice_id: int, strip_id: int, channel_id: int = 1
    ) -> LSMStripStateView | None:
        """The strip with these ids."""
        return self._peek(LSMStripState, project_name, [slice_id, channel_id, strip_id])

    def _ident(self, level: type[OpenItem[Any]], given: Ident | str, ids: Ids) -> Ident:
        if level is LSMStripState and not isinstance(given, Ident):
            slice_id, channel_id, strip_id = ids
            ids = [slice_id, 1 if channel_id is None else channel_id, strip_id]
        return super()._ident(level, given, ids)

    def _blank(self, project: LSMProjectId | str) -> LSMProjectStateView:
        """The view of a project that nobody created (spec S0-02)."""
        name = project if isinstance(project, str) else project.project_name
        return LSMProjectStateView(project_name=name)


LSM_STATE_SERVICE = LSMStateService()
"""The service of the ledger that this process finds; it connects when it is first used."""
