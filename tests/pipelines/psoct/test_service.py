"""The PS-OCT service's own: a slice that is counted where none is given, and what a plan says to that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import pytest

from ledger import BadInput, BadName, Ledger
from ledger.pipelines import (
    LSM,
    LSMSliceId,
    OCTBatchId,
    OCTBatchState,
    OCTMosaicId,
    OCTMosaicState,
    OCTSliceId,
    OCTStateService,
    ProjectStore,
)
from ledger.pipelines.psoct import OCT_STATE_SERVICE
from tests.pipelines.recorded_facts import recorded, words

Look = Callable[..., Any]


# Counting.


@pytest.mark.parametrize(("per_slice", "slices"), [(2, [1, 1, 2, 2, 3]), (3, [1, 1, 1, 2, 2])])
def test_a_slice_is_counted_where_none_is_given(log: Ledger, per_slice: int, slices: list[int]) -> None:
    service = OCTStateService(log, mosaics_per_slice=per_slice)
    for way, (mosaic_id, slice_id) in product(("", "_by_parts"), enumerate(slices, 1)):
        with getattr(service, f"open_mosaic{way}")("p", mosaic_id=mosaic_id) as mosaic:
            assert mosaic.slice_id == slice_id
        with getattr(service, f"open_batch{way}")("p", mosaic_id=mosaic_id, batch_id=5) as batch:
            assert (batch.slice_id, batch.mosaic_id, batch.batch_id) == (slice_id, mosaic_id, 5)
        for verb in ("read", "peek"):
            found = getattr(service, f"{verb}_mosaic{way}")("p", mosaic_id=mosaic_id)
            assert found == getattr(service, f"{verb}_mosaic")(OCTMosaicId("p", slice_id, mosaic_id))
            assert [*found.batches] == [5]
            found = getattr(service, f"{verb}_batch{way}")("p", mosaic_id=mosaic_id, batch_id=5)
            assert found == getattr(service, f"{verb}_batch")(OCTBatchId("p", slice_id, mosaic_id, 5))


def test_a_slice_that_is_given_always_wins(service: OCTStateService) -> None:
    for way, slice_id in product(("", "_by_parts"), (9, 0)):
        ids = {"slice_id": slice_id, "mosaic_id": 3}
        with getattr(service, f"open_batch{way}")("p", **ids, batch_id=1) as batch:
            assert batch.slice_id == slice_id
        with getattr(service, f"open_mosaic{way}")("p", **ids) as mosaic:
            assert mosaic.slice_id == slice_id
        for verb in ("read", "peek"):
            assert getattr(service, f"{verb}_mosaic{way}")("p", **ids).slice_id == slice_id
            assert getattr(service, f"{verb}_batch{way}")("p", **ids, batch_id=1).slice_id == slice_id
    assert service.read_mosaic("p", mosaic_id=3) is None
    with service.open_mosaic(OCTMosaicId("p", 7, 3)) as mosaic:
        assert mosaic.slice_id == 7


def test_no_slice_is_counted_for_a_mosaic_before_the_first(service: OCTStateService, log: Ledger) -> None:
    for verb, way in product(("open", "read", "peek"), ("", "_by_parts")):
        with pytest.raises(ValueError, match="mosaic_id 0 must be 1 or more"):
            getattr(service, f"{verb}_mosaic{way}")("p", mosaic_id=0)
        with pytest.raises(ValueError, match="mosaic_id -1 must be"):
            getattr(service, f"{verb}_batch{way}")("p", mosaic_id=-1, batch_id=1)
    with service.open_mosaic("p", slice_id=0, mosaic_id=0):
        pass
    assert service.read_mosaic("p", slice_id=0, mosaic_id=0) is not None
    assert len(recorded(log)) == 3


def test_bad_input_is_refused_before_anything_is_sent(service: OCTStateService, log: Ledger) -> None:
    for verb in ("open", "read", "peek"):
        batch: Look = getattr(service, f"{verb}_batch")
        for bad in (-1, True, "1", 1.5, 2**63):
            with pytest.raises(BadName, match="mosaic_id"):
                batch("p", mosaic_id=bad, batch_id=1)
            with pytest.raises(BadName, match="batch_id"):
                batch("p", mosaic_id=1, batch_id=bad)
            with pytest.raises(BadName, match="slice_id"):
                batch("p", slice_id=bad, mosaic_id=1, batch_id=1)
        for name in ("", None, 3):
            with pytest.raises(BadName, match="project_name"):
                batch(name, mosaic_id=1, batch_id=1)
        with pytest.raises(BadInput, match="batch_id must be given"):
            batch("p", mosaic_id=1)
        with pytest.raises(BadInput, match="mosaic_id must be given"):
            batch("p", batch_id=1, slice_id=1)
        with pytest.raises(BadInput, match="not both"):
            batch(OCTBatchId("p", 1, 1, 1), mosaic_id=1)
        with pytest.raises(BadInput, match="a OCTBatchId is needed"):
            batch(OCTSliceId("p", 1))
        with pytest.raises(BadInput, match="is a LSMSliceId; a OCTSliceId is needed here"):
            getattr(service, f"{verb}_slice")(LSMSliceId("p", 1))
    assert recorded(log) == []


@pytest.mark.parametrize("bad", [0, -1, True, None, "2", 2.0], ids=repr)
def test_a_service_counts_with_a_number_from_one(bad: Any) -> None:
    with pytest.raises(BadName, match=r"mosaics_per_slice .* must be"):
        OCTStateService(mosaics_per_slice=bad)


def test_the_default_service_counts_two_and_a_store_can_be_given(log: Ledger) -> None:
    assert (OCT_STATE_SERVICE.mosaics_per_slice, OCT_STATE_SERVICE.store._ledger) == (2, None)
    store = ProjectStore(OCTStateService.LEVELS, log)
    assert OCTStateService(store, mosaics_per_slice=3).store is store
    with pytest.raises(BadInput, match="of the levels of this service"):
        OCTStateService(ProjectStore(LSM, log))


# A plan that says another number.


@pytest.fixture
def planned(service: OCTStateService) -> OCTStateService:
    """A project that plans three mosaics a slice, with mosaic 3 in slice 1; the service counts two."""
    with service.open_project("P_1") as project:
        project.plan(mosaics_per_slice=3)
        project.get_or_create_batch(1, 3, 1).mark_completed()
    return service


WRONG = (
    "the project 'P_1' plans 3 mosaics a slice, this service counts 2: "
    "give slice_id, or the service mosaics_per_slice=3"
)


def test_a_slice_is_not_counted_for_change_against_the_plan(planned: OCTStateService, log: Ledger) -> None:
    before = recorded(log)
    for open_ in (
        lambda: planned.open_mosaic("p-1", mosaic_id=1),
        lambda: planned.open_mosaic("p-1", mosaic_id=3),
        lambda: planned.open_batch_by_parts("p-1", mosaic_id=3, batch_id=1),
    ):
        with pytest.raises(BadInput) as raised, open_():
            raise AssertionError("the block was entered")
        assert str(raised.value) == WRONG
    assert recorded(log) == before


def test_a_look_against_the_plan_does_not_say_that_there_is_nothing(planned: OCTStateService) -> None:
    of_level = (("mosaic", {"mosaic_id": 3}), ("batch_by_parts", {"mosaic_id": 3, "batch_id": 1}))
    for verb, (call, ids) in product(("read", "peek"), of_level):
        look: Look = getattr(planned, f"{verb}_{call}")
        with pytest.raises(BadInput) as raised:
            look("P_1", **ids)
        assert str(raised.value) == WRONG
        assert look("P_1", **ids, slice_id=1) is not None
        assert look("P_1", **ids, slice_id=2) is None


def test_a_service_that_counts_as_planned_agrees(planned: OCTStateService) -> None:
    other = OCTStateService(planned.store, mosaics_per_slice=3)
    found = other.read_batch("P_1", mosaic_id=3, batch_id=1)
    assert found is not None
    assert found.succeeded
    assert other.read_batch("P_1", mosaic_id=4, batch_id=1) is None
    with other.open_mosaic("P_1", mosaic_id=4) as mosaic:
        assert mosaic.slice_id == 2
    with planned.open_project("P_1") as project:
        project.plan(mosaics_per_slice=None)
    assert planned.read_mosaic("P_1", mosaic_id=3) is None


def test_the_plan_of_a_deleted_life_binds_nobody(planned: OCTStateService, log: Ledger) -> None:
    log.append("psoct.project/p-1", OCTStateService.LEVELS[0].FACTS.deleted())
    assert planned.read_mosaic("P_1", mosaic_id=3) is None
    with planned.open_mosaic("P_1", mosaic_id=3) as mosaic:
        assert mosaic.slice_id == 2


# What it costs.


@pytest.fixture
def queries(log: Ledger, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []
    reader = log.reader

    @contextmanager
    def reading() -> Iterator[Any]:
        seen.append("read")
        with reader() as connection:
            yield connection

    monkeypatch.setattr(log, "reader", reading)
    return seen


def test_counting_costs_a_query_only_where_nothing_is_found(
    service: OCTStateService, queries: list[str]
) -> None:
    with service.open_batch("p", mosaic_id=3, batch_id=1) as batch:
        batch.set_complexed()
    assert queries == []  # the path is read in the call that takes the lock
    assert service.read_batch("p", mosaic_id=3, batch_id=1) is not None
    assert service.peek_mosaic("p", mosaic_id=3) is not None
    assert len(queries) == 2
    assert service.peek_mosaic("p", mosaic_id=3, slice_id=1) is None
    assert len(queries) == 3
    assert service.peek_mosaic("p", mosaic_id=5) is None
    assert len(queries) == 5


# As a pipeline uses it.


def test_a_mosaic_from_its_batches_to_its_upload(service: OCTStateService, log: Ledger) -> None:
    for batch_id in (1, 2):
        with service.open_batch("p", mosaic_id=2, batch_id=batch_id) as batch:
            batch.mark_started()
            batch.set_complexed()
            batch.set_volume_processed()
            batch.mark_completed()
    with service.open_mosaic("p", mosaic_id=2) as mosaic:
        assert mosaic.all_batches_succeeded(2)
        mosaic.set_enface_stitched()
        mosaic.set_enface_uploaded()
        mosaic.set_volume_stitched()
    with service.open_batch("p", mosaic_id=2, batch_id=1) as batch:
        batch.reset_complexed()
        assert (batch.volume_processed, batch.processing_state) == (False, "completed")
    with service.open_mosaic("p", mosaic_id=2) as mosaic:
        mosaic.set_enface_stitched(False)
    found = service.read_mosaic("p", mosaic_id=2)
    assert found is not None
    assert (found.enface_stitched, found.enface_uploaded, found.volume_stitched) == (False, False, True)
    assert (found.batches[1].complexed, found.batches[2].complexed) == (False, True)
    assert words(log, OCTMosaicState.name_of("p", 1, 2)) == [
        "created",
        "enface_stitched",
        "enface_uploaded",
        "volume_stitched",
        "reset",
    ]
    assert words(log, OCTBatchState.name_of("p", 1, 2, 1))[-1] == "reset"
