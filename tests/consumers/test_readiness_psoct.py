"""A mosaic is ready when its batches succeeded, a slice when its mosaics are stitched (spec S0-72)."""

from __future__ import annotations

from typing import Any

import pytest

from consumers.pipelines import readiness
from ledger import Ledger
from ledger.pipelines import OCTMosaicId, OCTMosaicReadiness, OCTSliceId, OCTSliceReadiness, OCTStateService


class OCTLab:
    """Mosaics and batches, and how often each was ready, the reactor having caught up."""

    def __init__(self, log: Ledger) -> None:
        self.log, self.service = log, OCTStateService(log)

    def mosaics(self, *mosaic_ids: int, slice_id: int = 1) -> None:
        """Mosaics with enface stitched."""
        for mosaic_id in mosaic_ids:
            with self.service.open_mosaic(OCTMosaicId("p", slice_id, mosaic_id)) as mosaic:
                mosaic.set_enface_stitched()

    def batches(self, change: str, *batch_ids: int) -> None:
        """Batches of mosaic 1: `mark_completed` and so on."""
        for batch_id in batch_ids:
            with self.service.open_batch("p", slice_id=1, mosaic_id=1, batch_id=batch_id) as batch:
                getattr(batch, change)()

    def plan(self, **totals: int | None) -> None:
        with self.service.open_project("p") as project:
            project.plan(**totals)

    def slice_rounds(self, **totals: int) -> int:
        return self._rounds(OCTSliceReadiness, 1, **totals)

    def mosaic_rounds(self, **totals: int) -> int:
        return self._rounds(OCTMosaicReadiness, 1, 1, **totals)

    def _rounds(self, kind: Any, *key: int, **totals: int) -> int:
        readiness(self.log, **totals).catch_up()
        rounds: int = self.log.load(kind, "p", *key).state.rounds
        return rounds


@pytest.fixture
def lab(log: Ledger) -> OCTLab:
    return OCTLab(log)


def test_all_batches_that_succeeded_make_their_mosaic_ready(lab: OCTLab, log: Ledger) -> None:
    lab.plan(batches_per_mosaic=2)
    lab.batches("mark_completed", 2)
    assert lab.mosaic_rounds() == 0
    lab.batches("mark_completed", 1)
    assert lab.mosaic_rounds() == 1
    state = log.load(OCTMosaicReadiness, "p", 1, 1).state
    assert (state.total, state.present, state.by) == (2, 2, "psoct.batch/p/1/1/1")
    lab.batches("mark_completed", 1, 2)
    lab.batches("set_uploaded", 1)
    assert lab.mosaic_rounds() == 1


def test_w0_04_failed_batches_do_not_make_a_mosaic_ready(lab: OCTLab) -> None:
    lab.plan(batches_per_mosaic=2)
    lab.batches("mark_completed", 1)
    lab.batches("mark_failed", 2)
    assert lab.mosaic_rounds() == 0
    view = lab.service.read_mosaic(OCTMosaicId("p", 1, 1))
    assert view is not None
    assert view.all_batches_done(2), "as the origin counts, it would have fired"
    lab.batches("mark_completed", 2)
    assert lab.mosaic_rounds() == 1


def test_w0_05_a_batch_that_is_started_again_is_not_done(lab: OCTLab) -> None:
    lab.plan(batches_per_mosaic=1)
    for nth in (1, 2):
        lab.batches("mark_started", 1)
        assert lab.mosaic_rounds() == nth - 1
        lab.batches("mark_completed", 1)
        assert lab.mosaic_rounds() == nth


def test_a_mosaic_without_batches_or_without_a_total_is_never_ready(lab: OCTLab) -> None:
    lab.mosaics(1)
    lab.plan(batches_per_mosaic=0)
    assert lab.mosaic_rounds() == 0
    lab.batches("mark_completed", 1)
    assert lab.mosaic_rounds() == 0


def test_a_whole_tree_in_one_append(lab: OCTLab) -> None:
    """Its events are in the order of names: batches first, then mosaics, then project and slices."""
    with lab.service.open_project("p") as project:
        project.plan(batches_per_mosaic=2)
        for mosaic_id in (1, 2):
            for batch_id in (1, 2):
                project.get_or_create_batch(1, mosaic_id, batch_id).mark_completed()
            project.get_or_create_mosaic(1, mosaic_id).set_enface_stitched()
    assert (lab.mosaic_rounds(), lab.slice_rounds()) == (1, 1)


def test_two_stitched_mosaics_make_a_slice_ready_whatever_their_ids(lab: OCTLab) -> None:
    lab.mosaics(7)
    assert lab.slice_rounds() == 0
    lab.mosaics(4, slice_id=2)
    lab.mosaics(8)
    assert lab.slice_rounds() == 1


def test_every_mosaic_that_is_there_counts(lab: OCTLab) -> None:
    lab.mosaics(1)
    with lab.service.open_mosaic(OCTMosaicId("p", 1, 3)):
        pass
    lab.mosaics(2)
    assert lab.slice_rounds() == 0, "mosaic 3 is there too"
    with lab.service.open_slice(OCTSliceId("p", 2)) as opened:
        for mosaic_id in (11, 12, 13):
            mosaic = opened.get_or_create_mosaic(mosaic_id)
            mosaic.set_enface_stitched(mosaic_id < 13)
    assert lab.log.streams("psoct.slice.ready/") == [], "one append: the third was never seen missing"
    lab.mosaics(3)
    assert lab.slice_rounds() == 1
    with lab.service.open_mosaic(OCTMosaicId("p", 1, 4)):
        pass
    with lab.service.open_project("p") as project:
        project.delete_mosaic(1, 4)
    assert lab.slice_rounds() == 2, "a mosaic that came and went made it incomplete and complete again"


def test_a_failed_or_reset_mosaic_does_not_count(lab: OCTLab) -> None:
    lab.mosaics(1, 2)
    for nth, (undo, redo) in enumerate(
        [("mark_failed", "mark_started"), ("reset_enface_stitched", "set_enface_stitched")], 1
    ):
        assert lab.slice_rounds() == nth
        for change in (undo, redo):
            with lab.service.open_mosaic(OCTMosaicId("p", 1, 2)) as mosaic:
                getattr(mosaic, change)()
    assert lab.slice_rounds() == 3


def test_the_total_of_mosaics_is_planned_given_or_two(lab: OCTLab) -> None:
    lab.mosaics(1, 2)
    assert lab.slice_rounds(mosaics_per_slice=3) == 0
    lab.mosaics(3)
    assert lab.slice_rounds(mosaics_per_slice=3) == 1
    lab.plan(mosaics_per_slice=4)
    assert lab.slice_rounds(mosaics_per_slice=3) == 1
    lab.plan(mosaics_per_slice=0)
    assert lab.slice_rounds(mosaics_per_slice=3) == 2
    assert lab.service.read_slice(OCTSliceId("p", 1)) is not None
