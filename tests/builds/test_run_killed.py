"""Runners that are killed or interrupted: nothing half is recorded, no command goes on, the next run does."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import psycopg
import pytest

import ledger
from consumers.builds import guard, progress
from consumers.builds.presence import FOLDER
from ledger import Ledger
from ledger.builds import OpenRun, RunStatus, StageStatus

from .given_builds import GivenBuild

STAGES = '''
[stages.first]
command = "echo 1 > first.txt"
outs = ["first.txt"]
[stages.slow]
command = """
trap "echo stopped > stopped; exit 1" TERM
echo half > slow.txt; touch begun
until [ -e go ]; do sleep 0.02; done
echo whole > slow.txt"""
deps = ["first.txt"]
outs = ["slow.txt"]
'''
"""The second stage waits for a file `go` in the middle of its work."""


@pytest.fixture
def build(log: Ledger, tmp_path: Path) -> GivenBuild:
    return GivenBuild(log, tmp_path / "p", STAGES)


@contextmanager
def a_runner(dsn: str, build: GivenBuild) -> Iterator[subprocess.Popen[str]]:
    """A runner in a process of its own, when its second stage has begun."""
    command = [sys.executable, "-m", "tests.builds.runner_process", dsn, str(build.root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            until(lambda: (build.root / "begun").exists())
            yield process
        finally:
            process.kill()


def until(true: Callable[[], object]) -> None:
    """Wait until something is true; for two minutes at most."""
    end = time.monotonic() + 120
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


@contextmanager
def running(build: GivenBuild) -> Iterator[None]:
    """A run in a thread, which ends before the block does."""
    thread = threading.Thread(target=build.run, daemon=True)
    thread.start()
    yield
    until(lambda: not thread.is_alive())


def runs_of(build: GivenBuild) -> list[OpenRun]:
    """All runs, in the order of their streams."""
    names = [info.stream for info in build.log.streams("build_run/p/")]
    return [build.log.load(OpenRun, "p", name.rpartition("/")[2]) for name in names]


def test_a_killed_runner_leaves_nothing_half_and_the_next_run_goes_on_at_once(
    build: GivenBuild, dsn: str, admin_dsn: str
) -> None:
    """It begins while the commands of the killed one still run, and goes on as soon as these are killed."""
    with a_runner(dsn, build) as runner, psycopg.connect(admin_dsn, autocommit=True) as connection:
        with frozen_guard(runner) as thaw:
            runner.send_signal(signal.SIGKILL)
            runner.wait()
            killed = build.stage("slow").state
            assert killed.status == StageStatus.IN_PROGRESS  # claimed, and nothing of an end
            assert build.generation("slow.txt") == 0
            connection.execute(
                "UPDATE ledger.leases SET until = until + interval '1 day'"
            )  # need not run out
            build.write("go", "")
            with running(build):
                until(lambda: build.heard(progress.StageWaiting))
                assert {run.state.status for run in runs_of(build)} == {RunStatus.IN_PROGRESS}
                thaw()
    assert build.said["first"][0] == "skipped"
    assert build.said["slow"] == ("ran", "No previous run")
    assert build.read("slow.txt") == "whole\n"
    assert {run.state.status for run in runs_of(build)} == {RunStatus.INTERRUPTED, RunStatus.COMPLETED}
    assert [*(build.root / FOLDER).iterdir()] == []


def test_outputs_are_not_restored_while_a_command_of_a_killed_runner_may_write_them(
    build: GivenBuild, dsn: str
) -> None:
    build.write("go", "")
    assert build.run().status == "succeeded"
    for name in ("go", "begun"):
        (build.root / name).unlink()
    build.declare(STAGES.replace("echo 1", "echo 2"))
    with a_runner(dsn, build) as runner, frozen_guard(runner) as thaw:
        runner.send_signal(signal.SIGKILL)
        runner.wait()
        build.declare(STAGES)  # with these inputs its outputs are known, and half of them is there
        with running(build):
            until(lambda: build.heard(progress.StageWaiting) or build.heard(progress.RunEnded))
            assert not build.heard(progress.RunEnded)
            build.write("go", "")
            thaw()
    assert build.said["slow"][0] == "skipped"
    assert build.read("slow.txt") == "whole\n"


@contextmanager
def frozen_guard(runner: subprocess.Popen[str]) -> Iterator[Callable[[], None]]:
    """The process that kills a runner's commands, stopped until the function is called, or the block ends."""
    (its,) = [one for one in psutil.Process(runner.pid).children() if one.cmdline()[-1] == guard.__file__]
    its.suspend()
    try:
        yield its.resume
    finally:
        with suppress(psutil.NoSuchProcess):
            its.resume()


