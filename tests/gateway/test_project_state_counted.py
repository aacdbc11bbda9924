"""`pledger psoct mark|reset` where a mosaic is given without its slice (spec S0-43)."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from ledger import Ledger
from ledger.pipelines import OCTStateService
from tests.gateway.conftest import Ended

Pledger = Callable[..., Ended]


@pytest.mark.parametrize(("plan", "mosaic", "counted"), [(None, 3, 2), (None, 2, 1), (3, 3, 1), (3, 4, 2)])
def test_the_slice_of_a_mosaic_is_counted_where_it_is_not_given(
    pledger: Pledger, log: Ledger, plan: int | None, mosaic: int, counted: int
) -> None:
    """By the one rule (spec S0-43), with the number that the project plans, else two a slice."""
    service = OCTStateService(log, mosaics_per_slice=plan or 2)
    with service.open_project("p") as project:
        project.plan(mosaics_per_slice=plan)
    with service.open_batch("p", mosaic_id=mosaic, batch_id=1):
        pass
    whole, given = ["--slice", str(counted)], ["--mosaic", str(mosaic)]
    assert pledger("psoct", "mark", "p", "mosaic", "enface_stitched", "yes", *given).rows[0][1] == "1"
    assert pledger("psoct", "mark", "p", "batch", "completed", *given, "--batch", "1").rows[0][1] == "1"
    assert pledger("psoct", "mark", "p", "batch", "completed", *given).rows[0][1] == "1"
    shown = json.loads(pledger("psoct", "show", "p", *whole, *given, "--json").out)
    assert (shown["slice_id"], shown["enface_stitched"]) == (counted, True)
    assert shown["batches"]["1"]["attempts"] == 0
    gone = pledger("psoct", "reset", "p", *given, "--batch", "1", "--dry-run", "--json")
    assert (
        json.loads(gone.out)["items"][0] | {"slice": counted, "mosaic": mosaic, "batch": 1}
        == (json.loads(gone.out)["items"][0])
    )
    assert pledger("psoct", "reset", "p", *given, "--yes").code == 0
    missing = pledger("psoct", "mark", "p", "mosaic", "completed", *given)
    assert (missing.code, f"Mosaic not found: slice={counted}, mosaic={mosaic}" in missing.err) == (3, True)


def test_mosaics_of_one_slice_are_marked_together_and_of_several_need_it(
    pledger: Pledger, log: Ledger
) -> None:
    service = OCTStateService(log)
    for mosaic_id in (3, 4):
        with service.open_mosaic("p", mosaic_id=mosaic_id):
            pass
    assert pledger("psoct", "mark", "p", "mosaic", "completed", "--mosaic", "3-4").rows[0][1] == "2"
    before = log.bound()
    for arguments, says in [
        (["mosaic", "completed", "--mosaic", "4-5"], "required: the mosaics are of the slices 2 to 3"),
        (["mosaic", "completed", "--mosaic", "1,3"], "required: the mosaics are of the slices 1 to 2"),
        (["mosaic", "completed", "--mosaic", "0"], "mosaic_id 0"),
        (["mosaic", "completed"], "`--slice` is required."),
        (["batch", "completed"], "`--slice` is required."),
        (["batch", "completed", "--batch", "1"], "`--slice` is required."),
        (["batch", "completed", "--slice", "1", "--batch", "1"], "`--mosaic` is required."),
    ]:  # fmt: skip
        ended = pledger("psoct", "mark", "p", *arguments)
        assert (ended.code, ended.out) == (2, ""), arguments
        assert says in ended.err
    ended = pledger("psoct", "reset", "p", "--batch", "1")
    assert (ended.code, "`--slice` is required." in ended.err) == (2, True)
    ended = pledger("psoct", "show", "p", "--mosaic", "3")
    assert "`--slice` is required when `--mosaic` is provided." in ended.err, "spec S0-80"
    assert log.bound() == before
