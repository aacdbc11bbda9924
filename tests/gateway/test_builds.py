"""`pledger builds`: what is said of runs and stages, read from the log alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ledger import Ledger
from ledger.builds.completion import record
from ledger.builds.manifests import StageStatus
from ledger.builds.retention import drop_runs
from ledger.builds.run import Decided, OpenRun, RunStatus, StageFinished
from ledger.builds.stage import Dep, How, OpenStage, Out, StageCompleted
from tests.gateway.conftest import Ended

Pledger = Callable[..., Ended]
FIRST, SECOND, THIRD, LAST = (f"20260131_09300{nth}_0000000{9 - nth}" for nth in range(4))
OF = ("--project", "p")


@pytest.fixture
def built(log: Ledger) -> None:
    """Four runs of two stages: both run; both are skipped; data change, and train fails; the last goes on."""
    begin(log, FIRST)
    complete(log, FIRST, "clean", "No previous run", "1" * 64, {"raw": "a" * 64}, {"clean.csv": "c" * 64})
    complete(log, FIRST, "train", "No previous run", "2" * 64, {"clean.csv": "c" * 64}, {"model": "d" * 64})
    end(log, FIRST)
    begin(log, SECOND)
    skip(log, SECOND, "clean", "train")
    end(log, SECOND)
    begin(log, THIRD)
    complete(
        log,
        THIRD,
        "clean",
        "Input dependencies changed",
        "3" * 64,
        {"raw": "b" * 64},
        {"clean.csv": "e" * 64},
    )
    fail(log, THIRD, "train", "Input dependencies changed", "exit status 3")
    end(log, THIRD)
    begin(log, LAST)
    skip(log, LAST, "clean")
    complete(
        log, LAST, "train", "Params changed", "4" * 64, {"clean.csv": "e" * 64}, {"model": "f" * 64}, lr=0.2
    )


def begin(log: Ledger, run: str) -> None:
    opened = OpenRun("p", run)
    opened.start([], ["clean", "train"])
    record(log, [], opened)


def end(log: Ledger, run: str) -> None:
    opened = log.load(OpenRun, "p", run)
    opened.end()
    record(log, [], opened)


def skip(log: Ledger, run: str, *stages: str) -> None:
    opened = log.load(OpenRun, "p", run)
    opened.skip([Decided(stage, "generation", "unchanged (generation)", "0" * 64) for stage in stages])
    record(log, [], opened)


def complete(
    log: Ledger, run: str, name: str, reason: str, inputs: str, deps: dict[str, str], outs: dict[str, str],
    **params: float,
) -> None:  # fmt: skip
    opened, stage = log.load(OpenRun, "p", run), log.load(OpenStage, "p", name)
    token = stage.claim("host:1", run)
    opened.start_stage(name, reason, inputs)
    record(log, [stage], opened)
    stage.complete(
        StageCompleted(
            how=How.RAN, run=run, token=token, input_hash=inputs, code={"command": f"python {name}.py"},
            params=dict(params), deps={path: Dep(hash) for path, hash in deps.items()},
            outs=tuple(Out(*out) for out in outs.items()), reason=reason, duration_ms=1500,
        )
    )  # fmt: skip
    opened.finish_stage(
        StageFinished(stage=name, status=StageStatus.RAN, reason=reason, input_hash=inputs, duration_ms=1500)
    )
    record(log, [stage], opened)


def fail(log: Ledger, run: str, name: str, reason: str, failure: str) -> None:
    opened, stage = log.load(OpenRun, "p", run), log.load(OpenStage, "p", name)
    token = stage.claim("host:1", run)
    opened.start_stage(name, reason, "5" * 64)
    record(log, [stage], opened)
    stage.fail(token, failure, run=run, duration_ms=20)
    opened.finish_stage(StageFinished(stage=name, status=StageStatus.FAILED, reason=failure, duration_ms=20))
    record(log, [stage], opened)


def test_history_lists_the_newest_run_first(pledger: Pledger, built: None) -> None:
    """By their first events, not by their ids: the ids of these ascend in their last part only by chance."""
    ended = pledger("builds", "history", *OF)
    assert [[*row[:2], *row[3:]] for row in ended.rows] == [
        [LAST, "in_progress", "1", "1", "0", "1.5"],
        [THIRD, "failed", "1", "0", "1", "1.5"],
        [SECOND, "completed", "0", "2", "0", "0.0"],
        [FIRST, "completed", "2", "0", "0", "3.0"],
    ]
    (one,) = pledger("builds", "history", "-n", "1", "--json", *OF).objects
    assert (one["run_id"], one["ended_at"], one["total"], one["ran"]) == (LAST, None, 2, 1)


def test_a_project_without_runs_says_so(pledger: Pledger) -> None:
    ended = pledger("builds", "history", *OF)
    assert (ended.code, ended.out, ended.err) == (0, "", "No runs recorded\n")
    ended = pledger("builds", "show", *OF)
    assert (ended.code, ended.err) == (3, "pledger: No runs recorded\n")


def test_show_has_what_a_run_did(pledger: Pledger, built: None) -> None:
    assert pledger("builds", "show", THIRD, *OF).rows == [
        ["clean", "ran", "1.5", "Input dependencies changed"],
        ["train", "failed", "0.0", "exit status 3"],
    ]
    (last,) = pledger("builds", "show", "--json", *OF).objects
    assert (last["run_id"], last["ended_at"], last["execution_order"]) == (LAST, None, ["clean", "train"])
    assert last["stages"]["clean"] == {
        "input_hash": "0" * 64, "status": "skipped", "reason": "unchanged (generation)", "duration_ms": 0
    }  # fmt: skip
    ended = pledger("builds", "show", "20200101_000000_00000000", *OF)
    assert (ended.code, ended.err) == (3, "pledger: Run not found: 20200101_000000_00000000\n")


def test_a_dropped_run_leaves_the_list_and_can_still_be_asked_about(
    pledger: Pledger, log: Ledger, built: None
) -> None:
    drop_runs(log, "p", [FIRST], 3)
    assert FIRST not in pledger("builds", "history", *OF).out
    assert pledger("builds", "history", "--dropped", *OF).rows[-1][:2] == [FIRST, RunStatus.DROPPED]
    ended = pledger("builds", "show", FIRST, *OF)
    assert len(ended.rows) == 2
    assert "this run was dropped (retention); its events stay" in ended.err
    assert "No previous run" in pledger("builds", "why", "train", "--run", FIRST, *OF).out


def test_why_tells_what_changed_and_who_made_it(pledger: Pledger, built: None) -> None:
    (why,) = pledger("builds", "why", "train", "--json", *OF).objects
    assert {name: why[name] for name in ("run", "status", "reason", "before", "failure")} == {
        "run": LAST, "status": "ran", "reason": "Params changed", "before": FIRST, "failure": None
    }  # fmt: skip
    assert why["changes"] == [
        {"what": "parameter", "name": "lr", "old": None, "new": 0.2, "stage": None, "run": None},
        {
            "what": "dependency", "name": "clean.csv", "old": "c" * 64, "new": "e" * 64, "stage": "clean",
            "run": THIRD,
        },
    ]  # fmt: skip
    sentence, *rows = pledger("builds", "why", "train", *OF).out.splitlines()
    assert sentence == f"train ran in 1.5 s in run {LAST}: Params changed; compared with run {FIRST}"
    assert rows == [
        "parameter\tlr\t\t0.2\t",
        f"dependency\tclean.csv\t{'c' * 64}\t{'e' * 64}\tclean in {THIRD}",
    ]


def test_why_of_a_source_file_names_no_maker(pledger: Pledger, built: None) -> None:
    (why,) = pledger("builds", "why", "clean", "--run", THIRD, "--json", *OF).objects
    assert why["changes"] == [
        {"what": "dependency", "name": "raw", "old": "a" * 64, "new": "b" * 64, "stage": None, "run": None}
    ]


@pytest.mark.parametrize(
    ("stage", "run", "told"),
    [
        ("train", SECOND, f"skipped in run {SECOND}: unchanged (generation); as completed in run {FIRST}"),
        ("clean", LAST, f"skipped in run {LAST}: unchanged (generation); as completed in run {THIRD}"),
        ("train", THIRD,
         f"failed in 0.0 s in run {THIRD}: Input dependencies changed; it failed: exit status 3; it was last "
         f"completed in run {FIRST}"),
        ("clean", FIRST, f"ran in 1.5 s in run {FIRST}: No previous run"),
    ],
)  # fmt: skip
def test_why_answers_for_any_run(pledger: Pledger, built: None, stage: str, run: str, told: str) -> None:
    assert pledger("builds", "why", stage, "--run", run, *OF).out == f"{stage} {told}\n"


def test_why_of_what_is_not_there(pledger: Pledger, built: None) -> None:
    ended = pledger("builds", "why", "nothing", *OF)
    assert (ended.code, ended.err) == (3, "pledger: stage nothing is not in any run of project p\n")
    ended = pledger("builds", "why", "train", "--run", "r", *OF)
    assert (ended.code, ended.err) == (3, "pledger: stage train is not in run r of project p\n")


def test_blame_names_the_event_that_set_each_field_of_a_stage(pledger: Pledger, built: None) -> None:
    (found,) = pledger("blame", "build_stage/p/train", "--json").objects
    by = {line["field"]: (line["topic"], line["version"]) for line in found["fields"]}
    assert by["code.command"] == ("build.stage_completed", 2)
    assert by["params.lr"] == by['deps["clean.csv"]'] == ("build.stage_completed", 6)


def test_status_shows_the_last_completion_of_each_stage(
    pledger: Pledger, built: None, tmp_path: Path
) -> None:
    file = tmp_path / "pledger-build.toml"
    file.write_text('[project]\nname = "p"\n[stages.clean]\ncommand = "x"\n[stages.new]\ncommand = "y"\n')
    rows = pledger("builds", "status", "--file", str(file)).rows
    assert [[*row[:3], *row[4:]] for row in rows] == [
        ["clean", "completed", "ran", "1.5", THIRD, "Input dependencies changed"],
        ["new", "", "", "", "", ""],
    ]
    (one,) = pledger("builds", "status", "clean", "--json", "--file", str(file)).objects
    assert (one["run"], one["input_hash"]) == (THIRD, "3" * 64)


def test_the_project_is_that_of_the_build_file(
    pledger: Pledger, built: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = pledger("builds", "history")
    assert (ended.code, ended.err) == (
        2,
        "pledger: there is no pledger-build.toml here: give the project by --project or --file\n",
    )
    (tmp_path / "pledger-build.toml").write_text('[project]\nname = "p"\n')
    assert len(pledger("builds", "history").rows) == 4
    assert pledger("builds", "history", "--file", ".", *OF).code == 2
    ended = pledger("builds", "history", "--file", "nowhere")
    assert ended.code == 2
    assert "there is no build file" in ended.err
