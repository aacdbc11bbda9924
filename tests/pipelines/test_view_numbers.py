"""The ids and totals of a view are 0 or more, as those of an ident are, however the view is made."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest

from ledger import BadInput, BadName
from ledger.domain.state import dump, load
from ledger.pipelines import LSM, OCT, Item, LSMStripStateView

KINDS = [kind for pipeline in (LSM, OCT) for kind in pipeline]
IDS = [(kind.STATE, name) for kind in KINDS for place, name in kind.IDS if place]
TOTALS = [
    (kind.STATE, name)
    for kind in (LSM[0], OCT[0])
    for name in ("strips_per_slice", "batches_per_mosaic", "mosaics_per_slice")
    if hasattr(kind, name)
]
BAD = [-1, True, 1.5, "1", 2**63]


def made(state: type[Item], **given: Any) -> Item:
    """A view of a level, with 1 for each id that is not given."""
    kind = next(kind for kind in KINDS if state is kind.STATE)
    ids: dict[str, Any] = {name: 1 if place else "p" for place, name in kind.IDS}
    return state(**ids | given)


@pytest.mark.parametrize("bad", [*BAD, None])
@pytest.mark.parametrize(("state", "name"), IDS)
def test_an_id_is_checked(state: type[Item], name: str, bad: Any) -> None:
    with pytest.raises(BadName, match=f"{name} .*must be an integer, 0 or more"):
        made(state, **{name: bad})
    with pytest.raises(BadInput):
        dataclasses.replace(made(state), **{name: bad})
    assert getattr(made(state, **{name: 0}), name) == 0


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize(("state", "name"), TOTALS)
def test_a_total_is_checked_and_may_be_unknown(state: type[Item], name: str, bad: Any) -> None:
    with pytest.raises(BadName, match=f"{name} .*must be an integer, 0 or more"):
        made(state, **{name: bad})
    assert [getattr(made(state, **{name: good}), name) for good in (None, 0, 7)] == [None, 0, 7]


def test_there_is_something_to_check() -> None:
    assert (len(IDS), len(TOTALS)) == (12, 3)


def test_a_view_is_copied_pickled_kept_and_loaded_as_before() -> None:
    view = LSMStripStateView(slice_id=1, channel_id=0, strip_id=2, archived=True)
    for twin in (copy.deepcopy(view), pickle.loads(pickle.dumps(view)), load(type(view), dump(view))):
        assert twin == view