def test_a_command_of_a_killed_runner_is_killed_too(build: GivenBuild, dsn: str) -> None:
    with a_runner(dsn, build) as runner:
        runner.send_signal(signal.SIGKILL)
        runner.wait()
        (presence,) = (build.root / FOLDER).glob("[!.]*")
        until(lambda: not locked(presence))
        build.write("go", "")
        time.sleep(0.1)
        assert build.read("slow.txt") == "half\n"


DIES_BEFORE_IT_TELLS = """
import os, signal
from consumers.builds.presence import Presence
from tests.builds.runner_process import main

def dies(presence, line):
    print(line.removeprefix("+"), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

Presence._tell = dies
main()
"""
"""A runner that is killed when it has started a command, and has not yet told the guard of it."""


def test_a_command_of_which_the_guard_knows_nothing_yet_does_not_begin(build: GivenBuild, dsn: str) -> None:
    command = [sys.executable, "-c", DIES_BEFORE_IT_TELLS, dsn, str(build.root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdout is not None
        shell = int(runner.stdout.readline())
    assert runner.returncode == -signal.SIGKILL
    until(lambda: not lives(shell))
    assert not (build.root / "first.txt").exists()


def lives(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False


def locked(path: Path) -> bool:
    """Whether somebody has a lock on a file."""
    with path.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def test_ctrl_c_ends_commands_gracefully_and_is_recorded(build: GivenBuild, dsn: str) -> None:
    with a_runner(dsn, build) as runner:
        runner.send_signal(signal.SIGINT)
        said, _ = runner.communicate(timeout=120)
    assert said == "interrupted\n"
    assert build.read("stopped") == "stopped\n"
    assert build.stage("slow").state.status == StageStatus.READY
    (run,) = runs_of(build)
    assert run.state.status == RunStatus.INTERRUPTED
    assert build.manifest(run.run_id)["stages"]["slow"]["reason"] == "interrupted"
    build.write("go", "")
    assert build.run().ran == 1


def test_a_runner_elsewhere_that_vanished_is_waited_for_until_its_lease_is_over(
    build: GivenBuild, dsn: str, admin_dsn: str
) -> None:
    """As of another machine: its presence is not known here."""
    with a_runner(dsn, build) as runner, psycopg.connect(admin_dsn, autocommit=True) as connection:
        (presence,) = (build.root / FOLDER).glob("[!.]*")
        presence.unlink()
        runner.send_signal(signal.SIGKILL)
        runner.wait()
        build.write("go", "")
        with running(build):
            until(lambda: build.heard(progress.StageWaiting))
            assert build.generation("slow.txt") == 0
            connection.execute("UPDATE ledger.leases SET until = clock_timestamp()")
    assert build.said["slow"] == ("ran", "No previous run")
    assert build.read("slow.txt") == "whole\n"


def test_a_lease_that_the_server_lost_is_made_again_for_its_runner(
    build: GivenBuild, dsn: str, admin_dsn: str
) -> None:
    """The table of leases is empty after a crash of the server; the next runner waits all the same."""
    with a_runner(dsn, build) as runner, ledger.connect(dsn, actor="second") as log:
        with psycopg.connect(admin_dsn, autocommit=True) as connection:
            connection.execute("TRUNCATE ledger.leases")
        second = GivenBuild(log, build.root, STAGES)
        with running(second):
            until(lambda: second.heard(progress.StageWaiting))
            build.write("go", "")
            assert runner.communicate(timeout=120)[0] == "succeeded\n"
    assert second.said["slow"][0] == "skipped"
