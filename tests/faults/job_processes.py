"""Processes that work on jobs: `python -m tests.faults.job_processes worker|services DSN LEASE`."""

from __future__ import annotations

import logging
import os
import random
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import ledger
from consumers.jobs import Worker
from consumers.jobs.cascade import cascade
from consumers.jobs.claim import LogOffers, Offer
from consumers.jobs.fan_in import fan_in
from consumers.jobs.reaper import Reaper
from consumers.service import Service
from ledger import AppendUncertain, Ledger, ServerUnavailable
from ledger.log.append import Append, Appended
from tests.faults import job_operations

LEASE = float(sys.argv[3])
"""Seconds that a lease holds."""


class Repeating:
    """Offers that come again: what was taken is sometimes handed out a second time, after it was over."""

    def __init__(self, offers: LogOffers) -> None:
        self.offers = offers
        self.given: dict[tuple[str, int], Offer] = {}
        self.again: list[Offer] = []

    def take(self, limit: int, over: Sequence[tuple[str, int]] = ()) -> list[Offer]:
        """Fresh offers, and at most one of old."""
        self.again += [self.given.pop(one) for one in over if one in self.given][:1000]
        old = []
        if limit > 0 and self.again and random.random() < 0.2:
            old = [self.again.pop(random.randrange(len(self.again)))]
        taken = self.offers.take(limit - len(old), over)
        old = [one for one in old if one.work.name not in {fresh.work.name for fresh in taken}]
        for one in taken:
            self.given[one.work.name, one.token] = copied(one)
        return random.sample([*taken, *old], len(taken) + len(old))

    def release(self, over: Sequence[tuple[str, int]]) -> None:
        """As LogOffers."""
        self.offers.release(over)


def copied(one: Offer) -> Offer:
    """The same offer, with a stream object of its own."""
    work = type(one.work)(*one.work.key)
    work.restore(one.work.state, one.work.version)
    return one._replace(work=work)


def lose_answers() -> None:
    """Of an append of the worker's the answer is lost now and then: it was recorded, and nobody knows."""
    append_all = Ledger.append_all

    def lost(self: Ledger, appends: list[Append], *, command: str | None = None, **meta: Any) -> Appended:
        appended = append_all(self, appends, command=command, **meta)
        if command is None and job_operations.unlucky(0.01):
            raise AppendUncertain("the answer was lost")
        return appended

    Ledger.append_all = lost  # type: ignore[method-assign]


def work(log: Ledger) -> None:
    """A worker."""
    lose_answers()
    name = f"worker {os.getpid()}"
    offers = Repeating(LogOffers(log, name, None, LEASE))
    Worker(
        log, "tests.faults.job_operations:registry", concurrency=3, name=name, lease_seconds=LEASE,
        grace_seconds=0.5, offers=offers, services=False,
    ).run()  # fmt: skip


def serve(log: Ledger) -> None:
    """What closes parents, passes cancels on, and rescues."""
    reaper = Reaper(log, every=0.2, grace_seconds=LEASE, stall_seconds=20, silent_seconds=5)
    made = {
        "fan_in": lambda: fan_in(log).run,
        "cascade": lambda: cascade(log).run,
        "reaper": lambda: reaper.run,
    }
    with ExitStack() as stack:
        for name, make in made.items():
            stack.enter_context(Service(name, make))  # type: ignore[arg-type]
        while True:
            time.sleep(1)


def main() -> None:
    """Work for ever; a server that is away when it begins is waited for."""
    logging.disable()
    while True:
        try:
            with ledger.connect(sys.argv[2], create=False, timeout=10) as log:
                print("ready", flush=True)
                {"worker": work, "services": serve}[sys.argv[1]](log)
        except ServerUnavailable:
            time.sleep(0.05)


if __name__ == "__main__":
    main()
