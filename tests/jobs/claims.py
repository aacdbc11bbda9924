"""Claims without a worker: taken, started, and left alone, so that a test says when each thing happens."""

from __future__ import annotations

from typing import Any

import psycopg

from consumers.jobs.claim import Claim, LogOffers, Offer
from consumers.jobs.messages import Outcome
from consumers.jobs.record import Recorder, outcome_part
from ledger import Ledger
from ledger.jobs import OpenBatch, OpenJob
from ledger.jobs.leases import Leases
from projections.engine.projector import Projector, views_named
from projections.shipped import load

Connection = psycopg.Connection[Any]
WORKER = {"host": "h", "pid": 1, "queues": None, "operations": ["ping"], "slots": 1, "busy": 0,
          "draining": False, "done": 0}  # fmt: skip
LONG_AGO = "UPDATE ledger.leases SET until = until - interval '1 hour'"


def shown(log: Ledger) -> None:
    """Bring the view of work up to the end of the log."""
    load()
    Projector(log, views_named(["work"])).catch_up()


def take(log: Ledger, worker: str = "w", most: int = 100, seconds: float = 60) -> list[Offer]:
    """Leases on what waits, not claimed yet."""
    shown(log)
    return LogOffers(log, worker, None, seconds).take(most)


def claim(log: Ledger, worker: str = "w", most: int = 100, seconds: float = 60) -> list[Offer]:
    """Claims on what waits."""
    taken = [one for one in take(log, worker, most, seconds) if one.due]
    for one in taken:
        one.work.start(worker)
    log.commit(*(one.work for one in taken))
    return taken


def claim_one(log: Ledger, worker: str = "w") -> Offer:
    """The claim on the only piece that waits."""
    (one,) = claim(log, worker)
    return one


def dispatched(log: Ledger, job: str, batches: int, ratio: float = 1.0) -> None:
    """Let a claimed job hand out batches, and be over itself."""
    with log.open(OpenJob, job) as parent:
        under = parent.begin_dispatch()
    for nr in range(1, batches + 1):
        with log.open(OpenBatch, job, OpenBatch.number(under, nr)) as batch:
            batch.queue(under, "ping", "default")
    with log.open(OpenJob, job) as parent:
        parent.dispatch(batches, failure_ratio=ratio)


def topics(log: Ledger, stream: str) -> list[str]:
    """The topics of a stream, without their category."""
    return [event.topic.partition(".")[2] for event in log.read(stream)]


def end(log: Ledger, claimed: Offer, outcome: Outcome) -> None:
    """Record what came of a claim, and give its lease back, as its worker does."""
    Recorder(log, "w").record([outcome_part(Claim(claimed.work, claimed.token), outcome)])
    Leases(log).release([(claimed.work.name, claimed.token)])
