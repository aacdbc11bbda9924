"""
One worker, a program of its own: it looks for a strip that is free, claims it in the ledger, does the work.

    python worker.py RUN_FOLDER NAME SEED

Workers choose strips themselves. A claim is an open scope that marks the strip started: if two workers open
it at the same version, one gets StreamConflict and takes the next. The worker ends, after its present strip,
when its standard input is closed, so also when the process that started it dies.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from random import Random
from typing import Final

import archive
from plan import Plan, projection_path, strip_path

import ledger
from ledger import StreamConflict
from ledger.pipelines import LSMChannelId, LSMProjectStateView, LSMStateService, LSMStripId, ProcessingState
from projections.engine.follower import Follower

FREE: Final = (ProcessingState.PENDING, ProcessingState.FAILED)
NEAR: Final = 8
"""The free strips among which a worker chooses by lot, so that two seldom want the same one."""


class Worker:
    """Does what is left of a plan, together with any number of others."""

    def __init__(self, service: LSMStateService, plan: Plan, out: Path, lot: Random) -> None:
        self.service, self.plan, self.out, self.lot = service, plan, out, lot
        self.images = plan.images

    def step(self, seen: LSMProjectStateView) -> bool:
        """Do one thing of those that are open in what was seen of the project; False where there is none."""
        for channel in self.plan.all_channels():
            if self.plan.is_full(seen, channel):
                self.stitch(channel)
                return True
        free = [strip for strip in self.plan.all_strips() if is_free(seen, strip)][:NEAR]
        self.lot.shuffle(free)
        claimed = next(filter(self.claim, free), None)
        if claimed is not None:
            self.process(claimed)
        return bool(free)

    def claim(self, strip: LSMStripId) -> bool:
        """Take a strip, unless another worker was faster: what was seen of it may be out of date."""
        try:
            with self.service.open_strip(strip) as opened:
                if opened.processing_state not in FREE:
                    return False
                opened.mark_started()
        except StreamConflict:
            return False
        return True

    def process(self, strip: LSMStripId) -> None:
        """Compress, check and archive a strip; each step is recorded when it is really done."""
        try:
            self.archive(strip)
        except Exception as error:
            with self.service.open_strip(strip) as opened:
                opened.mark_failed(f"{type(error).__name__}: {error}")
            raise

    def archive(self, strip: LSMStripId) -> None:
        strips = self.plan.strips[strip.slice_id - 1]
        pixels = self.images.strip(strip.slice_id, strip.channel_id, strip.strip_id, strips)
        data = archive.compressed(pixels)
        archive.check(data, pixels)
        with self.service.open_strip(strip) as opened:
            opened.set_compressed()
        archive.store(strip_path(self.out, strip), data)
        with self.service.open_strip(strip) as opened:
            opened.set_archived()
            opened.mark_completed()

    def stitch(self, channel: LSMChannelId) -> None:
        """Make a channel's projection. Several workers may see that it is full; one of them records it."""
        strips = [strip_path(self.out, strip) for strip in self.plan.strips_of(channel)]
        archive.store(projection_path(self.out, channel), archive.projection(strips))
        try:
            with self.service.open_channel(channel) as opened:
                if not opened.mip_stitched:
                    opened.set_mip_stitched()
                    opened.mark_completed()
        except StreamConflict:
            pass  # another worker was faster, and its picture is the same


def is_free(seen: LSMProjectStateView, strip: LSMStripId) -> bool:
    """Whether a strip may be claimed: nobody began it, or an attempt failed."""
    found = seen.get_strip(strip)
    return found is None or found.processing_state in FREE


def ends_with_input() -> threading.Event:
    """Set when standard input is closed."""
    closed = threading.Event()

    def wait() -> None:
        while os.read(0, 1):
            pass
        closed.set()

    threading.Thread(target=wait, daemon=True).start()
    return closed


def main(out: Path, name: str, seed: str) -> None:
    """Work until every channel has its projection."""
    stop = ends_with_input()
    plan = Plan.read(out)
    with ledger.connect(actor=name) as log:
        worker = Worker(LSMStateService(log), plan, out, Random(f"{seed} {name}"))
        news = Follower(log, after=log.bound()).batches(stop)
        while not stop.is_set() and not plan.is_over(seen := worker.service.peek_project(plan.project)):
            if not worker.step(seen):
                next(news, None)  # what is left is in the hands of others: wait until something happens


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
    except (ledger.LedgerError, archive.DamagedStrip, OSError) as wrong:
        sys.exit(f"{sys.argv[2]}: {wrong}")
