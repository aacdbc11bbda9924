"""What can be asked of the LSM levels about what is below them: the same on a view and on what is open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

from .branch import every
from .ident import LSMStripId

Strip = TypeVar("Strip")
Channel = TypeVar("Channel", bound="ChannelLookups[Any]")
Slice = TypeVar("Slice", bound="SliceLookups[Any]")


class ChannelLookups(Generic[Strip]):
    """A channel about its strips."""

    __slots__ = ()

    @property
    def strips(self) -> Mapping[int, Strip]:
        """The strips by id."""
        raise NotImplementedError

    def get_strip(self, strip_id: int) -> Strip | None:
        """The strip, None where there is none."""
        return self.strips.get(strip_id)

    def all_completed(self, total_strips: int) -> bool:
        """Whether the strips 1 … total are there and finished; a failed one counts (spec S0-31)."""
        return every(self.strips, total_strips, "finished")

    def all_succeeded(self, total_strips: int) -> bool:
        """Whether the strips 1 … total are there and completed; a failed one does not count (W0-04)."""
        return every(self.strips, total_strips, "succeeded")

    def all_compressed(self, total_strips: int) -> bool:
        """Whether the strips 1 … total are there and compressed."""
        return every(self.strips, total_strips, "compressed")


class SliceLookups(Generic[Channel]):
    """A slice about its channels."""

    __slots__ = ()

    @property
    def channels(self) -> Mapping[int, Channel]:
        """The channels by id."""
        raise NotImplementedError

    def get_channel(self, channel_id: int) -> Channel | None:
        """The channel, None where there is none."""
        return self.channels.get(channel_id)

    def all_finished(self, total_channels: int = 1) -> bool:
        """Whether the channels 1 … total are there and finished themselves, failed or not (spec S0-31)."""
        return every(self.channels, total_channels, "finished")

    def all_succeeded(self, total_channels: int = 1) -> bool:
        """Whether the channels 1 … total are there and completed (W0-04)."""
        return every(self.channels, total_channels, "succeeded")


class ProjectLookups(Generic[Slice, Channel, Strip]):
    """A project about all that is below it."""

    __slots__ = ()

    @property
    def slices(self) -> Mapping[int, Slice]:
        """The slices by id."""
        raise NotImplementedError

    def get_slice(self, slice_id: int) -> Slice | None:
        """The slice, None where there is none."""
        return self.slices.get(slice_id)

    def get_channel_by_parts(self, slice_id: int, channel_id: int) -> Channel | None:
        """The channel, None where any part of the way to it is missing."""
        found = self.get_slice(slice_id)
        return None if found is None else found.get_channel(channel_id)

    def get_strip(self, ident: LSMStripId) -> Strip | None:
        """The strip, None where any part of the way to it is missing."""
        return self.get_strip_by_parts(ident.slice_id, ident.strip_id, ident.channel_id)

    def get_strip_by_parts(self, slice_id: int, strip_id: int, channel_id: int = 1) -> Strip | None:
        """The same by its ids; mind their order (spec 1.3)."""
        found = self.get_channel_by_parts(slice_id, channel_id)
        return None if found is None else found.get_strip(strip_id)

    def iter_strips(self) -> Iterator[Strip]:
        """Every strip, by slice, channel and strip id."""
        for each in self.slices.values():
            for channel in each.channels.values():
                yield from channel.strips.values()

    def all_finished(self, total_slices: int = 1) -> bool:
        """Whether the slices 1 … total are there and finished themselves, failed or not (spec S0-31)."""
        return every(self.slices, total_slices, "finished")

    def all_succeeded(self, total_slices: int = 1) -> bool:
        """Whether the slices 1 … total are there and completed (W0-04)."""
        return every(self.slices, total_slices, "succeeded")
