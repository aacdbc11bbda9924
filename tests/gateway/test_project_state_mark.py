"""`pledger lsm|psoct mark` (spec S0-82)."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Callable

from gateway.cli.errors import Code
from ledger import Ledger
from ledger.pipelines import LSM, OCT, LSMStateService, Pipeline
from tests.gateway.conftest import Ended, eventually
from tests.gateway.projects import at, elsewhere, fill, leaves, options, pipelines

Pledger = Callable[..., Ended]
LEAF = ["--slice", "1", "--channel", "2", "--strip", "3"]
STATES = ("running", "completed", "failed", "pending")


@pipelines
def test_each_level_takes_each_state(pledger: Pledger, log: Ledger, pipeline: Pipeline) -> None:
    store = fill(log, pipeline)
    for depth, state in [(depth, state) for depth in (1, 2, 3) for state in STATES]:
        ids, level = (1, 2, 3)[:depth], pipeline.names[depth - 1]
        before = log.bound()
        ended = pledger(pipeline.name, "mark", "BRAIN_7", level, state, *options(pipeline, *ids))
        assert (ended.code, ended.rows, ended.err) == (0, [["updated", "1"]], "")
        view = at(store, pipeline, *ids)
        assert (view.processing_state, log.bound()) == (state, before + 1)
        assert view.finished == (state in ("completed", "failed"))
        assert (view.processing_started_at is None) == (state == "pending")


@pipelines
def test_each_level_takes_its_flags(pledger: Pledger, log: Ledger, pipeline: Pipeline) -> None:
    store = fill(log, pipeline)
    for depth, level in enumerate(pipeline.below, 1):
        ids = (1, 2, 3)[:depth]
        for flag in (each.name for each in level.flags):
            mark = (pipeline.name, "mark", "brain_7", level.name, flag)
            assert pledger(*mark, "yes", *options(pipeline, *ids)).code == 0
            assert getattr(at(store, pipeline, *ids), flag)
            told = json.loads(pledger(*mark, "no", *options(pipeline, *ids), "--json").out)
            assert (told["level"], told["field"], told["value"], told["updated"]) == (
                level.name,
                flag,
                False,
                1,
            )
            assert not getattr(at(store, pipeline, *ids), flag)


def test_the_words_for_yes_and_no(pledger: Pledger, log: Ledger) -> None:
    store = fill(log, LSM)
    yes, no = ["true", "1", "YES", " y ", "True"], ["false", "0", "No", "n ", "FALSE"]
    for word in [word for pair in zip(yes, no, strict=True) for word in pair]:
        assert pledger("lsm", "mark", "brain_7", "strip", "archived", word, *LEAF).code == 0
        assert at(store, LSM, 1, 2, 3).archived == (word in yes), word


def test_a_flag_that_becomes_false_clears_what_was_made_from_it(pledger: Pledger, log: Ledger) -> None:
    store = fill(log, LSM)
    for flag in ("compressed", "uploaded"):
        pledger("lsm", "mark", "brain_7", "strip", flag, "yes", *LEAF)
    pledger("lsm", "mark", "brain_7", "strip", "compressed", "no", *LEAF)
    assert not at(store, LSM, 1, 2, 3).uploaded


def test_why_it_failed_is_kept(pledger: Pledger, log: Ledger) -> None:
    store = fill(log, LSM)
    why = "disk\tfull \x1b[31m é"
    assert pledger("lsm", "mark", "brain_7", "strip", "failed", *LEAF, "--reason", why).code == 0
    assert at(store, LSM, 1, 2, 3).reason == why
    row = pledger("lsm", "show", "brain_7", "--slice", "1", "--channel", "2").rows[2]
    assert row[-1] == "disk\\x09full \\x1b[31m é"


@pipelines
def test_without_the_last_id_all_children_are_marked(
    pledger: Pledger, log: Ledger, pipeline: Pipeline
) -> None:
    store = fill(log, pipeline)
    top, middle, leaf = pipeline.names
    ended = pledger(pipeline.name, "mark", "brain_7", leaf, "completed", *options(pipeline, 1, 2))
    assert ended.rows == [["updated", "3"]]
    done = [ids for ids, view in leaves(store, pipeline).items() if view.succeeded]
    assert done == [(1, 2, 1), (1, 2, 2), (1, 2, 3)]
    assert pledger(pipeline.name, "mark", "brain_7", middle, "running", "--slice", "2").rows[0][1] == "2"
    assert pledger(pipeline.name, "mark", "brain_7", top, "failed").rows == [["updated", "2"]]
    assert [at(store, pipeline, 2, n).processing_state for n in (1, 2)] == ["running", "running"]
    assert [at(store, pipeline, n).processing_state for n in (1, 2)] == ["failed", "failed"]


def test_several_ids_of_one_parent(pledger: Pledger, log: Ledger) -> None:
    store = fill(log, LSM)
    above = ["--slice", "1", "--channel", "2"]
    for given, marked in {"1-3": [1, 2, 3], "3,1": [1, 3], "2-3,3,2": [2, 3], " 2 ": [2]}.items():
        pledger("lsm", "mark", "brain_7", "strip", "pending", *above)
        before = log.bound()
        ended = pledger("lsm", "mark", "brain_7", "strip", "completed", *above, "--strip", given)
        assert ended.rows == [["updated", str(len(marked))]]
        assert [ids[2] for ids, view in leaves(store, LSM).items() if view.succeeded] == marked
        assert log.bound() == before + len(marked)


BAD_USE: list[tuple[list[str], int, str]] = [
    (["brain_7", "strip", "completed", "--slice", "1"], 2, "`--channel` is required.\n"),
    (["brain_7", "strip", "completed", "--channel", "1"], 2, "`--slice` is required.\n"),
    (["brain_7", "channel", "completed"], 2, "`--slice` is required.\n"),
    (["brain_7", "channel", "completed", *LEAF], 2, "`--strip` is below a channel"),
    (
        ["brain_7", "mosaic", "completed"],
        2,
        "'mosaic' is not a level of lsm; its levels: slice, channel, strip",
    ),
    (["brain_7", "strip", "completed", "yes", *LEAF], 2, "`completed` takes no VALUE"),
    (["brain_7", "strip", "archived", *LEAF], 2, "VALUE of the flag `archived` is missing"),
    (
        ["brain_7", "strip", "archived", "maybe", *LEAF],
        2,
        "`archived` is 'maybe'; it must be true, 1, yes, y",
    ),
    (["brain_7", "strip", "archived", "", *LEAF], 2, "`archived` is ''"),
    (
        ["brain_7", "strip", "mip_stitched", "yes", *LEAF],
        2,
        "Unknown or unsupported field for this hierarchy: 'mip_stitched'; a strip has pending, running",
    ),
    (["brain_7", "strip", "status", "yes", *LEAF], 2, "Unknown or unsupported field"),
    (["brain_7", "slice", "uploaded", "yes", "--slice", "1"], 2, "Unknown or unsupported field"),
    (
        ["brain_7", "strip", "completed", *LEAF, "--reason", "why"],
        2,
        "`--reason` belongs to `failed` only",
    ),
    (["brain_7", "strip", "archived", "y", *LEAF, "--reason", "why"], 2, "`--reason` belongs to"),
    (["brain_7", "strip", "failed", *LEAF, "--reason", "nul\udcff"], 2, "reason"),
    (["brain_7", "slice", "completed", "--slice", "-1"], 2, "`--slice` '-1' is not an id"),
    (["brain_7", "slice", "completed", "--slice", "1-"], 2, "`--slice` '1-' is not an id"),
    (["brain_7", "slice", "completed", "--slice", "3-1"], 2, "'3-1' ends before it begins"),
    (["brain_7", "slice", "completed", "--slice", "²"], 2, "is not an id; it must be numbers of 0 or more"),
    (["brain_7", "slice", "completed", "--slice", "9" * 5000], 2, "is not an id"),
    (["brain_7", "slice", "completed", "--slice", "9" * 19], 2, "below 2**63"),
    (["brain_7", "channel", "completed", "--slice", "1-2"], 2, "`--slice` '1-2' is not an id"),
    (["", "slice", "completed"], 2, "project_name"),
    (["brain_7", "slice", "completed", "--timeout", "-1"], 2, "--timeout"),
    (["brain_8", "slice", "completed"], 3, "Project not found: project='brain_8'"),
    (["brain_8", "strip", "completed", *LEAF], 3, "Project not found: project='brain_8'"),
    (["brain_7", "slice", "completed", "--slice", "9"], 3, "Slice not found: slice=9"),
    (["brain_7", "slice", "completed", "--slice", "1-9"], 3, "Slice not found: slice=3"),
    (["brain_7", "channel", "running", "--slice", "9"], 3, "Slice not found: slice=9"),
    (
        ["brain_7", "strip", "running", "--slice", "1", "--channel", "9", "--strip", "1"],
        3,
        "Channel not found: slice=1, channel=9",
    ),
    (
        ["brain_7", "strip", "running", "--slice", "1", "--channel", "1", "--strip", "1-999999999999"],
        3,
        "Strip not found: slice=1, channel=1, strip=4",
    ),
    (["empty", "slice", "running"], 3, "there is no slice to mark: project='empty'"),
]


def test_what_cannot_be_marked_changes_nothing(pledger: Pledger, log: Ledger) -> None:
    fill(log, LSM)
    with LSMStateService(log).open_project("empty"):
        pass
    before = log.bound()
    for arguments, code, says in BAD_USE:
        ended = pledger("lsm", "mark", *arguments)
        assert (ended.code, ended.out) == (code, ""), (arguments, ended.err)
        assert says in ended.err
        assert ended.err.count("\n") == 1
    assert pledger("lsm", "mark", *arguments, "--json").error["exit"] == code
    assert log.bound() == before


def test_a_deleted_item_is_not_marked_nor_made_again(pledger: Pledger, log: Ledger) -> None:
    fill(log, OCT)
    pledger("psoct", "reset", "brain_7", "--slice", "1", "--yes")
    before = log.bound()
    ended = pledger("psoct", "mark", "brain_7", "batch", "running", *options(OCT, 1, 1, 1))
    assert (ended.code, log.bound()) == (3, before)
    assert "Slice not found: slice=1" in ended.err


def test_a_mark_waits_only_for_its_own_item(pledger: Pledger, log: Ledger) -> None:
    fill(log, LSM)
    service = LSMStateService(log)
    with elsewhere(service.open_strip("brain_7", slice_id=1, channel_id=2, strip_id=1)):
        beside = pledger("lsm", "mark", "brain_7", "strip", "completed", *LEAF, "--timeout", "0")
        all_of_it = pledger(
            "lsm", "mark", "brain_7", "strip", "completed", *LEAF[:4], "--timeout", "0.1", "--json"
        )
    assert beside.code == 0
    assert (all_of_it.code, all_of_it.error["error"]) == (Code.CONFLICT, "LockTimeout")
    assert "is still open elsewhere by tester" in all_of_it.error["message"]


def test_a_mark_that_waits_goes_on_when_it_may(
    log: Ledger, started: Callable[..., subprocess.Popen[str]]
) -> None:
    store = fill(log, LSM)
    with LSMStateService(log).open_strip("brain_7", slice_id=1, channel_id=2, strip_id=3) as strip:
        strip.set_compressed()
        mark = started("lsm", "mark", "brain_7", "strip", "uploaded", "yes", *LEAF)
        eventually(lambda: waits(log))
    assert mark.wait(60) == 0
    view = at(store, LSM, 1, 2, 3)
    assert (view.compressed, view.uploaded) == (True, True)


def test_a_mark_that_waits_can_be_interrupted(
    log: Ledger, started: Callable[..., subprocess.Popen[str]]
) -> None:
    store = fill(log, LSM)
    with LSMStateService(log).open_strip("brain_7", slice_id=1, channel_id=2, strip_id=3):
        mark = started("lsm", "mark", "brain_7", "strip", "uploaded", "yes", *LEAF)
        eventually(lambda: waits(log))
        mark.send_signal(signal.SIGINT)
        out, said = mark.communicate(timeout=60)
    assert (mark.returncode, out, said) == (Code.INTERRUPTED, "", "")
    assert not at(store, LSM, 1, 2, 3).uploaded


def waits(log: Ledger) -> bool:
    """Whether somebody waits for an advisory lock."""
    with log.pool.connection() as connection:
        sql = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        row = connection.execute(sql).fetchone()
        return row is not None and row[0] > 0


def test_marks_at_once_lose_nothing(pledger: Pledger, log: Ledger) -> None:
    """Others mark the strips one by one, while the command marks all of them."""
    store = fill(log, LSM)
    service = LSMStateService(log)

    def compress(strip_id: int) -> None:
        for _ in range(10):
            with service.open_strip("brain_7", slice_id=1, channel_id=2, strip_id=strip_id) as strip:
                strip.set_compressed()

    threads = [threading.Thread(target=compress, args=(n,)) for n in (1, 2, 3)]
    for thread in threads:
        thread.start()
    codes = [pledger("lsm", "mark", "brain_7", "strip", "archived", "yes", *LEAF[:4]).code for _ in range(5)]
    for thread in threads:
        thread.join()
    assert codes == [0] * 5
    assert all(
        view.compressed and view.archived for ids, view in leaves(store, LSM).items() if ids[:2] == (1, 2)
    )
    assert sum(event.topic == "lsm.strip.archived" for event in log.read("lsm.strip/brain-7/1/2/1")) == 5
