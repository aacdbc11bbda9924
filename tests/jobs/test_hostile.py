"""Nothing that an operation does hurts its worker or another job: it fails clearly, and the next one runs."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from consumers.jobs.messages import Stopped, UnknownHere
from consumers.jobs.sandbox.slot import Slot
from ledger import BadBody, Ledger
from ledger.jobs import Jobs
from tests.jobs.conftest import working
from tests.jobs.slots import PLACE, failure, lives, outcome, ready, run, success, task, until


@pytest.fixture(scope="module")
def _slot() -> Iterator[Slot]:
    slot = Slot(PLACE, {})
    yield slot
    slot.close()


@pytest.fixture
def slot(_slot: Slot) -> Iterator[Slot]:
    """A slot that runs the next job, whatever the test did to it."""
    yield _slot
    assert success(_slot, "ping")["pid"] > 0


@pytest.mark.parametrize(
    ("operation", "code", "message"),
    [
        ("raises_system_exit", "SystemExit", "0"),
        ("raises_keyboard_interrupt", "KeyboardInterrupt", ""),
        ("raises_generator_exit", "GeneratorExit", ""),
        ("raises_mute", "Mute", "no text: its __str__ raised SystemExit"),
        ("raises_nul", "ValueError", "a\ufffdb?c"),
        ("puts_off_for_ever", "RetryLaterError", "for ever"),
    ],
)
def test_what_is_raised_fails_the_job(slot: Slot, operation: str, code: str, message: str) -> None:
    broken = failure(slot, operation)
    assert broken.error_code == code
    assert broken.message.startswith(message)
    assert f"{code}" in broken.details["traceback"]
    assert not broken.transient


def test_what_its_process_does_not_know_is_told_apart_from_what_failed(slot: Slot) -> None:
    slot.run(task("unheard_of"))
    said = outcome(slot)
    assert isinstance(said, UnknownHere)
    assert said.reason.startswith("Unknown operation: 'unheard_of'")


def test_a_text_without_bounds_is_cut(slot: Slot) -> None:
    broken = failure(slot, "raises_long")
    assert broken.message.endswith("(29900000 characters more)")
    assert len(broken.message) < 101_000


@pytest.mark.parametrize(
    ("operation", "details", "message"),
    [
        ("exits_well", {"exit_code": 0, "output": "so long\n"}, "ended with exit code 0"),
        ("exits_badly", {"exit_code": 3}, "ended with exit code 3"),
        ("kills_itself", {"signal": signal.SIGKILL}, "ended by signal SIGKILL (sent by somebody"),
    ],
)
def test_a_process_that_ends_fails_the_job(
    slot: Slot, operation: str, details: dict[str, Any], message: str
) -> None:
    broken = failure(slot, operation)
    assert (broken.error_code, dict(broken.details)) == ("ProcessDied", details)
    assert message in broken.message


def test_a_crash_says_where(slot: Slot) -> None:
    broken = failure(slot, "crashes")
    assert broken.details["signal"] == signal.SIGSEGV
    assert "in crashes" in broken.details["output"]


def test_what_hangs_and_minds_no_signal_is_ended_in_time(slot: Slot, tmp_path: Path) -> None:
    began = time.monotonic()
    broken = failure(slot, "hangs", {"here": str(tmp_path / "pid")}, timeout_seconds=0.3)
    assert broken.error_code == "JobTimeout"
    assert dict(broken.details) == {"timeout_seconds": 0.3}
    assert time.monotonic() - began < 20
    assert not lives(int((tmp_path / "pid").read_text()))


@pytest.mark.parametrize("then", ["return", "exit", "hang"])
def test_what_it_left_running_ends_with_it(slot: Slot, tmp_path: Path, then: str) -> None:
    """Also what ignores SIGTERM, keeps the pipes open, or left its session and lost its parent."""
    here = tmp_path / "pids"
    ready(slot).run(task("leaves_a_daemon", {"here": str(here), "then": then}))
    pids = until(lambda: here.exists() and here.read_text().split(), "it does not begin")
    if then == "hang":
        slot.kill()
        assert isinstance(outcome(slot), Stopped)
    else:
        outcome(slot)
    ready(slot)
    left = [int(pid) for pid in pids]
    until(lambda: not any(map(lives, left)), f"{[pid for pid in left if lives(pid)]} are left", 10)


def test_a_process_that_comes_back_twice_answers_once(slot: Slot) -> None:
    assert success(slot, "comes_back_twice") == {"forked": False}


def test_what_it_changed_is_put_back(slot: Slot) -> None:
    before = success(slot, "how_it_is")
    run(slot, "changes_everything")
    assert success(slot, "how_it_is", {"seconds": 0.06}) == before, "its alarm has not killed this one either"


@pytest.mark.parametrize("operation", ["leaves_threads", "closes_its_output", "ends"])
def test_a_process_that_cannot_be_put_right_runs_nothing_else(slot: Slot, operation: str) -> None:
    before = success(slot, "how_it_is")
    run(slot, operation)
    after = success(slot, "how_it_is")
    assert after["pid"] != before["pid"]
    assert after["threads"] == before["threads"]


def test_it_may_use_multiprocessing(slot: Slot) -> None:
    assert success(slot, "multiplies") == {"squares": [1, 2, 3]}


@pytest.mark.parametrize(
    ("operation", "why"),
    [
        ("closes_everything", "the operation closed the pipe that is for its process's answers"),
        ("closes_and_opens", "the operation closed the pipe that is for its process's answers"),
        ("writes_everywhere", "the operation wrote to the pipe that is for its process's answers"),
    ],
)
def test_the_pipe_is_not_trusted(slot: Slot, tmp_path: Path, operation: str, why: str) -> None:
    broken = failure(slot, operation, {"here": str(tmp_path / "file")})
    assert (broken.error_code, broken.message) == ("ProcessDied", why)
    assert not (tmp_path / "file").exists() or (tmp_path / "file").read_text() == ""


def test_it_may_print_without_end(slot: Slot, capfd: pytest.CaptureFixture[str]) -> None:
    megabytes = 30
    broken = failure(slot, "prints", {"megabytes": megabytes})
    assert broken.error_code == "ArithmeticError"
    assert broken.details["output"].endswith("x\nthe end\n")
    assert len(broken.details["output"]) == 2000
    success(slot, "ping")
    shown = capfd.readouterr().err
    assert 200_000 < len(shown) < 300_000
    assert "more was printed" in shown


@pytest.mark.slow
def test_a_gigabyte_is_printed_in_bounded_memory(slot: Slot) -> None:
    before = int(Path("/proc/self/statm").read_text().split()[1])
    failure(slot, "prints", {"megabytes": 1000})
    after = int(Path("/proc/self/statm").read_text().split()[1])
    assert (after - before) * os.sysconf("SC_PAGESIZE") < 32 * 2**20


def test_memory_has_a_limit() -> None:
    slot = Slot(PLACE, {}, memory_mb=400)
    try:
        broken = failure(slot, "allocates")
        assert broken.error_code == "MemoryError"
        assert "in allocates" in broken.details["traceback"]
        success(slot, "ping")
    finally:
        slot.close()


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("nan", "BadBody"),
        ("nul", "BadBody"),
        ("bytes", "BadBody"),
        ("surrogate", "BadBody"),
        ("deep", "BadBody"),
        ("object", "BadBody"),
        ("lock", "BadBody"),
        ("key", "BadBody"),
        ("large", "BadBody"),
        ("odd", "SystemExit"),
        ("list", "TypeError"),
        ("dict", "TypeError"),
        ("text", "TypeError"),
        ("progress", "ValueError"),
        ("half", "TypeError"),
    ],
)
def test_what_cannot_be_kept_fails_the_job(slot: Slot, what: str, code: str) -> None:
    assert failure(slot, "returns", {"what": what}).error_code == code


def test_what_can_be_kept_is(slot: Slot) -> None:
    assert success(slot, "returns", {"what": "big"}) == {"n": 2**70}
    assert success(slot, "returns", {"what": "tuple"}) == {"n": [1, 2]}


def test_payloads_of_any_size_are_taken_and_what_cannot_be_kept_is_refused(slot: Slot, log: Ledger) -> None:
    assert success(slot, "ping", {"text": "x" * 2**20})["pid"] > 0
    with pytest.raises(BadBody, match="NUL"):
        Jobs(log).submit("ping", {"text": "a\x00"})
    assert log.head("job/1") is None


def test_a_worker_goes_on_through_all_of_it(log: Ledger) -> None:
    """End to end: what came of each is recorded, the lease of a neighbour is not lost meanwhile."""
    jobs = Jobs(log)
    neighbour = jobs.submit("how_it_is", {"seconds": 1.0})
    bad = {
        name: jobs.submit(name, {"megabytes": 5}, timeout_seconds=10)
        for name in (
            "exits_well",
            "crashes",
            "closes_everything",
            "writes_everywhere",
            "prints",
            "raises_mute",
        )
    }
    hung = jobs.submit("waits", timeout_seconds=0.2)
    large = jobs.submit("ping", {"text": "x" * 2**20})
    odd = jobs.submit("says_odd")
    bad["hands_out_odd"] = jobs.submit("hands_out_odd")
    with working(log, PLACE, lease_seconds=0.6) as at_work:
        statuses = jobs.wait(neighbour, odd, large, hung, *bad.values(), seconds=30)
    assert at_work.error is None
    assert statuses == dict.fromkeys([neighbour, odd, large], "succeeded") | dict.fromkeys(
        [hung, *bad.values()], "failed"
    )
    codes = {name: jobs.get(id).error_code for name, id in bad.items()}
    assert codes == dict.fromkeys(bad, "ProcessDied") | {
        "prints": "ArithmeticError", "raises_mute": "Mute", "hands_out_odd": "BadInput"
    }  # fmt: skip
    assert jobs.get(hung).error_code == "JobTimeout"
    assert jobs.get(neighbour).attempt == 1
    (failed,) = (event.event for event in jobs.events(bad["exits_well"]) if event.topic == "job.failed")
    assert failed.details == {"exit_code": 0, "output": "so long\n"}
