"""
The LSM pipeline: project → slice → channel → strip, each a stream with the machine of item.py (spec 1.3).

    lsm.project/<project>
    lsm.slice/<project>/<slice>
    lsm.channel/<project>/<slice>/<channel>          mip_stitched ─▶ volume_stitched ─▶ volume_uploaded
    lsm.strip/<project>/<slice>/<channel>/<strip>    archived    compressed ─▶ uploaded

An arrow says what is made from what: a flag that is cleared, by `reset_x()` or by `set_x(False)`, clears what
is to its right (spec S0-30, W0-20). A topic is the level and a word of facts.py or a flag:
`lsm.strip.completed`, `lsm.channel.mip_stitched`. A `…View` is frozen, all the way down; the class without
`View` is the same item open for change, and shows the same fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .branch import Below, OpenBranch
from .ident import LSMChannelId, LSMProjectId, LSMSliceId, LSMStripId
from .item import Item, below, flag, total
from .lsm_lookups import ChannelLookups, ProjectLookups, SliceLookups
from .open_item import OpenItem, Shown, flag_methods
from .views import Levels

# State: what is true now, which is also the read-only view of it.


@dataclass(frozen=True, slots=True, kw_only=True)
class LSMStripStateView(Item):
    """A strip."""

    slice_id: int
    channel_id: int = 1
    strip_id: int
    archived: bool = flag()
    compressed: bool = flag(clears=("uploaded",))
    uploaded: bool = flag()


@dataclass(frozen=True, slots=True, kw_only=True)
class LSMChannelStateView(Item, ChannelLookups[LSMStripStateView]):
    """A channel with its strips."""

    slice_id: int
    channel_id: int = 1
    mip_stitched: bool = flag(clears=("volume_stitched",))
    volume_stitched: bool = flag(clears=("volume_uploaded",))
    volume_uploaded: bool = flag()
    strips: Mapping[int, LSMStripStateView] = below()


@dataclass(frozen=True, slots=True, kw_only=True)
class LSMSliceStateView(Item, SliceLookups[LSMChannelStateView]):
    """A slice with its channels."""

    slice_id: int
    channels: Mapping[int, LSMChannelStateView] = below()


@dataclass(frozen=True, slots=True, kw_only=True)
class LSMProjectStateView(Item, ProjectLookups[LSMSliceStateView, LSMChannelStateView, LSMStripStateView]):
    """A project with all that is below it; its name as it was first given, and what was planned."""

    project_name: str
    strips_per_slice: int | None = total()
    slices: Mapping[int, LSMSliceStateView] = below()


# Decisions: what may happen next.


class LSMStripState(OpenItem[LSMStripStateView]):
    """A strip open for change."""

    CATEGORY, STATE, IDENT = "lsm.strip", LSMStripStateView, LSMStripId
    slice_id = Shown[int]()
    channel_id = Shown[int]()
    strip_id = Shown[int]()
    archived, set_archived, reset_archived = flag_methods()
    compressed, set_compressed, reset_compressed = flag_methods()
    uploaded, set_uploaded, reset_uploaded = flag_methods()


class LSMChannelState(OpenBranch[LSMChannelStateView, LSMStripState], ChannelLookups[LSMStripState]):
    """A channel open for change, with its strips."""

    CATEGORY, STATE, IDENT = "lsm.channel", LSMChannelStateView, LSMChannelId
    slice_id = Shown[int]()
    channel_id = Shown[int]()
    mip_stitched, set_mip_stitched, reset_mip_stitched = flag_methods()
    volume_stitched, set_volume_stitched, reset_volume_stitched = flag_methods()
    volume_uploaded, set_volume_uploaded, reset_volume_uploaded = flag_methods()
    strips = Below[LSMStripState]()

    def get_or_create_strip(self, strip_id: int) -> LSMStripState:
        return self.get_or_create(strip_id)


class LSMSliceState(OpenBranch[LSMSliceStateView, LSMChannelState], SliceLookups[LSMChannelState]):
    """A slice open for change, with its channels."""

    CATEGORY, STATE, IDENT = "lsm.slice", LSMSliceStateView, LSMSliceId
    slice_id = Shown[int]()
    channels = Below[LSMChannelState]()

    def get_or_create_channel(self, channel_id: int) -> LSMChannelState:
        return self.get_or_create(channel_id)


class LSMProjectState(
    OpenBranch[LSMProjectStateView, LSMSliceState],
    ProjectLookups[LSMSliceState, LSMChannelState, LSMStripState],
):
    """A project open for change, with all that is below it."""

    CATEGORY, STATE, IDENT = "lsm.project", LSMProjectStateView, LSMProjectId
    project_name = Shown[str]()
    strips_per_slice = Shown[int | None]()
    slices = Below[LSMSliceState]()

    def get_or_create_slice(self, slice_id: int) -> LSMSliceState:
        return self.get_or_create(slice_id)

    def get_or_create_channel(self, slice_id: int, channel_id: int) -> LSMChannelState:
        return self.get_or_create_slice(slice_id).get_or_create_channel(channel_id)

    def get_or_create_strip(self, ident: LSMStripId) -> LSMStripState:
        """The strip of this ident. Raises WrongIdent for a strip of another project."""
        found: LSMStripState = self.find_or_create(ident)
        return found

    def get_or_create_strip_by_parts(
        self, slice_id: int, strip_id: int, channel_id: int = 1
    ) -> LSMStripState:
        return self.get_or_create_channel(slice_id, channel_id).get_or_create_strip(strip_id)

    def delete_slice(self, slice_id: int) -> bool:
        """Delete a slice with all below it; False, and nothing changes, where there is none (spec S0-33)."""
        return self.siblings.delete(self.get_slice(slice_id))

    def delete_channel(self, slice_id: int, channel_id: int) -> bool:
        """Delete a channel with its strips; False, and nothing changes, where there is none."""
        return self.siblings.delete(self.get_channel_by_parts(slice_id, channel_id))

    def delete_strip(self, slice_id: int, channel_id: int, strip_id: int) -> bool:
        """Delete a strip; False, and nothing changes, where there is none. Mind the order."""
        return self.siblings.delete(self.get_strip_by_parts(slice_id, strip_id, channel_id))


LSM: Final[Levels] = (LSMProjectState, LSMSliceState, LSMChannelState, LSMStripState)
