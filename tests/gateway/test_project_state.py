"""`pledger lsm|psoct show` (spec S0-80)."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from ledger import Ledger
from ledger.pipelines import LSMStateService, OCTStateService
from tests.gateway.conftest import Ended

Pledger = Callable[..., Ended]


@pytest.fixture
def brain(log: Ledger) -> LSMStateService:
    service = LSMStateService(log)
    with service.open_channel_by_parts("Brain_7", slice_id=1, channel_id=2) as channel:
        for number in range(1, 5):
            strip = channel.get_or_create_strip(number)
            if number < 4:
                strip.mark_started()
            if number == 1:
                strip.mark_completed()
                strip.set_compressed()
            if number == 2:
                strip.mark_failed("disk\tfull")
        channel.set_mip_stitched()
    return service


def test_the_project_as_json_is_its_view(pledger: Pledger, brain: LSMStateService) -> None:
    ended = pledger("lsm", "show", "Brain_7", "--json")
    assert json.loads(ended.out) == brain.peek_project("Brain_7").to_dict()
    assert ended.out.startswith('{\n  "')
    assert pledger("lsm", "show", "brain-7", "--json").out == ended.out


def test_the_parts_as_json_are_theirs(pledger: Pledger, brain: LSMStateService) -> None:
    a_slice = json.loads(pledger("lsm", "show", "brain-7", "--slice", "1", "--json").out)
    channel = json.loads(pledger("lsm", "show", "brain-7", "--slice", "1", "--channel", "2", "--json").out)
    strip = json.loads(
        pledger("lsm", "show", "brain-7", "--slice", "1", "--channel", "2", "--strip", "1", "--json").out
    )
    assert a_slice["channels"]["2"] == channel
    assert channel["strips"]["1"] == strip
    assert (strip["processing_state"], strip["compressed"], strip["uploaded"]) == ("completed", True, False)


def test_the_rows_of_a_project(pledger: Pledger, brain: LSMStateService) -> None:
    assert pledger("lsm", "show", "brain-7").rows == [
        ["1", "2", "pending", "4", "1", "1", "1", "1", "1", "0", "0", "yes", "no", "no"]
    ]
    assert pledger("lsm", "show", "brain-7", "--slice", "1").rows == pledger("lsm", "show", "brain-7").rows


def test_the_rows_of_a_channel(pledger: Pledger, brain: LSMStateService) -> None:
    rows = pledger("lsm", "show", "brain-7", "--slice", "1", "--channel", "2").rows
    assert [(row[0], row[1]) for row in rows] == [
        ("1", "completed"), ("2", "failed"), ("3", "running"), ("4", "pending"),
    ]  # fmt: skip
    assert (rows[0][2:6], rows[1][7]) == (["yes", "no", "no", "1"], "disk\\x09full")


def test_the_fields_of_a_strip(pledger: Pledger, brain: LSMStateService) -> None:
    ended = pledger("lsm", "show", "brain-7", "--slice", "1", "--channel", "2", "--strip", "1")
    fields = dict(ended.rows)
    assert (fields["processing_state"], fields["compressed"], fields["strip_id"]) == ("completed", "yes", "1")


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--strip", "1"], 2, "`--channel` is required when `--strip` is provided."),
        (["--slice", "1", "--strip", "1"], 2, "`--channel` is required when `--strip` is provided."),
        (["--channel", "1"], 2, "`--slice` is required when `--channel` is provided."),
        (["--slice", "-1"], 2, "--slice"),
        (["--slice", "one"], 2, "--slice"),
        (["--slice", "9"], 3, "Slice not found: slice=9"),
        (["--slice", "1", "--channel", "9"], 3, "Channel not found: slice=1, channel=9"),
        (["--slice", "9", "--channel", "2"], 3, "Slice not found: slice=9"),
        (
            ["--slice", "1", "--channel", "2", "--strip", "9"],
            3,
            "Strip not found: slice=1, channel=2, strip=9",
        ),
        (["--slice", "1", "--channel", "9", "--strip", "1"], 3, "Channel not found: slice=1, channel=9"),
    ],
)
def test_what_is_missing_is_named(
    pledger: Pledger, brain: LSMStateService, options: list[str], code: int, says: str
) -> None:
    ended = pledger("lsm", "show", "Brain_7", *options)
    assert (ended.code, ended.out) == (code, "")
    assert says in ended.err
    assert pledger("lsm", "show", "Brain_7", *options, "--json").error["exit"] == code


def test_a_project_that_nobody_made_is_not_there(pledger: Pledger, log: Ledger) -> None:
    ended = pledger("lsm", "show", "brain-8")
    assert (ended.code, ended.err) == (3, "pledger: Project not found: project='brain-8'\n")
    assert log.streams() == []


def test_a_deleted_slice_is_not_there(pledger: Pledger, brain: LSMStateService) -> None:
    with brain.open_project("brain-7") as project:
        project.delete_slice(1)
    assert pledger("lsm", "show", "brain-7", "--slice", "1").code == 3
    assert pledger("lsm", "show", "brain-7").rows == []


def test_show_knows_the_strips_of_a_project(pledger: Pledger, brain: LSMStateService) -> None:
    (found,) = pledger("show", "lsm.strip/brain-7/1/2/1", "--json").objects
    assert (found["status"], found["state"]["compressed"], found["state"]["strip_id"]) == (
        "completed",
        True,
        1,
    )


def test_psoct_is_shown_alike(pledger: Pledger, log: Ledger) -> None:
    service = OCTStateService(log)
    with service.open_slice("Brain_7", slice_id=1) as a_slice:
        a_slice.set_registered()
        mosaic = a_slice.get_or_create_mosaic(2)
        mosaic.set_volume_stitched()
        mosaic.get_or_create_batch(1).set_complexed()
        mosaic.get_or_create_batch(2).mark_failed("no disk")
    show = ("psoct", "show", "brain-7")
    assert json.loads(pledger(*show, "--json").out) == service.peek_project("brain-7").to_dict()
    (row,) = pledger(*show).rows
    assert row[:8] == [
        "1",
        "2",
        "pending",
        "2",
        "0",
        "0",
        "1",
        "1",
    ]  # its batches: all, done, running, failed, pending
    assert row[8:] == ["1", "0", "0", "0", "0", "no", "yes", "no", "no", "yes", "no"]
    batches = pledger(*show, "--slice", "1", "--mosaic", "2").rows
    assert batches[0][:7] == ["1", "pending", "yes", "no", "no", "no", "no"]
    assert (batches[1][:2], batches[1][-1]) == (["2", "failed"], "no disk")
    batch = pledger(*show, "--slice", "1", "--mosaic", "2", "--batch", "1")
    assert dict(batch.rows)["complexed"] == "yes"
    for options, says in [
        (["--batch", "1"], "`--mosaic` is required when `--batch` is provided."),
        (["--mosaic", "1"], "`--slice` is required when `--mosaic` is provided."),
        (["--slice", "1", "--mosaic", "9"], "Mosaic not found: slice=1, mosaic=9"),
        (["--slice", "1", "--mosaic", "2", "--batch", "9"], "Batch not found: slice=1, mosaic=2, batch=9"),
    ]:
        assert says in pledger(*show, *options).err
