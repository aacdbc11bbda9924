"""Racing workers: nothing has two live owners, no limit is passed, nobody's claim is changed by others."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import Any

import pytest

import ledger
from consumers.jobs.claim import Claim, LogOffers
from consumers.jobs.messages import Failed, Outcome, RetryLater, Succeeded
from consumers.jobs.record import Part, Recorder, claim_part, outcome_part
from ledger import Ledger, StreamConflict
from ledger.errors import ClaimLost, MoveNotAllowed
from ledger.jobs import Jobs, OpenJob
from projections.engine.projector import Projector, views_named
from projections.shipped import load

LIMIT = 2
ENDS = (
    "succeeded",
    "failed",
    "attempt_failed",
    "retry_later",
    "released",
    "lease_expired",
    "lease_expired_requeue",
)


class Racer:
    """A worker without processes: its operations take no time, or are held until the claim may be over."""

    def __init__(self, dsn: str, number: int, stop: threading.Event) -> None:
        self.log = ledger.connect(dsn, actor=f"racer {number}")
        self.name, self.stop, self.random = f"racer {number}", stop, random.Random(number)
        self.offers = LogOffers(self.log, self.name, None, 30)
        self.recording = Recorder(self.log, self.name)

    def run(self) -> None:
        """Take, claim and end, some of it late, until it shall stop."""
        held: list[Claim] = []
        over: list[tuple[str, int]] = []
        with self.log:
            while not self.stop.is_set():
                taken = [one for one in self.offers.take(self.random.randint(1, 4), over) if one.due]
                ends = [claim for claim in held if self.random.random() < 0.6]
                held = [claim for claim in held if claim not in ends]
                parts = [outcome_part(claim, self._outcome(claim)) for claim in ends]
                claims = [claim_part(one, self.name) for one in taken]
                self.recording.record(parts + claims)
                held += [part.claim for part in claims if part.recorded]
                over = [_known(part) for part in parts + claims if part.outcome or not part.recorded]

    def _outcome(self, claim: Claim) -> Outcome:
        known = {"stream": claim.work.name, "token": claim.token}
        kinds: list[Outcome] = [
            Succeeded(**known), RetryLater(**known, reason="busy", delay_seconds=0),
            Failed(**known, error_code="E"),
        ]  # fmt: skip
        return self.random.choices(kinds, [8, 1, 1])[0]


def _known(part: Part) -> tuple[str, int]:
    return part.claim.work.name, part.claim.token


def disturb(dsn: str, ids: list[str], stop: threading.Event) -> None:
    """A reaper that takes claims for lost at random, and somebody who cancels."""
    by_chance = random.Random(0)
    with ledger.connect(dsn, actor="disturber") as log:
        while not stop.wait(0.005):
            try:
                with log.open(OpenJob, by_chance.choice(ids)) as job:
                    if job.state.token is not None and job.state.operation != "narrow":
                        job.expire() if by_chance.random() < 0.8 else job.cancel()
            except (StreamConflict, ClaimLost, MoveNotAllowed):
                continue


def race(log: Ledger, dsn: str, racers: int, jobs: int, seconds: float) -> None:
    """Let racers run jobs until all are over, or the time is; then hold the log against the law."""
    submitting = Jobs(log)
    submitting.limit("narrow", concurrency=LIMIT)
    many = {"max_attempts": 50, "max_requeues": 50}
    ids = [submitting.submit("narrow" if n % 4 == 0 else "wide", **many) for n in range(jobs)]
    stop = threading.Event()
    load()
    threads = [threading.Thread(target=Racer(dsn, n, stop).run) for n in range(racers)]
    threads.append(threading.Thread(target=disturb, args=[dsn, ids, stop]))
    deadline = time.monotonic() + seconds
    with Projector(log, views_named(["work"])) as projector:
        projector.wait_for(log.bound())
        for thread in threads:
            thread.start()
        while time.monotonic() < deadline and "queued" in map(submitting.status, ids):
            time.sleep(0.05)
        stop.set()
        for thread in threads:
            thread.join()
    hold_against_the_law(log)
    statuses = Counter(map(submitting.status, ids))
    assert statuses["succeeded"] > jobs // 4, statuses


def hold_against_the_law(log: Ledger) -> None:
    """An oracle of its own over the log: every claim is of a job that waits, and ends before the next one."""
    owner: dict[str, int] = {}
    operation: dict[str, str] = {}
    narrow = 0
    for event in log.log(0, log.bound(), 2**40):
        kind, _, word = event.topic.partition(".")
        if kind != "job":
            continue
        fact: Any = event.event
        narrow -= event.stream in owner and operation[event.stream] == "narrow"
        match word:
            case "created":
                operation[event.stream] = fact.operation
            case "started":
                assert event.stream not in owner, f"{event.stream} has two owners at {event.position}"
                assert fact.token == event.version
                owner[event.stream] = fact.token
            case "cancelled":
                owner.pop(event.stream, None)
            case _ if word in ENDS:
                assert owner.pop(event.stream) == fact.token
            case "late_result":
                assert owner.get(event.stream) != fact.token
            case _:
                raise AssertionError(word)
        narrow += event.stream in owner and operation[event.stream] == "narrow"
        assert narrow <= LIMIT, f"{narrow} at once at {event.position}"


def test_racing_workers(log: Ledger, dsn: str) -> None:
    """Given racing workers, expiries and cancels at random, then no claims overlap, and limits hold."""
    race(log, dsn, racers=3, jobs=40, seconds=2.0)


@pytest.mark.slow
def test_racing_workers_for_long(log: Ledger, dsn: str, minutes: float) -> None:
    """The same, with many more of all."""
    race(log, dsn, racers=8, jobs=int(20_000 * minutes), seconds=minutes * 60)
