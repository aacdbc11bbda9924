"""What may happen to one parent and its set, in an order by chance."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

from consumers.jobs.dispatch import outcome_of
from consumers.jobs.fan_in import NAME
from consumers.jobs.operation import OperationResult
from ledger import LedgerError
from ledger.jobs import OpenBatch, OpenJob
from ledger.jobs.dead_letters import redrive
from ledger.log.readers import Positions

from .sets import Sets


class Chaos:
    """Does to one parent what may happen to it, in an order by chance; closes and cascades in between."""

    def __init__(self, sets: Sets, chance: random.Random) -> None:
        self.sets, self.chance = sets, chance
        self.job = sets.jobs.submit("split", max_attempts=9, max_requeues=9)
        self.session: Any = None

    def run(self, steps: int) -> None:
        deeds = (self.dispatch, self.end, self.end, self.end, self.redrive, self.again, self.retry,
                 self.child, self.react, self.restart, self.cascade, self.cancel)  # fmt: skip
        weights = (6, 6, 6, 6, 2, 2, 3, 2, 3, 1, 2, 0.3)
        for _ in range(steps):
            (deed,) = self.chance.choices(deeds, weights)
            with suppress(LedgerError):  # the rules may say no
                deed()

    def dispatch(self) -> None:
        if self.sets.jobs.status(self.job) == "queued":
            self.session = self.sets.claim(self.job)
        if self.session is None:
            return
        ratio = self.chance.choice([1.0, 1.0, 0.4])
        batches, children = self.chance.choice([(3, 0), (2, 1), (0, 2), (1, 0)])
        if self.chance.random() < 0.8:
            self.sets.dispatch(self.session, batches, children, failure_ratio=ratio)
        else:  # its worker vanishes after the batches are there
            messages = [("q", {"operation": "part"})] * batches
            outcome_of(self.session, OperationResult(deferred=True, publish_operations=messages))
        self.session = None

    def members(self) -> list[tuple[str, ...]]:
        numbers = [(self.job, nr) for nr in self.sets.statuses(self.job)]
        return [*numbers, *((child,) for child in self.sets.children(self.job))]

    def end(self) -> None:
        if members := self.members():
            how = self.chance.choice(["complete", "complete", "fail", "fail", "cancel"])
            self.sets.end(how, *self.chance.choice(members), message=self.chance.choice("abc"))

    def redrive(self) -> None:
        """By the command, which refuses a batch whose job is over; a child of such a job would run alone."""
        if members := self.members():
            key = self.chance.choice(members)
            if len(key) == 2:
                redrive(self.sets.log, OpenBatch.name_of(*key))
            elif self.sets.jobs.status(self.job) not in ("failed", "cancelled"):
                redrive(self.sets.log, OpenJob.name_of(*key))

    def again(self) -> None:
        with self.sets.log.open(OpenJob, self.job) as job:
            job.expire()
        self.session = None

    def retry(self) -> None:
        self.sets.jobs.retry(self.job, whole=self.chance.random() < 0.3)

    def child(self) -> None:
        self.sets.jobs.submit("part", parent=self.job)

    def cancel(self) -> None:
        self.sets.jobs.cancel(self.job)

    def react(self) -> None:
        self.sets.fan_in()

    def restart(self) -> None:
        """From the beginning, with an empty memory."""
        Positions(self.sets.log).forget(NAME)
        self.sets.fan_in()

    def cascade(self) -> None:
        self.sets.cascade()
