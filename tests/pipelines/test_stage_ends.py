"""The end of a flow stage: fenced by the attempt, and never forgotten after an exception."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from ledger import BadInput, ClaimLost, Ledger
from ledger.pipelines import (
    LSMStateService,
    LSMStripId,
    ProcessingState,
    RunDecision,
    complete_stage,
    enter_flow_stage,
    fail_stage,
    flow_stage,
)
from tests.pipelines.crowd import open_elsewhere
from tests.pipelines.recorded_facts import check_heads, recorded, words

STRIP = LSMStripId("p", 1, 0, 2)
STREAM = "lsm.strip/p/1/0/2"
SKIPPED, STARTED, RESTARTED = RunDecision


def test_complete_and_fail_end_the_attempt(service: LSMStateService, log: Ledger) -> None:
    first = enter_flow_stage(service, STRIP)
    fail_stage(service, first, "no focus")
    second = enter_flow_stage(service, STRIP)
    assert (first.number, second.number, second.decision) == (1, 2, STARTED)
    complete_stage(service, second)
    strip = service.read_strip(STRIP)
    assert strip is not None
    assert (strip.succeeded, strip.attempts) == (True, 2)
    assert [e.data for e in log.read(STREAM) if e.topic == "lsm.strip.failed"] == ['{"reason": "no focus"}']


def test_a_repeated_end_of_one_attempt_changes_nothing(service: LSMStateService, log: Ledger) -> None:
    entry = enter_flow_stage(service, STRIP)
    for end in (fail_stage, fail_stage):
        end(service, entry)
    with pytest.raises(ClaimLost):
        complete_stage(service, entry)
    entry = enter_flow_stage(service, STRIP)
    for end in (complete_stage, complete_stage):
        end(service, entry)
    with pytest.raises(ClaimLost):
        fail_stage(service, entry)
    assert words(log, STREAM) == ["created", "started", "failed", "started", "completed"]


def delete(service: LSMStateService) -> None:
    with service.open_project("p") as project:
        project.delete_strip(1, 0, 2)


def delete_and_start(service: LSMStateService) -> None:
    delete(service)
    assert enter_flow_stage(service, STRIP).number == 1  # a new life counts anew


def take_over(service: LSMStateService) -> None:
    assert enter_flow_stage(service, STRIP, force_rerun=True).decision is RESTARTED


def mark(word: str) -> Callable[[LSMStateService], None]:
    def change(service: LSMStateService) -> None:
        with service.open_strip(STRIP) as strip:
            getattr(strip, f"mark_{word}")()

    return change


def undo_and_start(service: LSMStateService) -> None:
    mark("pending")(service)
    assert enter_flow_stage(service, STRIP).decision is STARTED


LOSSES = [take_over, delete, delete_and_start, mark("pending"), undo_and_start]


@pytest.mark.parametrize("end", [complete_stage, fail_stage])
def test_who_lost_the_item_changes_nothing(
    service: LSMStateService, log: Ledger, end: Callable[..., None]
) -> None:
    otherwise = mark("failed" if end is complete_stage else "completed")
    for lose in [*LOSSES, otherwise]:
        delete(service)
        entry = enter_flow_stage(service, STRIP)
        lose(service)
        before, view = recorded(log), service.read_strip(STRIP)
        with pytest.raises(ClaimLost, match="attempt 1 was taken over, ended or undone") as caught:
            end(service, entry)
        assert (caught.value.stream, caught.value.work) == (STREAM, "attempt 1")
        assert recorded(log) == before
        assert service.read_strip(STRIP) == view
    check_heads(log)


def test_what_was_skipped_has_no_end(service: LSMStateService) -> None:
    enter_flow_stage(service, STRIP)
    skipped = enter_flow_stage(service, STRIP)
    for end in (complete_stage, fail_stage):
        with pytest.raises(BadInput, match="was skipped"):
            end(service, skipped)


def test_an_entry_goes_to_another_process_and_ends_only_its_own_item(service: LSMStateService) -> None:
    entry = pickle.loads(pickle.dumps(enter_flow_stage(service, STRIP)))
    enter_flow_stage(service, LSMStripId("p", 1, 0, 3))
    with service.open_channel("p", slice_id=1, channel_id=0) as channel:
        assert entry.held_by(channel.strips[2])
        with pytest.raises(ClaimLost):
            entry.complete(channel.strips[3])
    complete_stage(service, entry)
    with service.open_strip(STRIP) as strip:
        assert not entry.held_by(strip)


# As a block


def test_a_block_completes_its_item(service: LSMStateService, log: Ledger) -> None:
    with flow_stage(service, STRIP) as entry:
        view = service.peek_strip(STRIP)
        assert view is not None
        assert view.processing_state is ProcessingState.RUNNING
    assert entry.decision is STARTED
    with flow_stage(service, STRIP) as again:
        assert again.skipped
    with flow_stage(service, STRIP, force_rerun=True) as forced:
        assert forced.decision is RESTARTED
    assert words(log, STREAM) == ["created", "started", "completed", "started", "completed"]


class Odd(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


ERRORS = [
    (ValueError("folder too small"), "ValueError: folder too small"),
    (KeyError(), "KeyError"),
    (KeyboardInterrupt(), "KeyboardInterrupt"),
    (SystemExit(3), "SystemExit: 3"),
    (NotImplementedError("a\0b \ud800"), "NotImplementedError: a\ufffdb ?"),
    (Odd(), "Odd: (its text raised RuntimeError)"),
    (ValueError("x" * 10_000), "ValueError: " + "x" * 1988),
]


def test_w0_08_nothing_stays_running_after_an_exception(
    service: LSMStateService, caplog: pytest.LogCaptureFixture
) -> None:
    for number, (error, reason) in enumerate(ERRORS):
        ident = LSMStripId("p", 1, 0, number)
        with pytest.raises(type(error)) as caught, flow_stage(service, ident):
            raise error
        assert caught.value is error
        strip = service.read_strip(ident)
        assert strip is not None
        assert (strip.processing_state, strip.reason) == ("failed", reason)
        (logged,) = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
        assert logged == f"{ident}: attempt 1 failed: {reason}"
        caplog.clear()
        assert enter_flow_stage(service, ident).number == 2


def test_an_exception_in_a_skipped_block_is_not_the_items(service: LSMStateService, log: Ledger) -> None:
    enter_flow_stage(service, STRIP)
    with pytest.raises(ZeroDivisionError), flow_stage(service, STRIP):
        _ = 1 / 0
    assert words(log, STREAM) == ["created", "started"]


@pytest.mark.parametrize("lose", LOSSES[:3])
def test_a_block_that_lost_its_item_says_so_at_its_end(
    service: LSMStateService, log: Ledger, lose: Callable[[LSMStateService], None]
) -> None:
    with pytest.raises(ClaimLost), flow_stage(service, STRIP):
        lose(service)
    assert words(log, STREAM)[-1] != "completed"


def test_a_block_that_lost_its_item_and_fails_raises_its_own_error(
    service: LSMStateService, log: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    def lose_and_fail() -> None:
        with flow_stage(service, STRIP):
            take_over(service)
            raise KeyError

    with pytest.raises(KeyError):
        lose_and_fail()
    assert words(log, STREAM) == ["created", "started", "started"]
    assert "its result is discarded" in caplog.messages[-1]


def test_a_failure_that_cannot_be_recorded_is_noted_on_the_error(
    service: LSMStateService, log: Ledger, dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as busy:

        def fail_while_it_is_open_elsewhere() -> None:
            with flow_stage(service, STRIP, timeout_seconds=0.1):
                busy.enter_context(open_elsewhere(dsn))
                raise KeyError

        with pytest.raises(KeyError) as caught:
            fail_while_it_is_open_elsewhere()
    assert "the failure of attempt 1 could not be recorded" in caught.value.__notes__[0]
    assert "could not be recorded" in caplog.messages[-1]
    assert words(log, STREAM) == ["created", "started"]


def test_a_block_may_complete_its_item_itself(service: LSMStateService, log: Ledger) -> None:
    with flow_stage(service, STRIP) as entry, service.open_strip(STRIP) as strip:
        entry.complete(strip)
        strip.set_archived()
    assert words(log, STREAM) == ["created", "started", "completed", "archived"]


def test_work_that_may_be_done_twice_is_warned_of(
    service: LSMStateService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    ways: list[dict[str, bool]] = [{}, {}, {"skip_if_running": False}, {"force_rerun": True}]
    entries = [enter_flow_stage(service, STRIP, **way) for way in ways]
    assert [entry.decision for entry in entries] == [STARTED, SKIPPED, STARTED, RESTARTED]
    assert [entry.takes_over for entry in entries] == [False, False, True, True]
    assert [record.levelname for record in caplog.records] == ["INFO", "INFO", "INFO", "WARNING"]
    assert "work may be done twice" in caplog.messages[-1]
