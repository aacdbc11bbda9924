"""`pledger lsm|psoct plan` and `report` (spec S0-90 to S0-92)."""

from __future__ import annotations

import json
from collections.abc import Callable

from ledger import Ledger
from ledger.pipelines import LSM, OCT, LSMStateService, OCTStateService, Pipeline
from projections.pipelines import lsm_project_summary, lsm_slice_matrix, markdown, oct_all_mosaics
from tests.gateway.conftest import Ended
from tests.gateway.projects import at, fill, pipelines

Pledger = Callable[..., Ended]


# The plan


@pipelines
def test_a_plan_is_made_shown_changed_and_forgotten(
    pledger: Pledger, log: Ledger, pipeline: Pipeline
) -> None:
    made = [word for name in pipeline.totals for word in (f"--{name.replace('_', '-')}", "4")]
    ended = pledger(pipeline.name, "plan", "Brain_7", *made)
    assert ended.rows == [[name, "4"] for name in pipeline.totals]
    assert ended.err == "project 'Brain_7' did not exist; it was created\n"
    told = json.loads(pledger(pipeline.name, "plan", "brain-7", "--json").out)
    assert told == {"project": "Brain_7", **dict.fromkeys(pipeline.totals, 4)}
    first, *others = pipeline.totals
    changed = pledger(pipeline.name, "plan", "brain-7", made[0], "0")
    assert (changed.rows, changed.err) == ([[first, ""], *([name, "4"] for name in others)], "")
    planned = [event.topic for event in log.read(f"{pipeline.name}.project/brain-7")]
    assert planned == [f"{pipeline.name}.project.{fact}" for fact in ("created", "planned", "planned")]


def test_a_plan_that_cannot_be(pledger: Pledger, log: Ledger) -> None:
    for arguments, code, says in [
        (["brain_7"], 3, "Project not found: project='brain_7'"),
        (["brain_7", "--strips-per-slice", "-1"], 2, "--strips-per-slice"),
        (["brain_7", "--strips-per-slice", "many"], 2, "--strips-per-slice"),
        (["brain_7", "--strips-per-slice", str(2**63)], 2, "must be an integer, 0 or more, below 2**63"),
        (["", "--strips-per-slice", "1"], 2, "project_name"),
        (["brain_7", "--batches-per-mosaic", "1"], 2, "No such option"),
    ]:
        ended = pledger("lsm", "plan", *arguments)
        assert (ended.code, ended.out) == (code, ""), arguments
        assert says in ended.err
    assert log.streams() == []


# LSM


def lsm(log: Ledger) -> LSMStateService:
    store = fill(log, LSM)
    store.update("brain_7", lambda project: project.plan(strips_per_slice=4))
    service = LSMStateService(store)
    with service.open_channel("brain_7", slice_id=1, channel_id=2) as channel:
        channel.strips[1].mark_completed()
        channel.strips[1].set_compressed()
        channel.strips[2].mark_failed()
        channel.strips[3].mark_completed()
    return service


def test_a_project_is_reported_channel_by_channel(pledger: Pledger, log: Ledger) -> None:
    lsm(log)
    ended = pledger("lsm", "report", "brain_7")
    assert ended.rows == [
        ["1", "1", "4", "0", "0", "0", "0", "0.0%"],
        ["1", "2", "4", "1", "0", "0", "2", "50.0%"],
        ["2", "1", "4", "0", "0", "0", "0", "0.0%"],
        ["2", "2", "4", "0", "0", "0", "0", "0.0%"],
    ]
    assert "Overall completed strip slots: 2/16 (12.5%)\nFailed: 1\n" in ended.err
    other = pledger("lsm", "report", "brain_7", "--strips-per-slice", "2", "-q")
    assert (other.rows[1], other.err) == (["1", "2", "2", "1", "0", "0", "1", "50.0%"], "")


def test_a_slice_is_reported_strip_by_strip(pledger: Pledger, log: Ledger) -> None:
    service = lsm(log)
    rows = pledger("lsm", "report", "brain_7", "--slice", "1").rows
    matrix = lsm_slice_matrix(service.peek_project("brain_7"), 1)
    assert matrix is not None
    assert len(rows) == len(matrix.rows) == 8
    assert rows[1] == ["1", "2", "completed", "yes", "no", "no"]
    assert rows[-1] == ["4", "2", "pending", "no", "no", "no"]


