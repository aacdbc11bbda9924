"""A slot: begins and replaces its process, tells it to stop, ends it; no process outlives its worker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from consumers.jobs.messages import Succeeded
from consumers.jobs.sandbox.fork_server import ForkServer, shared
from consumers.jobs.sandbox.slot import Slot
from ledger import BadInput
from tests.jobs.slots import PLACE, lives, outcome, ready, run, stopped, success, task, until

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def slot() -> Iterator[Slot]:
    slot = Slot(PLACE, {})
    yield slot
    slot.close()


def test_a_process_runs_many_tasks(slot: Slot) -> None:
    assert len({success(slot, "ping")["pid"] for _ in range(20)}) == 1


def test_a_slot_is_free_only_without_a_task(slot: Slot) -> None:
    ready(slot).run(task("ping"))
    assert not slot.free
    outcome(slot)
    assert slot.free


def test_an_operation_is_told_to_stop(slot: Slot) -> None:
    ready(slot).run(task("waits"))
    slot.request_stop("it was cancelled")
    slot.request_stop("again")
    assert stopped(slot) == "it was cancelled"


def test_a_stop_that_comes_late_does_not_stop_the_next(slot: Slot) -> None:
    ready(slot).run(task("ping"))
    until(slot.pipe.poll, "it does not answer")
    slot.request_stop("too late")
    assert isinstance(outcome(slot), Succeeded)
    slot.request_stop("nobody runs")
    slot.run(task("how_it_is", {"seconds": 0.02}))
    assert isinstance(outcome(slot), Succeeded)


def test_a_killed_slot_has_stopped_and_goes_on(slot: Slot) -> None:
    before = success(slot, "ping")["pid"]
    ready(slot).run(task("waits"))
    slot.kill()
    assert not lives(before)
    assert stopped(slot) == "it was ended"
    assert success(slot, "ping")["pid"] != before


def test_a_task_with_a_timeout_is_overdue_after_it(slot: Slot) -> None:
    ready(slot).run(task("waits", timeout_seconds=0.05))
    assert not slot.overdue()
    until(slot.overdue, "it is never overdue")
    slot.kill()
    assert failure_code(slot) == "JobTimeout"
    assert not slot.overdue()


def failure_code(slot: Slot) -> str:
    found = outcome(slot)
    return str(getattr(found, "error_code", found))


def test_a_process_that_dies_without_a_task_is_replaced(slot: Slot) -> None:
    before = success(slot, "ping")["pid"]
    os.kill(before, signal.SIGKILL)
    until(slot.pipe.poll, "its end is not seen")
    assert slot.free, "nobody has asked it yet"
    assert success(slot, "ping")["pid"] != before


def test_it_is_as_its_worker_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    slot = Slot(PLACE, {})
    try:
        assert success(slot, "how_it_is")["folder"] == str(tmp_path)
    finally:
        slot.close()


# What cannot begin


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("import no_such_module_at_all\n", "BadInput: .*No module named 'no_such_module_at_all'"),
        ("raise SystemExit('not today')\n", "SystemExit: not today"),
        ("1 / 0\n", "ZeroDivisionError: division by zero"),
        (
            "import os, sys\nprint('dies', flush=True)\nos._exit(4)\n",
            "3 .* exit code 4 .* they printed: dies",
        ),
    ],
)
def test_a_registry_that_cannot_be_used_is_no_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, wrong: str
) -> None:
    (tmp_path / "unusable.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    slot = Slot("unusable:registry", {})
    try:
        with pytest.raises(BadInput, match=f"(?s){wrong}"):
            ready(slot)
    finally:
        slot.close()


# The fork server


@pytest.fixture(scope="module")
def spawning() -> Iterator[ForkServer]:
    fork_server = ForkServer(forks=False)
    yield fork_server
    fork_server.close()


def test_a_child_may_begin_anew_instead_of_being_forked(spawning: ForkServer) -> None:
    """As on macOS."""
    slot = Slot(PLACE, {}, fork_server=spawning)
    try:
        assert success(slot, "ping")["pid"] > 0
        ready(slot).run(task("waits"))
        slot.request_stop("enough")
        assert stopped(slot) == "enough"
    finally:
        slot.close()


def test_without_its_fork_server_a_slot_finds_another_one() -> None:
    slot = Slot(PLACE, {})
    try:
        before = success(slot, "ping")["pid"]
        first = shared()
        os.kill(first.pid, signal.SIGKILL)
        until(slot.pipe.poll, "its child lives on")
        assert success(slot, "ping")["pid"] != before
        assert shared() is not first
    finally:
        slot.close()


WORKER = """
import json, sys
from tests.jobs.slots import PLACE, ready, run, success, task
from consumers.jobs.sandbox.slot import Slot
slots = [Slot(PLACE, {}) for _ in range(3)]
idle = success(slots[0], "ping")["pid"]
ready(slots[1]).run(task("hangs", {"here": sys.argv[1] + "/hangs"}))
ready(slots[2]).run(task("leaves_a_daemon", {"here": sys.argv[1] + "/daemon", "then": "hang"}))
from consumers.jobs.sandbox.fork_server import shared
print(json.dumps([idle, shared().pid]), flush=True)
sys.stdin.read()
"""


def test_no_process_outlives_a_killed_worker(tmp_path: Path) -> None:
    """Idle, hung in C with the interpreter held, and what a child left in a session of its own."""
    command = [sys.executable, "-c", WORKER, str(tmp_path)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdout is not None
        pids = json.loads(worker.stdout.readline())
        for name in ("hangs", "daemon"):
            here = tmp_path / name
            pids += until(lambda: here.exists() and here.read_text().split(), f"{name} does not begin")  # noqa: B023
        assert all(lives(int(pid)) for pid in pids)
        worker.kill()
    until(lambda: not any(lives(int(pid)) for pid in pids), "a process outlives its worker", 20)


def test_a_child_begins_fast_and_a_task_takes_little(slot: Slot) -> None:
    """Bounds with room for a busy machine: measured at 20 ms and 200 µs there."""
    ready(slot)
    began = time.process_time()
    for _ in range(200):
        run(slot, "ping")
    assert (time.process_time() - began) / 200 < 0.005
