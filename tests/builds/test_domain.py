"""Builds: given facts, when a method is called, then it records these facts; nothing is stored."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ledger import ClaimLost, MoveNotAllowed, StageAlreadyRunningError
from ledger.builds import Dep, How, OpenOutput, OpenRemote, OpenRun, OpenStage, Out, RunStatus, StageStatus
from ledger.builds import remote as remotes
from ledger.builds.output import OutputChanged
from ledger.builds.remote import RemoteAdded, RemoteCleared, RemoteRemoved
from ledger.builds.run import (
    Decided,
    RunEnded,
    RunStarted,
    StageFinished,
    StagesDecided,
    StageStarted,
    manifest_of,
)
from ledger.builds.stage import DepsRecorded, StageClaimed, StageCompleted, StageFailed, StageReleased

NOW = datetime(2026, 3, 25, 12, tzinfo=UTC)
A, B = "a" * 64, "b" * 64
RUN = "20260325_120000_0123abcd"


def completed(token: int | None = None, **fields: object) -> StageCompleted:
    parts = {
        "how": How.RAN, "run": RUN, "input_hash": B, "code": {"command": "wc"}, "params": {"k": [3]},
        "deps": {"in.txt": Dep(A), "mid.txt": Dep(B, 4)}, "outs": (Out("out.txt", A),), "duration_ms": 12,
    }  # fmt: skip
    return StageCompleted.model_validate({**parts, "token": token, **fields})


def claimed() -> OpenStage:
    """A stage under its first claim: token 1."""
    return OpenStage("p", "count", past=[(StageClaimed(token=1, runner="host:7", run=RUN), NOW)])


# Outputs


def test_an_output_changes_once_for_each_content() -> None:
    output = OpenOutput("p", "out.txt")
    assert output.generation is None
    assert output.change(A, stage="count", run=RUN)
    assert not output.change(A)
    assert output.change(B)
    assert output.change(A)
    assert output.news == [
        OutputChanged(hash=A, stage="count", run=RUN),
        OutputChanged(hash=B),
        OutputChanged(hash=A),
    ]
    assert output.generation == 3


def test_an_output_of_unknown_content_changes_each_time() -> None:
    output = OpenOutput("p", "out.txt", past=[(OutputChanged(hash=A), NOW)])
    assert output.change(None)
    assert output.change(None)
    assert output.change(A)
    assert output.generation == 4


def test_a_generation_is_given_only_for_its_content() -> None:
    output = OpenOutput("p", "out.txt", past=[(OutputChanged(hash=A), NOW), (OutputChanged(hash=B), NOW)])
    assert (output.generation_of(B), output.generation_of(A)) == (2, None)


# Stages


def test_a_claim_has_the_version_of_its_fact_as_token() -> None:
    stage = OpenStage("p", "count")
    assert stage.claim("host:7", RUN) == 1
    assert stage.news == [StageClaimed(token=1, runner="host:7", run=RUN)]
    assert (stage.state.status, stage.state.runner, stage.lease()) == ("in_progress", "host:7", 1)


def test_a_claimed_stage_is_running_already() -> None:
    stage = claimed()
    with pytest.raises(StageAlreadyRunningError, match=r"stage count is already running \(host:7, token 1\)"):
        stage.claim("host:8")
    with pytest.raises(StageAlreadyRunningError):
        stage.complete(completed())
    assert stage.claim("host:8", take_over=True) == 2
    assert stage.news == [StageClaimed(token=2, runner="host:8", after=1)]


def test_a_completion_under_a_claim_ends_it_and_is_recorded_whole() -> None:
    stage = claimed()
    stage.complete(completed(token=1))
    now = stage.state
    assert (now.status, now.token, now.runner, stage.lease()) == ("completed", None, None, 0)
    assert (now.deps, now.generations) == ({"in.txt": A, "mid.txt": B}, {"mid.txt": 4})
    assert (now.input_hash, now.completed_in, now.outs) == (B, RUN, (Out("out.txt", A),))


def test_without_its_claim_a_runner_records_nothing() -> None:
    stage = claimed()
    stage.claim("host:8", take_over=True)
    stage.news.clear()
    for late in (
        lambda: stage.complete(completed(token=1)),
        lambda: stage.fail(1, "exit 1"),
        lambda: stage.release(1),
    ):
        with pytest.raises(ClaimLost, match="the claim with token 1"):
            late()
    assert stage.news == []


def test_a_failure_keeps_what_the_last_completion_recorded() -> None:
    stage = OpenStage("p", "count", past=[(completed(), NOW), (StageClaimed(token=2, runner="r"), NOW)])
    stage.fail(2, "missing deps: in.txt", run=RUN)
    assert stage.news == [StageFailed(token=2, reason="missing deps: in.txt", run=RUN)]
    assert (stage.state.status, stage.state.input_hash, stage.state.token) == ("failed", B, None)


def test_a_released_stage_is_ready() -> None:
    stage = claimed()
    stage.release(1, "interrupted")
    assert stage.news == [StageReleased(token=1, reason="interrupted")]
    assert (stage.state.status, stage.state.token) == ("ready", None)


def test_generations_are_replaced_as_a_whole_and_once() -> None:
    stage = OpenStage("p", "count", past=[(completed(), NOW)])
    assert stage.record_generations({"x": 1})
    assert not stage.record_generations({"x": 1})
    assert stage.news == [DepsRecorded(generations={"x": 1})]
    assert stage.state.generations == {"x": 1}
    assert stage.state.deps == {"in.txt": A, "mid.txt": B}


# Runs


def started() -> OpenRun:
    return OpenRun("p", RUN, past=[(RunStarted(order=("a", "b", "c"), runner="host:7"), NOW)])


def test_a_run_is_written_stage_by_stage() -> None:
    run = OpenRun("p", RUN)
    run.start([], ["a", "b", "c"], runner="host:7")
    run.skip([])
    run.skip([Decided("a", "lock", "unchanged", A)])
    run.start_stage("b", "Code changed")
    assert (run.state.running, run.state.skipped, run.state.total) == (1, 1, 3)
    run.finish_stage(StageFinished(stage="b", status=StageStatus.FAILED, reason="exit 1", duration_ms=5))
    run.end()
    assert run.news == [
        RunStarted(order=("a", "b", "c"), runner="host:7"),
        StagesDecided(stages=(Decided("a", "lock", "unchanged", A),)),
        StageStarted(stage="b", reason="Code changed"),
        StageFinished(stage="b", status=StageStatus.FAILED, reason="exit 1", duration_ms=5),
        RunEnded(status=RunStatus.FAILED),
    ]
    now = run.state
    assert (now.status, now.running, now.ran, now.skipped, now.failed, now.duration_ms) == (
        "failed",
        0,
        0,
        1,
        1,
        5,
    )


def test_a_run_ends_once() -> None:
    run = started()
    run.end(RunStatus.INTERRUPTED)
    with pytest.raises(MoveNotAllowed):
        run.end()
    with pytest.raises(MoveNotAllowed):
        started().start()


def test_w4_12_the_manifest_is_there_after_every_fact() -> None:
    run = OpenRun("p", RUN)
    run.start(["c"], ["a", "c"])
    run.skip([Decided("a", "generation", "unchanged (generation)", A)])
    run.start_stage("c", "No previous run", B)
    seen = []
    for upto in range(1, 4):
        manifest = manifest_of(RUN, [(event, NOW) for event in run.news[:upto]])
        assert manifest is not None
        assert manifest["ended_at"] is None
        seen.append({name: stage["status"] for name, stage in manifest["stages"].items()})
    assert seen == [{}, {"a": "skipped"}, {"a": "skipped", "c": "in_progress"}]
    run.finish_stage(StageFinished(stage="c", status=StageStatus.RAN, input_hash=B, duration_ms=3))
    run.end()
    assert manifest_of(RUN, [(event, NOW) for event in run.news]) == {
        "run_id": RUN,
        "started_at": "2026-03-25T12:00:00+00:00",
        "ended_at": "2026-03-25T12:00:00+00:00",
        "targeted_stages": ["c"],
        "execution_order": ["a", "c"],
        "stages": {
            "a": {"input_hash": A, "status": "skipped", "reason": "unchanged (generation)", "duration_ms": 0},
            "c": {"input_hash": B, "status": "ran", "reason": "", "duration_ms": 3},
        },
    }


def test_a_run_recorded_as_a_whole_is_its_manifest() -> None:
    run = started()
    run.end()
    run.news.clear()
    manifest = manifest_of(RUN, [(RunStarted(order=("a",)), NOW), (StageStarted(stage="a"), NOW)])
    assert manifest is not None
    run.write(manifest)
    assert manifest_of(RUN, [(event, NOW) for event in run.news]) == manifest
    assert run.state.status == "in_progress"


def test_a_dropped_run_says_what_it_was() -> None:
    run = started()
    run.skip([Decided("a", "lock", "unchanged")])
    assert not run.drop("retention", 100), "a run that goes on is never dropped"
    run.end()
    assert run.drop("retention", 100)
    assert not run.drop("retention", 100)
    assert run.news[-1].model_dump(exclude_defaults=True) == {
        "reason": "retention",
        "retention": 100,
        "skipped": 1,
    }
    assert run.state.status == "dropped"
    assert not OpenRun("p", RUN).drop("retention")


def test_the_head_of_a_run_stays_small() -> None:
    from ledger.domain.state import dump

    run = OpenRun("p", RUN)
    run.start([], [f"stage-{nth}" for nth in range(5000)])
    run.skip([Decided(f"stage-{nth}", "lock", "unchanged") for nth in range(5000)])
    assert len(dump(run.state)) < 300


# Remotes


def test_the_index_of_a_remote_is_recorded_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remotes, "AT_ONCE", 2)
    remote = OpenRemote("p", "s3:x/y")
    remote.add(["c", "a", "b", "a"])
    remote.add([])
    remote.remove(["a"])
    remote.clear()
    assert remote.news == [
        RemoteAdded(hashes=("a", "b")), RemoteAdded(hashes=("c",)), RemoteRemoved(hashes=("a",)),
        RemoteCleared(),
    ]  # fmt: skip
