"""The view of work: what is nominated, in which order, and what is not."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from consumers.jobs.claim import LogOffers, Offer
from consumers.jobs.record import Recorder, claim_part
from ledger import Ledger
from ledger.jobs import Jobs, OpenBatch, OpenJob
from ledger.jobs.leases import Leases
from projections.engine.check import ViewCheck
from projections.engine.projector import Projector, views_named
from projections.shipped import load
from projections.verify import verify
from projections.verify.difference import Difference

Connection = psycopg.Connection[Any]
ROWS = "SELECT stream, ready, delayed, queue, operation, parent FROM ledger_views.work ORDER BY position"


@pytest.fixture
def projector(log: Ledger) -> Projector:
    load()
    made = Projector(log, views_named(["work"]))
    made.catch_up()
    return made


class Taker:
    """Somebody who takes and claims."""

    def __init__(self, log: Ledger, projector: Projector, name: str, **options: Any) -> None:
        self.log, self.projector, self.name = log, projector, name
        self.offers = LogOffers(log, name, options.get("queues"), options.get("seconds", 60))

    def take(self, most: int = 10, over: list[tuple[str, int]] | None = None) -> list[Offer]:
        self.projector.catch_up()
        return self.offers.take(most, over or [])

    def claim(self, most: int = 10) -> list[str]:
        taken = self.take(most)
        Recorder(self.log, self.name).record([claim_part(one, self.name) for one in taken])
        return [str(one.work.key[0]) for one in taken]


def test_the_urgent_and_then_the_old_come_first(log: Ledger, projector: Projector) -> None:
    """Given jobs of many priorities and queues, then they are taken in order, each once, as they are."""
    jobs = Jobs(log)
    first, second = jobs.submit("a", {"n": 1}), jobs.submit("b", queue="other")
    urgent, third = jobs.submit("c", priority=5), jobs.submit("a")
    one, other = Taker(log, projector, "one", queues=["default"]), Taker(log, projector, "other")
    taken = one.take(2)
    assert [str(work.work.key[0]) for work in taken] == [urgent, first]
    assert taken[1].payload == '{"n": 1}'
    assert taken[1].token == 2
    assert taken[1].due
    assert taken[1].work.state == log.load(OpenJob, first).state
    assert other.claim() == [second, third]  # what is leased is left out
    assert one.take() == []
    # what is given back may be taken at once; and a lease that is over is none
    assert one.take(10, [(work.work.name, work.token) for work in taken])[0].work.key[0] == urgent
    brief = Taker(log, projector, "brief", seconds=0.0)
    assert brief.take() == []
    Leases(log).release([(OpenJob.name_of(first), 2)])
    assert len(brief.take()) == 1
    assert len(brief.take()) == 1


def test_what_waits_is_not_taken(log: Ledger, projector: Projector, connection: Connection) -> None:
    """Given work that is not due, paused, limited, running or over, then it is not taken until that ends."""
    jobs, taker = Jobs(log), Taker(log, projector, "taker")
    late, soon = jobs.submit("a", delay=600), jobs.submit("a", delay=0.05)
    held = jobs.submit("a", queue="held")
    jobs.pause("held")
    jobs.limit("narrow", concurrency=1)
    narrow = [jobs.submit("narrow", queue="narrow") for _ in range(2)]
    rated = [jobs.submit("rated", queue="rated") for _ in range(3)]
    jobs.limit("rated", rate=2, seconds=600)
    connection.execute("SELECT pg_sleep(0.06)")
    assert set(taker.claim()) == {soon, narrow[0], *rated[:2]}
    assert taker.claim() == []
    jobs.resume("held")
    jobs.cancel(late)
    assert taker.claim() == [held]
    with log.open(OpenJob, narrow[0]) as opened:
        opened.fail("Failed")
    Leases(log).release([(OpenJob.name_of(narrow[0]), 2)])
    assert taker.claim() == [narrow[1]]
    assert taker.claim() == []
    jobs.retry(narrow[0])
    Leases(log).release([(OpenJob.name_of(narrow[1]), 2)])  # its claim holds, though its lease is lost
    assert taker.claim() == []
    jobs.cancel(narrow[1])
    assert taker.claim() == [narrow[0]]


def test_a_view_that_is_behind_harms_nothing(log: Ledger, projector: Projector) -> None:
    """Given a view that has not seen what happened, then what is over or claimed is not taken."""
    jobs, taker = Jobs(log), Taker(log, projector, "taker")
    gone, claimed, put_off = (jobs.submit("a") for _ in range(3))
    projector.catch_up()
    jobs.cancel(gone)
    with log.open(OpenJob, claimed) as opened:
        opened.start("somebody")
    with log.open(OpenJob, put_off) as opened:
        opened.start("somebody")
    with log.open(OpenJob, put_off) as opened:
        opened.retry_later("busy", 600)
    taken = taker.offers.take(10, [])
    assert [str(one.work.key[0]) for one in taken] == [put_off]
    assert not taken[0].due
    taker.offers.take(0, [(taken[0].work.name, taken[0].token)])
    assert taker.take() == []
    assert Leases(log).all() == []


def test_batches_and_their_second_step(log: Ledger, projector: Projector, connection: Connection) -> None:
    """Given a batch with two steps, then each is offered in its queue, with a payload of its own."""
    jobs, taker = Jobs(log), Taker(log, projector, "taker")
    job = jobs.submit("coordinator")
    assert taker.claim() == [job]
    with log.open(OpenBatch, job, "1") as batch:
        batch.queue(1, "compute", "cpu", payload={"part": 1})
    (taken,) = taker.take()
    assert (taken.payload, taken.parent_status) == ('{"part": 1}', "running")
    Recorder(log, "taker").record([claim_part(taken, "taker")])
    with log.open(OpenBatch, job, "1") as batch:
        batch.computed("write", "disk", {"rows": 3})
    Leases(log).release([(taken.work.name, taken.token)])
    (taken,) = taker.take()
    assert (taken.payload, taken.work.state.status, taken.token) == ('{"rows": 3}', "computed", 4)
    assert connection.execute(ROWS).fetchall() == [
        (f"job/{job}", False, False, "default", "coordinator", None),
        (f"batch/{job}/1", True, False, "disk", "write", f"job/{job}"),
    ]
    Recorder(log, "taker").record([claim_part(taken, "taker")])
    with log.open(OpenBatch, job, "1") as batch:
        batch.complete()
    projector.catch_up()
    assert len(connection.execute(ROWS).fetchall()) == 1
    seen: list[Difference] = []
    verify(log, processes=1, checks=[ViewCheck(views_named(["work"])[0])], found=seen.append)
    assert not seen
