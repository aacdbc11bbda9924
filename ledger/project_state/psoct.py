"""
The PS-OCT pipeline: project → slice → mosaic → batch, each a stream with the machine of item.py (spec 1.4).

    psoct.project/<project>
    psoct.slice/<project>/<slice>                     registered ─▶ uploaded
    psoct.mosaic/<project>/<slice>/<mosaic>           enface_stitched ─▶ enface_uploaded
                                                      volume_stitched ─▶ volume_uploaded
    psoct.batch/<project>/<slice>/<mosaic>/<batch>    complexed ─▶ volume_processed, enface_processed
                                                      archived ─▶ uploaded

An arrow says what is made from what: a flag that is cleared, by `reset_x()` or by `set_x(False)`, clears what
is to its right (spec S0-40, W0-20). A topic is the level and a word of facts.py or a flag:
`psoct.batch.completed`, `psoct.mosaic.enface_stitched`. A `…View` is frozen, all the way down; the class
without `View` is the same item open for change, and shows the same fields. Mosaic ids go on through a whole
project; mosaics.py says which are of which slice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .branch import Below, OpenBranch
from .ident import OCTBatchId, OCTMosaicId, OCTProjectId, OCTSliceId
from .item import Item, below, flag, total
from .open_item import OpenItem, Shown, flag_methods
from .psoct_lookups import MosaicLookups, ProjectLookups, SliceLookups
from .views import Levels

# State: what is true now, which is also the read-only view of it.


@dataclass(frozen=True, slots=True, kw_only=True)
class OCTBatchStateView(Item):
    """A batch of tiles."""

    slice_id: int
    mosaic_id: int
    batch_id: int
    complexed: bool = flag(clears=("volume_processed", "enface_processed"))
    volume_processed: bool = flag()
    enface_processed: bool = flag()
    uploaded: bool = flag()
    archived: bool = flag(clears=("uploaded",))


@dataclass(frozen=True, slots=True, kw_only=True)
class OCTMosaicStateView(Item, MosaicLookups[OCTBatchStateView]):
    """A mosaic with its batches."""

    slice_id: int
    mosaic_id: int
    enface_stitched: bool = flag(clears=("enface_uploaded",))
    volume_stitched: bool = flag(clears=("volume_uploaded",))
    enface_uploaded: bool = flag()
    volume_uploaded: bool = flag()
    batches: Mapping[int, OCTBatchStateView] = below()


@dataclass(frozen=True, slots=True, kw_only=True)
class OCTSliceStateView(Item, SliceLookups[OCTMosaicStateView]):
    """A slice with its mosaics."""

    slice_id: int
    registered: bool = flag(clears=("uploaded",))
    uploaded: bool = flag()
    mosaics: Mapping[int, OCTMosaicStateView] = below()


@dataclass(frozen=True, slots=True, kw_only=True)
class OCTProjectStateView(Item, ProjectLookups[OCTSliceStateView, OCTMosaicStateView, OCTBatchStateView]):
    """A project with all that is below it; its name as it was first given, and what was planned."""

    project_name: str
    batches_per_mosaic: int | None = total()
    mosaics_per_slice: int | None = total()
    slices: Mapping[int, OCTSliceStateView] = below()


# Decisions: what may happen next.


class OCTBatchState(OpenItem[OCTBatchStateView]):
    """A batch open for change."""

    CATEGORY, STATE, IDENT = "psoct.batch", OCTBatchStateView, OCTBatchId
    slice_id = Shown[int]()
    mosaic_id = Shown[int]()
    batch_id = Shown[int]()
    complexed, set_complexed, reset_complexed = flag_methods()
    volume_processed, set_volume_processed, reset_volume_processed = flag_methods()
    enface_processed, set_enface_processed, reset_enface_processed = flag_methods()
    uploaded, set_uploaded, reset_uploaded = flag_methods()
    archived, set_archived, reset_archived = flag_methods()


class OCTMosaicState(OpenBranch[OCTMosaicStateView, OCTBatchState], MosaicLookups[OCTBatchState]):
    """A mosaic open for change, with its batches."""

    CATEGORY, STATE, IDENT = "psoct.mosaic", OCTMosaicStateView, OCTMosaicId
    slice_id = Shown[int]()
    mosaic_id = Shown[int]()
    enface_stitched, set_enface_stitched, reset_enface_stitched = flag_methods()
    volume_stitched, set_volume_stitched, reset_volume_stitched = flag_methods()
    enface_uploaded, set_enface_uploaded, reset_enface_uploaded = flag_methods()
    volume_uploaded, set_volume_uploaded, reset_volume_uploaded = flag_methods()
    batches = Below[OCTBatchState]()

    def get_or_create_batch(self, batch_id: int) -> OCTBatchState:
        return self.get_or_create(batch_id)


class OCTSliceState(OpenBranch[OCTSliceStateView, OCTMosaicState], SliceLookups[OCTMosaicState]):
    """A slice open for change, with its mosaics."""

    CATEGORY, STATE, IDENT = "psoct.slice", OCTSliceStateView, OCTSliceId
    slice_id = Shown[int]()
    registered, set_registered, reset_registered = flag_methods()
    uploaded, set_uploaded, reset_uploaded = flag_methods()
    mosaics = Below[OCTMosaicState]()

    def get_or_create_mosaic(self, mosaic_id: int) -> OCTMosaicState:
        return self.get_or_create(mosaic_id)


class OCTProjectState(
    OpenBranch[OCTProjectStateView, OCTSliceState],
    ProjectLookups[OCTSliceState, OCTMosaicState, OCTBatchState],
):
    """A project open for change, with all that is below it."""

    CATEGORY, STATE, IDENT = "psoct.project", OCTProjectStateView, OCTProjectId
    project_name = Shown[str]()
    batches_per_mosaic = Shown[int | None]()
    mosaics_per_slice = Shown[int | None]()
    slices = Below[OCTSliceState]()

    def get_or_create_slice(self, slice_id: int) -> OCTSliceState:
        return self.get_or_create(slice_id)

    def get_or_create_mosaic(self, slice_id: int, mosaic_id: int) -> OCTMosaicState:
        return self.get_or_create_slice(slice_id).get_or_create_mosaic(mosaic_id)

    def get_or_create_batch(self, slice_id: int, mosaic_id: int, batch_id: int) -> OCTBatchState:
        return self.get_or_create_mosaic(slice_id, mosaic_id).get_or_create_batch(batch_id)

    def delete_slice(self, slice_id: int) -> bool:
        """Delete a slice with all below it; False, and nothing changes, where there is none (spec S0-33)."""
        return self.siblings.delete(self.get_slice(slice_id))

    def delete_mosaic(self, slice_id: int, mosaic_id: int) -> bool:
        """Delete a mosaic with its batches; False, and nothing changes, where there is none."""
        return self.siblings.delete(self.get_mosaic(slice_id, mosaic_id))

    def delete_batch(self, slice_id: int, mosaic_id: int, batch_id: int) -> bool:
        """Delete a batch; False, and nothing changes, where there is none."""
        return self.siblings.delete(self.get_batch(slice_id, mosaic_id, batch_id))


OCT: Final[Levels] = (OCTProjectState, OCTSliceState, OCTMosaicState, OCTBatchState)
