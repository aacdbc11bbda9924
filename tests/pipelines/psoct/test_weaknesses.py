"""What the origin got wrong about PS-OCT does not happen here (spec 1.10)."""

from __future__ import annotations

import dataclasses

import pytest

from ledger import Ledger
from ledger.pipelines import OCT, OCTSliceId, OCTStateService


def test_w0_09_the_service_and_the_flows_mean_the_same_slice(service: OCTStateService) -> None:
    for mosaic_id in range(1, 8):
        of_the_flows = (mosaic_id - 1) // 2 + 1
        with service.open_mosaic("p", slice_id=of_the_flows, mosaic_id=mosaic_id) as mosaic:
            mosaic.set_enface_stitched()
        with service.open_batch("p", mosaic_id=mosaic_id, batch_id=1):
            pass
        found = service.read_mosaic("p", mosaic_id=mosaic_id)
        assert found is not None
        assert (found.slice_id, found.enface_stitched, [*found.batches]) == (of_the_flows, True, [1])
    assert {s: [*each.mosaics] for s, each in service.read_project("p").slices.items()} == {
        1: [1, 2],
        2: [3, 4],
        3: [5, 6],
        4: [7],
    }


def test_w0_09_with_the_rule_of_the_origin_they_would_not(
    service: OCTStateService, monkeypatch: pytest.MonkeyPatch
) -> None:
    with service.open_mosaic("p", slice_id=1, mosaic_id=1):
        pass
    former = dataclasses.replace(OCT.levels[2], parent_of=lambda mosaic_id, _: mosaic_id // 2)
    monkeypatch.setattr(OCT, "levels", (*OCT.levels[:2], former, *OCT.levels[3:]))
    assert service.read_mosaic("p", mosaic_id=1) is None


def test_w0_04_failed_batches_and_mosaics_are_done_but_did_not_succeed(service: OCTStateService) -> None:
    with service.open_slice("p", slice_id=1) as one:
        for mosaic_id, failing in ((1, 2), (2, 0)):
            mosaic = one.get_or_create_mosaic(mosaic_id)
            for batch_id in (1, 2):
                batch = mosaic.get_or_create_batch(batch_id)
                batch.mark_failed("no focus") if batch_id == failing else batch.mark_completed()
            mosaic.mark_failed("a batch failed") if failing else mosaic.mark_completed()
    view = service.read_slice("p", slice_id=1)
    assert view is not None
    assert (view.all_mosaics_done(), view.all_mosaics_succeeded()) == (True, False)
    first, second = view.mosaics.values()
    assert (first.all_batches_done(2), first.all_batches_succeeded(2)) == (True, False)
    assert (second.all_batches_done(2), second.all_batches_succeeded(2)) == (True, True)


def test_w0_05_a_restarted_batch_is_not_done(service: OCTStateService) -> None:
    for change in ("mark_started", "mark_completed", "mark_started"):
        with service.open_batch("p", mosaic_id=1, batch_id=1) as batch:
            getattr(batch, change)()
    mosaic = service.read_mosaic("p", mosaic_id=1)
    assert mosaic is not None
    assert not mosaic.all_batches_done(1)
    assert mosaic.batches[1].attempts == 2


def test_w0_17_a_slice_has_milestones_too(service: OCTStateService, log: Ledger) -> None:
    with service.open_slice(OCTSliceId("p", 1)) as one:
        one.set_registered()
        one.set_uploaded()
    with service.open_slice("p", slice_id=1) as one:
        claim = one.enter("registered")
        assert (one.registered, one.uploaded, one.holds("registered", claim)) == (False, False, True)
        one.set_registered()
        assert not one.under_way
    topics = [event.topic for event in log.read("psoct.slice/p/1")]
    assert topics[-3:] == ["psoct.slice.reset", "psoct.slice.entered", "psoct.slice.registered"]


@pytest.mark.parametrize("verb", ["read", "peek"])
def test_w0_01_reading_writes_nothing(service: OCTStateService, log: Ledger, verb: str) -> None:
    for project in ("nobody", "p"):
        before = log.bound()
        assert getattr(service, f"{verb}_project")(project).project_name == project
        getattr(service, f"{verb}_slice")(project, slice_id=1)
        getattr(service, f"{verb}_mosaic")(project, mosaic_id=1)
        getattr(service, f"{verb}_batch")(project, mosaic_id=1, batch_id=1)
        assert log.bound() == before
        with service.open_batch("p", mosaic_id=1, batch_id=1):
            pass
