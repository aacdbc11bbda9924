"""
The service of a pipeline's project state: open_* to change, read_* and peek_* to look (spec 1.5).

    service = LSMStateService(log)
    with service.open_strip("brain_7", slice_id=1, strip_id=2, channel_id=0) as strip:
        strip.mark_completed()
        strip.set_uploaded(True)

open_* creates what is missing on the path, and stores all that was recorded in the block in one append at its
end. An exception stores nothing; where another scope stored first, StreamConflict is raised and nothing is
stored. read_* and peek_* never create: they return one snapshot, with every append that was committed before
the call, and None for a missing slice, channel or strip; a project that nobody created is shown as an empty
one. Each takes an ident, or a project's name and ids; the `_by_parts` twins take the name and ids only.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from threading import Lock

from ..store.ledger import Ledger, connect
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
from .tree import opened, read


class LSMStateService:
    """The state of LSM projects in a ledger: the given one, or what `ledger.connect()` finds at first use."""

    def __init__(self, ledger: Ledger | None = None) -> None:
        self._ledger = ledger
        self._connecting = Lock()

    @property
    def ledger(self) -> Ledger:
        """The ledger behind this service."""
        if self._ledger is None:
            with self._connecting:
                if self._ledger is None:
                    self._ledger = connect()
        return self._ledger

    # Changing

    def open_project(self, project: LSMProjectId | str) -> AbstractContextManager[LSMProjectState]:
        """The project, open for change."""
        return opened(self.ledger, LSM, LSMProjectId.of(project, {}))

    def open_slice(
        self, project: LSMSliceId | str, *, slice_id: int | None = None
    ) -> AbstractContextManager[LSMSliceState]:
        """The slice, open for change."""
        return opened(self.ledger, LSM, LSMSliceId.of(project, {"slice_id": slice_id}))

    def open_channel(
        self, project: LSMChannelId | str, *, slice_id: int | None = None, channel_id: int | None = None
    ) -> AbstractContextManager[LSMChannelState]:
        """The channel, open for change."""
        return opened(self.ledger, LSM, _channel(project, slice_id, channel_id))

    def open_strip(
        self,
        project: LSMStripId | str,
        *,
        slice_id: int | None = None,
        strip_id: int | None = None,
        channel_id: int | None = None,
    ) -> AbstractContextManager[LSMStripState]:
        """The strip, open for change; channel 1 where none is named."""
        return opened(self.ledger, LSM, _strip(project, slice_id, strip_id, channel_id))

    def open_project_by_parts(self, project_name: str) -> AbstractContextManager[LSMProjectState]:
        """The project of this name, open for change."""
        return self.open_project(project_name)

    def open_slice_by_parts(
        self, project_name: str, *, slice_id: int
    ) -> AbstractContextManager[LSMSliceState]:
        """The slice with these ids, open for change."""
        return self.open_slice(project_name, slice_id=slice_id)

    def open_channel_by_parts(
        self, project_name: str, *, slice_id: int, channel_id: int
    ) -> AbstractContextManager[LSMChannelState]:
        """The channel with these ids, open for change."""
        return self.open_channel(project_name, slice_id=slice_id, channel_id=channel_id)

    def open_strip_by_parts(
        self, project_name: str, *, slice_id: int, strip_id: int, channel_id: int = 1
    ) -> AbstractContextManager[LSMStripState]:
        """The strip with these ids, open for change."""
        return self.open_strip(project_name, slice_id=slice_id, strip_id=strip_id, channel_id=channel_id)

    # Looking, where the answer matters

    def read_project(self, project: LSMProjectId | str) -> LSMProjectStateView:
        """The project and all below it; an empty one where nobody created it."""
        ident = LSMProjectId.of(project, {})
        found: LSMProjectStateView | None = read(self.ledger, LSM, ident)
        return found or LSMProjectStateView(project_name=ident.project_name)

    def read_slice(
        self, project: LSMSliceId | str, *, slice_id: int | None = None
    ) -> LSMSliceStateView | None:
        """The slice and all below it."""
        found: LSMSliceStateView | None = read(
            self.ledger, LSM, LSMSliceId.of(project, {"slice_id": slice_id})
        )
        return found

    def read_channel(
        self, project: LSMChannelId | str, *, slice_id: int | None = None, channel_id: int | None = None
    ) -> LSMChannelStateView | None:
        """The channel with its strips."""
        found: LSMChannelStateView | None = read(self.ledger, LSM, _channel(project, slice_id, channel_id))
        return found

    def read_strip(
        self,
        project: LSMStripId | str,
        *,
        slice_id: int | None = None,
        strip_id: int | None = None,
        channel_id: int | None = None,
    ) -> LSMStripStateView | None:
        """The strip; of channel 1 where none is named."""
        found: LSMStripStateView | None = read(
            self.ledger, LSM, _strip(project, slice_id, strip_id, channel_id)
        )
        return found

    def read_project_by_parts(self, project_name: str) -> LSMProjectStateView:
        """The project of this name and all below it."""
        return self.read_project(project_name)

    def read_slice_by_parts(self, project_name: str, *, slice_id: int) -> LSMSliceStateView | None:
        """The slice with these ids."""
        return self.read_slice(project_name, slice_id=slice_id)

    def read_channel_by_parts(
        self, project_name: str, *, slice_id: int, channel_id: int
    ) -> LSMChannelStateView | None:
        """The channel with these ids."""
        return self.read_channel(project_name, slice_id=slice_id, channel_id=channel_id)

    def read_strip_by_parts(
        self, project_name: str, *, slice_id: int, strip_id: int, channel_id: int = 1
    ) -> LSMStripStateView | None:
        """The strip with these ids."""
        return self.read_strip(project_name, slice_id=slice_id, strip_id=strip_id, channel_id=channel_id)

    # Looking, for display. The same: nothing is locked, so there is nothing to leave out.

    peek_project = read_project
    peek_slice = read_slice
    peek_channel = read_channel
    peek_strip = read_strip
    peek_project_by_parts = read_project_by_parts
    peek_slice_by_parts = read_slice_by_parts
    peek_channel_by_parts = read_channel_by_parts
    peek_strip_by_parts = read_strip_by_parts


def _channel(given: Ident | str, slice_id: int | None, channel_id: int | None) -> LSMChannelId:
    return LSMChannelId.of(given, {"slice_id": slice_id, "channel_id": channel_id})


def _strip(
    given: Ident | str, slice_id: int | None, strip_id: int | None, channel_id: int | None
) -> LSMStripId:
    if channel_id is None and not isinstance(given, Ident):
        channel_id = 1
    return LSMStripId.of(given, {"slice_id": slice_id, "channel_id": channel_id, "strip_id": strip_id})


LSM_STATE_SERVICE = LSMStateService()
"""The service of the ledger that this process finds; it connects when it is first used."""
