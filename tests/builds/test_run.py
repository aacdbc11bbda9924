"""A run executes what changed, skips and restores the rest, and records why."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

import pytest

import ledger
from consumers.builds import progress
from consumers.builds.content_cache import remove
from ledger import Ledger
from ledger.builds import OpenRun, OpenStage, RunStatus
from ledger.builds.run import StagesDecided

from .given_builds import GivenBuild


@pytest.fixture
def build(log: Ledger, tmp_path: Path) -> GivenBuild:
    """The chain of three stages, run once."""
    given = GivenBuild(log, tmp_path / "p")
    given.write("in.txt", "1x")
    given.write("other.txt", "o")
    assert given.run().status == "succeeded"
    assert given.ran() == "abc"
    return given


UNCHANGED = ("skipped", "unchanged")
BY_GENERATION = ("skipped", "unchanged (generation)")
FROM_CACHE = ("skipped", "unchanged (run cache)")


def test_a_run_that_changes_nothing_is_one_append_and_executes_nothing(build: GivenBuild) -> None:
    time.sleep(0.03)  # outputs that were written just now are read once more
    build.run()
    ended = build.run()
    assert (ended.status, ended.ran, ended.skipped) == ("succeeded", 0, 3)
    assert build.ran() == ""
    assert build.said == {"a": UNCHANGED, "b": BY_GENERATION, "c": UNCHANGED}
    facts = [one.event for one in build.log.read(f"build_run/p/{ended.run}")]
    assert len(facts) == 3
    assert isinstance(facts[1], StagesDecided)
    manifest = build.manifest(ended.run)
    assert {name: record["status"] for name, record in manifest["stages"].items()} == dict.fromkeys(
        "abc", "skipped"
    )
    assert all(record["input_hash"] for record in manifest["stages"].values())


def test_only_what_depends_on_an_edit_runs_again(build: GivenBuild) -> None:
    build.write("other.txt", "new")
    assert build.run().ran == 1
    assert build.ran() == "c"
    assert build.said["c"] == ("ran", "Input dependencies changed")
    assert build.read("c.txt") == "1new"


def test_a_stage_whose_output_is_the_same_again_stops_the_wave(build: GivenBuild) -> None:
    build.write("in.txt", "1y")  # b reads the first character only
    build.run()
    assert build.ran() == "ab"
    assert build.said["c"][0] == "skipped"
    assert (build.generation("a.txt"), build.generation("b"), build.generation("c.txt")) == (2, 1, 1)


def test_why_a_stage_runs_is_said_in_the_words_of_the_original(build: GivenBuild) -> None:
    text = build.read("pledger-build.toml")
    build.declare(text.partition("\n[params]")[2].join(("[params]", "")).replace("k = 1", "k = 2"))
    build.run()
    assert build.said["b"] == ("ran", "Params changed")
    build.write("pledger-build.toml", build.read("pledger-build.toml").replace("cat in.txt", "cat  in.txt"))
    build.run()
    assert build.said["a"] == ("ran", "Code changed")
    build.write("pledger-build.toml", build.read("pledger-build.toml").replace("c.txt", "d.txt"))
    build.run()
    assert build.said["c"] == ("ran", "Code changed")
    build.run(force=True)
    assert build.said["c"] == ("ran", "forced")


def test_w4_03_a_dependency_that_was_removed_is_noticed(build: GivenBuild) -> None:
    text = build.read("pledger-build.toml")
    build.write("pledger-build.toml", text.replace('["b/", "other.txt"]', '["b/"]'))
    build.run()
    assert build.said["c"] == ("ran", "Input dependencies changed")


def test_w4_02_a_restored_output_has_a_generation_of_its_own(build: GivenBuild) -> None:
    """A, B, and A again: b is never skipped on content that it has not seen."""
    build.write("in.txt", "2x")
    build.run()
    assert build.read("c.txt") == "2o"
    build.write("in.txt", "1x")
    build.ran()
    assert build.run().ran == 0
    assert build.ran() == ""
    assert build.said == dict.fromkeys("abc", FROM_CACHE)
    assert build.read("c.txt") == "1o"
    assert build.generation("a.txt") == 3
    assert build.stage("b").state.generations == {"a.txt": 3}


def test_outputs_that_are_gone_or_edited_are_restored(build: GivenBuild) -> None:
    (build.root / "a.txt").unlink()
    build.write("b/first", "9")
    build.write("b/more", "9")
    assert build.run().status == "succeeded"
    assert build.ran() == ""
    assert build.said["a"] == UNCHANGED
    assert (build.read("a.txt"), build.read("b/first"), build.read("c.txt")) == ("1x", "1", "1o")
    assert not (build.root / "b" / "more").exists()


def test_outputs_that_the_cache_lost_are_made_again(build: GivenBuild) -> None:
    remove(build.root / ".pledger/builds/cache")
    remove(build.root / "b")
    build.run()
    assert build.ran() == "b"
    assert build.said["b"] == ("ran", "outputs missing from cache")


def test_w4_01_outputs_that_a_crash_left_are_not_trusted(build: GivenBuild) -> None:
    build.write("a.txt", "half")  # as a command leaves it that was killed
    assert build.run().ran == 0
    assert build.read("a.txt") == "1x"


def test_what_is_not_cached_is_made_again_when_its_inputs_come_back(build: GivenBuild) -> None:
    build.declare("""
    [stages.a]
    command = "echo a >> ran; cat in.txt > a.txt; cat in.txt > log"
    deps = ["in.txt"]
    outs = ["a.txt", {path = "log", cache = false}]
    """)
    for text in ("1", "2", "1"):
        build.write("in.txt", text)
        build.run()
        assert (build.ran(), build.read("log")) == ("a", text)
    build.run()
    assert build.ran() == ""


def test_an_incremental_output_is_what_the_command_left_before(build: GivenBuild) -> None:
    build.declare("""
    [stages.a]
    command = "cat in.txt >> all"
    deps = ["in.txt"]
    outs = [{path = "all", incremental = true}]
    """)
    for text in "121":
        build.write("in.txt", text)
        build.run()
    assert build.read("all") == "121"  # the run cache knows no incremental outputs


def test_an_executable_output_stays_one(build: GivenBuild) -> None:
    build.declare("""
    [stages.a]
    command = "printf '#!/bin/sh\\\\necho made > b.txt\\\\n' > tool; chmod +x tool"
    outs = ["tool"]
    [stages.b]
    command = "./tool"
    deps = ["tool"]
    outs = ["b.txt"]
    """)
    build.run()
    assert build.read("b.txt") == "made\n"
    (build.root / "tool").chmod(0o644)
    (build.root / "b.txt").unlink()
    assert build.run().ran == 0
    assert os.access(build.root / "tool", os.X_OK)


def test_a_stage_waits_for_what_is_skipped_and_for_what_runs(build: GivenBuild) -> None:
    build.declare("""
    [stages.left]
    command = "cp in.txt left.txt"
    deps = ["in.txt"]
    outs = ["left.txt"]
    [stages.right]
    command = "cp other.txt right.txt"
    deps = ["other.txt"]
    outs = ["right.txt"]
    [stages.both]
    command = "cat left.txt right.txt > both.txt"
    deps = ["left.txt", "right.txt"]
    outs = ["both.txt"]
    """)
    build.run()
    for changed in ("in.txt", "other.txt"):
        build.write(changed, f"new {changed}")
        assert (build.run().ran, build.said["both"][0]) == (2, "ran")
    assert build.read("both.txt") == "new in.txtnew other.txt"


# Failures


def test_a_failed_command_keeps_the_end_of_its_standard_error(build: GivenBuild) -> None:
    text = build.read("pledger-build.toml")
    build.write("pledger-build.toml", text.replace("mkdir -p b;", "echo no luck >&2; exit 3;"))
    ended = build.run()
    assert (ended.status, ended.skipped, ended.failed, ended.not_run) == ("failed", 1, 1, 1)
    reason = "the command ended with exit code 3: no luck"
    assert build.said["b"] == ("failed", reason)
    assert build.said["c"] == ("cancelled", "needs b, which failed")
    state = build.stage("b").state
    assert (state.status, state.reason, state.generations) == ("failed", reason, {"a.txt": 1})
    assert build.generation("b") == 1
    assert build.manifest(ended.run)["stages"]["b"]["reason"] == reason


@pytest.mark.parametrize(
    ("stage", "reason"),
    [
        ('command = "true"\nouts = ["no.txt", "none/"]', "missing outputs: no.txt, none/"),
        ('command = "true"\ndeps = ["no.txt", "in.txt"]', "missing deps: no.txt"),
        ('command = "kill -9 $$"', "the command was killed by SIGKILL"),
        (
            'command = "true"\ncode = ["no.py:f"]',
            "the code no.py:f cannot be read: No such file or directory",
        ),
        (
            'command = "echo more >> in.txt"\ndeps = ["in.txt"]',
            "dependencies changed while it ran: run it again",
        ),
    ],
)
def test_a_stage_fails_with_a_reason(build: GivenBuild, stage: str, reason: str) -> None:
    build.declare(f"[stages.a]\n{stage}")
    ended = build.run()
    assert build.said == {"a": ("failed", reason)}
    assert build.manifest(ended.run)["stages"]["a"]["status"] == "failed"


TWO_WAYS = """
[stages.bad]
command = "false"
outs = ["bad.txt"]
[stages.after]
command = "cp bad.txt after.txt"
deps = ["bad.txt"]
outs = ["after.txt"]
[stages.good]
command = "sleep 0.05; echo good > good.txt"
outs = ["good.txt"]
[stages.last]
command = "cp good.txt last.txt"
deps = ["good.txt"]
outs = ["last.txt"]
"""


def test_keep_going_runs_what_does_not_need_the_failed_stage(build: GivenBuild) -> None:
    build.declare(TWO_WAYS)
    ended = build.run(jobs=1)
    assert (ended.failed, ended.ran) == (1, 0)
    ended = build.run(jobs=1, keep_going=True)
    assert (ended.status, ended.failed, ended.ran, ended.not_run) == ("failed", 1, 2, 1)
    assert build.read("last.txt") == "good\n"


def test_a_dry_run_says_what_would_be_done_and_records_nothing(build: GivenBuild) -> None:
    build.write("in.txt", "3")
    before = build.log.bound()
    ended = build.run(dry_run=True)
    assert (ended.run, ended.ran, ended.not_run) == ("", 0, 3)
    assert build.said["a"] == ("planned", "Input dependencies changed")
    assert build.said["b"] == ("planned", "if a made something else")
    assert build.ran() == ""
    assert build.log.bound() == before


def test_targets_run_with_what_they_need(build: GivenBuild) -> None:
    build.run("b", force=True)
    assert build.ran() == "ab"


def test_stages_that_need_nothing_of_each_other_run_at_once(build: GivenBuild) -> None:
    wait = "touch {0}; until [ -e {1} ]; do sleep 0.01; done; rm -f {1}; echo > {0}.out"
    build.declare(
        f'[stages.x]\ncommand = "{wait.format("x", "y")}"\nouts = ["x.out"]\n'
        f'[stages.y]\ncommand = "{wait.format("y", "x")}"\nouts = ["y.out"]\n'
    )
    assert build.run(jobs=2).ran == 2


# Where the metadata of files deceive


def test_w4_08_a_moved_or_copied_checkout_skips_everything(build: GivenBuild, tmp_path: Path) -> None:
    moved = build.root.rename(tmp_path / "elsewhere")
    again = GivenBuild(build.log, moved)
    assert again.run().skipped == 3
    shutil.copytree(moved, tmp_path / "copy")  # with its modification times, and other inodes
    copied = GivenBuild(build.log, tmp_path / "copy")
    assert copied.run().skipped == 3


def test_a_fresh_checkout_takes_its_outputs_from_a_shared_cache(build: GivenBuild, tmp_path: Path) -> None:
    other = GivenBuild(build.log, tmp_path / "other")
    shutil.copytree(build.root / ".pledger/builds/cache", other.root / ".pledger/builds/cache")
    other.write("in.txt", "1x")
    other.write("other.txt", "o")
    assert other.run().ran == 0
    assert other.read("c.txt") == "1o"


@pytest.mark.parametrize("how", ["write", "copy over"])
def test_w4_10_an_edit_that_keeps_size_and_time_is_noticed(build: GivenBuild, how: str) -> None:
    path = build.root / "in.txt"
    time.sleep(0.03)
    build.run()  # its hash is kept now
    before = path.stat()
    if how == "write":
        path.write_text("2x")
    else:
        build.write("new.txt", "2x")
        os.utime(build.root / "new.txt", ns=(before.st_atime_ns, before.st_mtime_ns))
        with path.open("r+b") as over, (build.root / "new.txt").open("rb") as new:
            shutil.copyfileobj(new, over)
        shutil.copystat(build.root / "new.txt", path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_mtime_ns, after.st_size, after.st_ino) == (
        before.st_mtime_ns, before.st_size, before.st_ino,
    )  # fmt: skip
    build.ran()
    build.run()
    assert build.read("c.txt") == "2o"


def test_w4_10_edits_within_one_timestamp_are_noticed(build: GivenBuild) -> None:
    for number in range(20):
        build.write("in.txt", f"{number % 10}x")
        build.run()
        assert build.read("c.txt") == f"{number % 10}o"


def test_a_clock_that_was_set_back_hides_no_edit(build: GivenBuild) -> None:
    later = time.time_ns() + 3600 * 10**9
    path = build.root / "in.txt"
    for text in ("2x", "3x"):
        path.write_text(text)
        os.utime(path, ns=(later, later))
        build.run()
        assert build.read("c.txt") == f"{text[0]}o"


# Two runners


def test_two_runners_at_once_execute_a_stage_once(build: GivenBuild, dsn: str) -> None:
    """The first one is held in its first stage until the other has come to it."""
    held = "until [ -e go ]; do sleep 0.01; done; cat in.txt"
    build.declare(build.read("pledger-build.toml").partition('"p"\n')[2].replace("cat in.txt", held))
    build.write("in.txt", "7")
    build.write("other.txt", "7")
    with ledger.connect(dsn, actor="other") as log:
        other = GivenBuild.__new__(GivenBuild)
        other.log, other.root, other.events, other.said = log, build.root, [], {}
        runs: list[progress.RunEnded] = []
        threads = [threading.Thread(target=lambda one=one: runs.append(one.run())) for one in (build, other)]
        for thread in threads:
            thread.start()
        end = time.monotonic() + 60
        while not any(one.heard(progress.StageWaiting) for one in (build, other)) and time.monotonic() < end:
            time.sleep(0.01)
        build.write("go", "")
        for thread in threads:
            thread.join()
    assert sorted(build.ran()) == ["a", "b", "c"]
    assert [run.status for run in runs] == ["succeeded"] * 2
    assert sum(run.ran for run in runs) == 3
    assert any(one.heard(progress.StageWaiting) for one in (build, other))


def test_w4_14_a_runner_that_lost_its_claim_records_nothing(build: GivenBuild) -> None:
    build.declare("""
    [stages.a]
    command = "touch begun; until [ -e go ]; do sleep 0.01; done; echo late > a.txt"
    outs = ["a.txt"]
    """)
    running = threading.Thread(target=build.run)
    running.start()
    while not (build.root / "begun").exists():
        time.sleep(0.01)
    with build.log.open(OpenStage, "p", "a") as other:
        other.claim("another runner", take_over=True)
    build.write("go", "")
    running.join()
    assert build.said == {"a": ("failed", "another runner has taken the stage over")}
    assert build.generation("a.txt") == 1
    assert build.stage("a").state.runner == "another runner"


def test_a_stage_without_a_place_for_its_outputs_fails(build: GivenBuild) -> None:
    remove(build.root / ".pledger/builds/cache")
    build.write(".pledger/builds/cache", "a file is in the way")
    ended = build.run(force=True)
    assert ended.status == "failed"
    assert "cache" in build.said["a"][1]
    assert build.stage("a").state.status == "failed"
    assert build.log.load(OpenRun, "p", ended.run).state.status == RunStatus.FAILED
