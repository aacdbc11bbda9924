"""What can be asked of the PS-OCT levels about what is below them: the same on a view and on what is open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

from ..names import checked_id
from .branch import every
from .mosaics import MOSAICS_PER_SLICE

Batch = TypeVar("Batch")
Mosaic = TypeVar("Mosaic", bound="MosaicLookups[Any]")
Slice = TypeVar("Slice", bound="SliceLookups[Any]")


class MosaicLookups(Generic[Batch]):
    """A mosaic about its batches."""

    __slots__ = ()

    @property
    def batches(self) -> Mapping[int, Batch]:
        """The batches by id."""
        raise NotImplementedError

    def get_batch(self, batch_id: int) -> Batch | None:
        """The batch, None where there is none."""
        return self.batches.get(batch_id)

    def iter_batches(self) -> Iterator[Batch]:
        """Every batch, by id."""
        yield from self.batches.values()

    def all_batches_done(self, total: int) -> bool:
        """Whether the batches 1 … total are there and finished; a failed one counts.

        False where there is no batch at all, also for 0 (spec S0-41).
        """
        return every(self.batches, total, "finished") and len(self.batches) > 0

    def all_batches_succeeded(self, total: int) -> bool:
        """The same with completed for finished: a failed one does not count (W0-04)."""
        return every(self.batches, total, "succeeded") and len(self.batches) > 0


class SliceLookups(Generic[Mosaic]):
    """A slice about its mosaics."""

    __slots__ = ()

    @property
    def mosaics(self) -> Mapping[int, Mosaic]:
        """The mosaics by id."""
        raise NotImplementedError

    def get_mosaic(self, mosaic_id: int) -> Mosaic | None:
        """The mosaic, None where there is none."""
        return self.mosaics.get(mosaic_id)

    def iter_mosaics(self) -> Iterator[Mosaic]:
        """Every mosaic, by id."""
        yield from self.mosaics.values()

    def all_mosaics_done(self, total: int | None = None) -> bool:
        """Whether at least `total` mosaics are there, and all that are there finished; a failed one counts.

        None and 0 mean 2. The ids are not looked at, because they go on through the project (spec S0-42).
        """
        return _all_there(self.mosaics, total, "finished")

    def all_mosaics_succeeded(self, total: int | None = None) -> bool:
        """The same with completed for finished: a failed one does not count (W0-04)."""
        return _all_there(self.mosaics, total, "succeeded")

    def all_mosaics_enface_stitched(self, total: int | None = None) -> bool:
        """The same about the flag alone, whatever the state of the mosaic (spec S0-42)."""
        return _all_there(self.mosaics, total, "enface_stitched")


class ProjectLookups(Generic[Slice, Mosaic, Batch]):
    """A project about all that is below it."""

    __slots__ = ()

    @property
    def slices(self) -> Mapping[int, Slice]:
        """The slices by id."""
        raise NotImplementedError

    def get_slice(self, slice_id: int) -> Slice | None:
        """The slice, None where there is none."""
        return self.slices.get(slice_id)

    def get_mosaic(self, slice_id: int, mosaic_id: int) -> Mosaic | None:
        """The mosaic, None where any part of the way to it is missing."""
        found = self.get_slice(slice_id)
        return None if found is None else found.get_mosaic(mosaic_id)

    def get_batch(self, slice_id: int, mosaic_id: int, batch_id: int) -> Batch | None:
        """The batch, None where any part of the way to it is missing."""
        found = self.get_mosaic(slice_id, mosaic_id)
        return None if found is None else found.get_batch(batch_id)

    def iter_mosaics(self) -> Iterator[Mosaic]:
        """Every mosaic, by slice and mosaic id."""
        for each in self.slices.values():
            yield from each.iter_mosaics()

    def iter_batches(self) -> Iterator[Batch]:
        """Every batch, by slice, mosaic and batch id."""
        for each in self.iter_mosaics():
            yield from each.iter_batches()


def _all_there(mosaics: Mapping[int, Any], total: int | None, quality: str) -> bool:
    wanted = checked_id("the total", 0 if total is None else total) or MOSAICS_PER_SLICE
    return len(mosaics) >= wanted and all(getattr(mosaic, quality) for mosaic in mosaics.values())