def test_a_report_as_json_and_as_markdown(pledger: Pledger, log: Ledger) -> None:
    view = lsm(log).peek_project("brain_7")
    told = json.loads(pledger("lsm", "report", "brain_7", "--json").out)
    assert (told["key"], told["project"], told["done"], told["total"], told["failed"]) == (
        "brain-7-lsm-strip-progress", "Brain_7", 2, 16, 1,
    )  # fmt: skip
    assert told["milestones"] == {"25": False, "50": False, "75": False, "100": False}
    assert told["rows"][1] | {"progress": 50.0, "completed": 2, "slice_id": 1} == told["rows"][1]
    assert pledger("lsm", "report", "brain_7", "--markdown").out == markdown(lsm_project_summary(view))


def test_a_report_that_cannot_be(pledger: Pledger, log: Ledger) -> None:
    fill(log, LSM)
    before = log.bound()
    for arguments, code, says in [
        (
            ["brain_7"],
            2,
            "give `--strips-per-slice N`, or plan it once with `pledger lsm plan Brain_7 --strips-per",
        ),
        (["brain_7", "--slice", "1"], 2, "the expected number of strips is unknown"),
        (["brain_8", "--strips-per-slice", "4"], 3, "Project not found: project='brain_8'"),
        (["brain_7", "--strips-per-slice", "4", "--slice", "9"], 3, "Slice not found: slice=9"),
        (["brain_7", "--strips-per-slice", "4", "--json", "--markdown"], 2, "exclude each other"),
        (["brain_7", "--strips-per-slice", "-4"], 2, "--strips-per-slice"),
        (["brain_7", "--strips-per-slice", "100001", "--slice", "1"], 2, "is 100001; at most"),
    ]:
        ended = pledger("lsm", "report", *arguments)
        assert (ended.code, ended.out) == (code, ""), arguments
        assert says in ended.err
    assert log.bound() == before
    assert pledger("lsm", "report", "brain_7", "--strips-per-slice", "0").rows[0][-1] == "0.0%"


# PS-OCT


def psoct(log: Ledger) -> OCTStateService:
    store = fill(log, OCT)
    service = OCTStateService(store)
    with service.open_batch("brain_7", slice_id=1, mosaic_id=2, batch_id=1) as batch:
        batch.mark_completed()
        batch.set_enface_processed()
    return service


def test_all_mosaics_are_reported(pledger: Pledger, log: Ledger) -> None:
    service = psoct(log)
    ended = pledger("psoct", "report", "brain_7", "--markdown")
    assert ended.out == markdown(oct_all_mosaics(service.peek_project("brain_7")))
    rows = pledger("psoct", "report", "brain_7", "--batches-per-mosaic", "4").rows
    assert [row[:5] for row in rows if row[4] == "1"] == [["2", "4", "1", "0", "1"]]


def test_a_mosaic_is_reported_batch_by_batch(pledger: Pledger, log: Ledger) -> None:
    psoct(log)
    mosaic = ("psoct", "report", "brain_7", "--mosaic", "2")
    ended = pledger(*mosaic, "--slice", "1", "--batches-per-mosaic", "4")
    assert ended.rows[0] == ["1", "completed", "yes", "no", "no", "no", "no"]
    assert [row[1] for row in ended.rows[1:]] == ["pending"] * 3
    assert "Batches enface-processed: 1/4 (25.0%)" in ended.err
    both = pledger(*mosaic)
    assert (both.code, both.out) == (2, "")
    assert "mosaic 2 is in the slices 1, 2" in both.err
    assert "Mosaic not found: mosaic=9" in pledger("psoct", "report", "brain_7", "--mosaic", "9").err
    assert "`--mosaic` is required" in pledger("psoct", "report", "brain_7", "--slice", "9").err


def test_looking_writes_nothing(pledger: Pledger, log: Ledger) -> None:
    fill(log, OCT)
    before = log.bound()
    for name in ("show", "report", "plan"):
        for project, code in (("brain_7", 0), ("brain_8", 3)):
            assert pledger("psoct", name, project).code == code
            assert pledger("psoct", name, project, "--json").code == code
    assert log.bound() == before
    assert at(fill(log, OCT), OCT) is not None
