"""The weaknesses of the origin's guards, milestones and events (spec 1.10), checked on it and here."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from ledger import Ledger
from ledger.pipelines import (
    Ident,
    LSMChannelId,
    LSMStripId,
    OCTBatchId,
    OCTMosaicId,
    OCTSliceId,
    OCTStateService,
    RunDecision,
    enter_flow_stage,
    should_skip_run,
)
from tests.pipelines.sides import Ours, Side, both, doomed, holds

CHANNEL, STRIP, OTHER = LSMChannelId("p", 1, 1), LSMStripId("p", 1, 1, 2), LSMStripId("p", 1, 1, 1)
SLICE, MOSAIC = OCTSliceId("p", 1), OCTMosaicId("p", 1, 1)
WORKERS = 6


# What is done, and who does it.


@both
def test_w0_04_a_channel_with_a_failed_strip_is_not_ready(side: Side) -> None:
    side.compress_strip(OTHER)
    with side.lsm.open_item(STRIP) as strip:
        strip.set_compressed()
        strip.mark_failed()
    side.child_done(STRIP)
    holds(side.announced(CHANNEL) == 0, "the channel is ready, though a strip failed")


@both
def test_w0_04_a_mosaic_with_a_failed_batch_is_not_ready(side: Side) -> None:
    for batch_id, end in ((1, "mark_completed"), (2, "mark_failed")):
        with side.oct.open_item(OCTBatchId("p", 1, 1, batch_id)) as batch:
            getattr(batch, end)()
        side.child_done(OCTBatchId("p", 1, 1, batch_id))
    holds(side.announced(MOSAIC) == 0, "the mosaic is ready, though a batch failed")
    with side.oct.open_item(OCTBatchId("p", 1, 1, 2)) as batch:
        batch.mark_completed()
    side.child_done(OCTBatchId("p", 1, 1, 2))
    assert side.announced(MOSAIC) == 1


def decisions(side: Side, enter: Callable[[Any], RunDecision]) -> list[RunDecision]:
    """What workers are told that have all looked before the first of them acts."""
    with side.lsm.open_item(STRIP):
        pass
    barrier = threading.Barrier(WORKERS, timeout=30)

    def work() -> RunDecision:
        view = side.lsm.peek_item(STRIP)
        barrier.wait()
        return enter(view)

    with ThreadPoolExecutor(WORKERS) as pool:
        return [each.result(timeout=60) for each in [pool.submit(work) for _ in range(WORKERS)]]


@both
def test_w0_07_of_many_workers_one_starts_an_item(side: Side) -> None:
    told = decisions(side, lambda view: side.enter_flow(view, STRIP, skip_if_running=True))
    holds(told.count(RunDecision.STARTED) == 1, f"{told.count(RunDecision.STARTED)} started the same strip")


@both
def test_w0_07_of_many_workers_one_starts_a_milestone(side: Side) -> None:
    told = decisions(side, lambda view: side.enter_milestone(view, STRIP, "compressed"))
    holds(told.count(RunDecision.STARTED) == 1, f"{told.count(RunDecision.STARTED)} started the same work")


@both
def test_w0_08_work_that_raises_anywhere_does_not_stay_running(side: Side) -> None:
    with doomed(side, "process") as process:
        _, error = process.communicate(timeout=60)
    assert "Strip folder is too small" in error
    holds(side.lsm.peek_item(STRIP).processing_state != "running", "nobody works on it, and it runs for ever")
    holds("Strip folder is too small" in "".join(side.told()), "nobody heard of it")


def test_w0_08_what_a_killed_worker_leaves_is_known_and_can_go_on(log: Ledger, dsn: str) -> None:
    """It stays running: that its worker is gone, nobody can know without a lease. The next one is let in."""
    side = Ours(log, dsn)
    with doomed(side, "work") as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "there\n"
        worker.kill()
        assert worker.wait(20) == -signal.SIGKILL
    assert enter_flow_stage(side.lsm, STRIP).decision is RunDecision.SKIPPED
    assert side.history(STRIP)[-1][::2] == ("running", "doomed")
    side.lsm.update_item(STRIP, lambda strip: strip.mark_pending(), timeout_seconds=1)
    assert enter_flow_stage(side.lsm, STRIP).decision is RunDecision.STARTED
    assert side.lsm.peek_item(STRIP).attempts == 2


@both
def test_w0_09_a_mosaic_is_of_one_slice(side: Side) -> None:
    found = {mosaic_id: side.slices_of_mosaic(mosaic_id) for mosaic_id in range(1, 7)}
    holds(all(len(slices) == 1 for slices in found.values()), f"mosaics are of several slices: {found}")
    assert [min(slices) for slices in found.values()] == [1, 1, 2, 2, 3, 3]


@both
def test_w0_10_work_that_decides_to_skip_is_not_done(side: Side) -> None:
    batch = OCTBatchId("p", 1, 1, 1)
    with side.oct.open_item(batch) as opened:
        opened.mark_completed()

    @side.milestone("enface_processed")
    def process(*, ident: Ident) -> RunDecision | None:
        decision = side.enter_flow(side.oct.peek_item(ident), ident)
        return decision if should_skip_run(decision) else None

    process(ident=batch)
    holds(not side.oct.peek_item(batch).enface_processed, "the flag is set, and nothing was done")


@both
def test_w0_17_a_slice_has_milestones(side: Side) -> None:
    @side.milestone("registered")
    def register(*, ident: Ident) -> str:
        return "registered.nii"

    with suppress(TypeError):
        register(ident=SLICE)
    found = side.oct.peek_item(SLICE)
    holds(found is not None and found.registered, "no milestone of a slice can be entered")


@both
def test_w0_18_a_failure_is_told_by_itself(side: Side) -> None:
    @side.milestone("compressed")
    def compress(*, ident: Ident) -> None:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        compress(ident=STRIP)
    holds("the disk is full" in "".join(side.told()), "nobody was told that the strip failed")


# What others hear.


@both
def test_w0_11_what_is_announced_is_stored(side: Side) -> None:
    """Killed on the way from the one to the other."""
    with doomed(side, "register") as process:
        assert process.wait(60) == -signal.SIGKILL
    found = side.oct.peek_item(SLICE)
    stored = found is not None and found.registered
    holds(side.announced(SLICE) == int(stored), "a registered slice is announced that is not registered")


@both
def test_w0_11_what_is_stored_is_announced(side: Side) -> None:
    """Killed between the last strip and the event; whoever goes on then has nothing else to do."""
    side.compress_strip(OTHER)
    with doomed(side, "compress") as process:
        assert process.wait(60) == -signal.SIGKILL
    assert side.lsm.peek_item(STRIP).compressed
    holds(side.announced(CHANNEL) == 1, "the channel is complete, and nobody hears of it")


@both
def test_w0_12_what_is_ready_is_announced_once(side: Side) -> None:
    side.compress_strip(OTHER)
    side.compress_strip(STRIP)
    assert side.announced(CHANNEL) == 1
    with side.lsm.open_item(STRIP) as strip:
        strip.set_uploaded()
        strip.mark_completed()
    side.child_done(STRIP)
    side.compress_strip(OTHER)
    holds(side.announced(CHANNEL) == 1, f"the channel became ready {side.announced(CHANNEL)} times")


def test_w0_09_a_slice_that_is_given_wins(log: Ledger) -> None:
    with OCTStateService(log).open_mosaic_by_parts("p", mosaic_id=3, slice_id=7) as mosaic:
        assert mosaic.slice_id == 7
