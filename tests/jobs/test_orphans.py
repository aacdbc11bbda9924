"""Work that waits though it could be taken is offered again, a few times; what waits for a reason is not."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from consumers.jobs.reaper import Counts, Reaper
from ledger import Ledger
from ledger.jobs import Jobs
from ledger.jobs.leases import Leases
from tests.jobs.claims import WORKER, claim, shown, take, topics

Connection = psycopg.Connection[Any]
AGED = "UPDATE ledger_views.work SET due_at = due_at - interval '1 hour'"


def as_projector(connection: Connection, statement: str) -> None:
    with connection.transaction():
        connection.execute("SET LOCAL ROLE ledger_projector")
        connection.execute(statement)  # type: ignore[arg-type]


def test_orphaned_work_is_offered_again_five_times_and_then_left(log: Ledger, connection: Connection) -> None:
    """Spec S1-63."""
    jobs, reaper = Jobs(log), Reaper(log, stall_seconds=1000)
    job = jobs.submit("ping")
    shown(log)
    assert reaper.run_once() == Counts()  # not long enough
    for nth in range(6):
        as_projector(connection, AGED)
        assert reaper.run_once() == Counts(offered=int(nth < 5))
        shown(log)
    now = jobs.get(job)
    assert (now.status, now.stalls, topics(log, f"job/{job}").count("queue_stall_requeue")) == (
        "queued",
        5,
        5,
    )


@pytest.mark.parametrize("why", ["paused", "limited", "rate", "later", "taken", "busy", "behind"])
def test_work_that_waits_for_a_reason_is_no_orphan(log: Ledger, connection: Connection, why: str) -> None:
    jobs = Jobs(log)
    job = jobs.submit("ping", delay=7200 if why == "later" else None)
    match why:
        case "paused":
            jobs.pause("default")
        case "limited":
            jobs.limit("ping", concurrency=1)
            jobs.submit("ping")
            claim(log)
        case "rate":
            jobs.limit("ping", rate=1, seconds=3600)
            jobs.submit("ping")
            claim(log)
        case "taken":
            take(log)
        case "busy":
            Leases(log).register("full", **{**WORKER, "busy": 1})
        case "behind":
            shown(log)
            jobs.cancel(job)
    if why != "behind":
        shown(log)
    as_projector(connection, AGED)
    assert Reaper(log).run_once() == Counts()


def test_an_idle_worker_makes_waiting_work_an_orphan(log: Ledger, connection: Connection) -> None:
    Jobs(log).submit("ping")
    Leases(log).register("full", **{**WORKER, "busy": 1})
    Leases(log).register("idle", **WORKER)
    shown(log)
    as_projector(connection, AGED)
    assert Reaper(log).run_once() == Counts(offered=1)


def test_work_is_no_orphan_while_its_line_moves(log: Ledger, connection: Connection) -> None:
    """However long the line is: an offer for each that waits would be a flood of events."""
    jobs = Jobs(log)
    for _ in range(3):
        jobs.submit("ping")
    Leases(log).register("w", **{**WORKER, "slots": 2})
    claim(log, most=1)
    as_projector(connection, AGED)
    assert Reaper(log).run_once() == Counts()
    connection.execute("UPDATE ledger.leases SET taken_at = taken_at - interval '1 hour'")
    assert Reaper(log).run_once() == Counts(offered=2)
