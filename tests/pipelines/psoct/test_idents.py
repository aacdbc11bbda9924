"""Who a PS-OCT item is: idents, their text, and what they refuse (spec 1.4)."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest

from ledger import BadInput, BadName
from ledger.pipelines import (
    LSMChannelId,
    LSMProjectId,
    OCTBatchId,
    OCTBatchState,
    OCTMosaicId,
    OCTProjectId,
    OCTSliceId,
)

BATCH = OCTBatchId("p", 1, 2, 3)


def test_each_extends_the_former_and_none_is_of_the_other_pipeline() -> None:
    assert [kind.__mro__[1] for kind in (OCTBatchId, OCTMosaicId, OCTSliceId)] == [
        OCTMosaicId,
        OCTSliceId,
        OCTProjectId,
    ]
    assert not issubclass(OCTProjectId, LSMProjectId)
    assert OCTMosaicId("p", 1, 2) != LSMChannelId("p", 1, 2)


def test_the_text_lists_keys_and_values() -> None:
    assert str(BATCH) == "project_name='p' slice_id=1 mosaic_id=2 batch_id=3"
    assert str(OCTProjectId("p")) == "project_name='p'"


def test_they_are_frozen_hashable_and_picklable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        BATCH.batch_id = 4  # type: ignore[misc]
    assert {BATCH: 1}[OCTBatchId(project_name="p", slice_id=1, mosaic_id=2, batch_id=3)] == 1
    assert pickle.loads(pickle.dumps(BATCH)) == BATCH


@pytest.mark.parametrize("bad", [-1, True, None, "1", 1.0, 2**63], ids=repr)
@pytest.mark.parametrize("place", ["slice_id", "mosaic_id", "batch_id"])
def test_bad_ids_are_refused_by_name(place: str, bad: Any) -> None:
    with pytest.raises(BadName, match=f"{place} .* must be an integer, 0 or more"):
        OCTBatchId(**{"project_name": "p", "slice_id": 0, "mosaic_id": 0, "batch_id": 0, place: bad})


@pytest.mark.parametrize("bad", ["", None, 7, "a\0b"], ids=ascii)
def test_bad_project_names_are_refused(bad: Any) -> None:
    with pytest.raises(BadName):
        OCTProjectId(bad)


@pytest.mark.parametrize("spelling", ["A_b", "a-b", "A-B"])
def test_spellings_of_one_project_share_the_streams(spelling: str) -> None:
    assert OCTBatchId(spelling, 1, 2, 3).key == ("a-b", 1, 2, 3)
    assert OCTBatchState.name_of(spelling, 1, 2, 3) == "psoct.batch/a-b/1/2/3"


def test_an_ident_or_a_name_with_ids() -> None:
    assert OCTBatchId.of("p", {"batch_id": 3, "mosaic_id": 2, "slice_id": 1}) == BATCH
    assert OCTMosaicId.of(BATCH, {"mosaic_id": None}) == OCTMosaicId("p", 1, 2)
    with pytest.raises(BadInput, match="is a OCTMosaicId; a OCTBatchId is needed here"):
        OCTBatchId.of(OCTMosaicId("p", 1, 2), {})
    with pytest.raises(BadInput, match="is a LSMChannelId; a OCTMosaicId is needed here"):
        OCTMosaicId.of(LSMChannelId("p", 1, 2), {})
