"""Lease tokens are in the events: heads may be lost and made again, and neither workers nor jobs are."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

from consumers.jobs import Worker
from consumers.jobs.messages import RetryLater, Succeeded
from consumers.jobs.reaper import Counts, Reaper
from ledger import GuardFailed, Ledger
from ledger.jobs import Jobs, OpenBatch, OpenJob
from ledger.jobs.leases import HeldLease, Leases
from projections.verify import rebuild_heads, verify
from projections.verify.difference import Difference, Kind
from tests.jobs.claims import LONG_AGO, claim, claim_one, dispatched, end, shown, topics
from tests.verify.damage import as_owner, heads

Connection = psycopg.Connection[Any]


def looking(log: Ledger, **options: Any) -> list[Difference]:
    found: list[Difference] = []
    verify(log, processes=1, found=found.append, **options)
    return found


@pytest.fixture
def at_work(log: Ledger) -> Ledger:
    """Jobs and batches at every place where a token is set or taken back."""
    jobs = Jobs(log)
    for _ in range(2):
        jobs.submit("split")
    _, parent = claim(log)
    dispatched(log, parent.work.state.id, 4)
    first, _, third = claim(log, most=3)
    end(log, first, Succeeded(first.work.name, first.token, then=("write", "default", {})))
    end(log, third, Succeeded(third.work.name, third.token))
    for _ in range(3):
        jobs.submit("ping")
    one, two, *_ = sorted(claim(log, most=3), key=lambda each: each.work.name, reverse=True)
    end(log, one, Succeeded(one.work.name, one.token))
    end(log, two, RetryLater(two.work.name, two.token))
    claim(log)
    return log


def test_heads_hold_the_tokens_that_their_events_speak_of(at_work: Ledger, connection: Connection) -> None:
    assert looking(at_work) == []
    tokens = connection.execute(
        "SELECT status, token IS NOT NULL FROM ledger.heads GROUP BY 1, 2 ORDER BY 1, 2"
    )
    assert tokens.fetchall() == [
        ("completed", False), ("queued", False), ("running", False), ("running", True), ("succeeded", False),
        ("writing", True),
    ]  # fmt: skip


def test_heads_made_anew_hold_the_same_tokens(at_work: Ledger, connection: Connection) -> None:
    before = heads(connection)
    as_owner(connection, "TRUNCATE ledger.heads")
    rebuild_heads(at_work, processes=1)
    assert heads(connection) == before


@pytest.mark.parametrize(
    ("damage", "kept", "events"),
    [
        ("token = NULL WHERE status = 'writing'", "null", "3"),
        ("token = 9 WHERE status = 'completed'", "9", "null"),
    ],
)
def test_verify_names_a_token_that_is_not_the_one_of_the_events(
    at_work: Ledger, connection: Connection, damage: str, kept: str, events: str
) -> None:
    before = heads(connection)
    as_owner(connection, f"UPDATE ledger.heads SET {damage} AND stream LIKE 'batch/%'")
    (difference,) = looking(at_work, repair=True, also=[Kind.HEAD_DIFFERS])
    assert difference.kind is Kind.HEAD_DIFFERS
    ((name, was, told),) = difference.fields
    assert (name, was) == ("token", kept)
    assert (told == "null") == (events == "null")
    assert heads(connection) == before


def test_a_token_that_no_event_holds_stays(log: Ledger, connection: Connection) -> None:
    """Of a domain that says nothing of tokens."""
    from ledger import Append
    from ledger.log.append import body_of
    from tests.lamp import LampMade

    log.append_all([Append("lamp/a", [body_of(LampMade())], status="made", set_token=9)])
    rebuild_heads(log, processes=1)
    assert looking(log) == []
    assert connection.execute("SELECT token FROM ledger.heads").fetchall() == [(9,)]


def test_workers_go_on_when_heads_were_lost_and_made_anew(log: Ledger, connection: Connection) -> None:
    jobs = Jobs(log)
    job = jobs.submit("ping")
    one = claim_one(log)
    as_owner(connection, "TRUNCATE ledger.heads")
    rebuild_heads(log, processes=1)
    held = [HeldLease(one.work.name, one.token, "ping")]
    assert Leases(log).renew("w", held, 60)[0].holds
    end(log, one, Succeeded(one.work.name, one.token))
    assert (jobs.status(job), topics(log, f"job/{job}")) == ("succeeded", ["created", "started", "succeeded"])


def test_a_job_is_not_stranded_that_was_ended_while_its_head_was_lost(
    log: Ledger, connection: Connection
) -> None:
    """Whatever the refused outcome becomes, the job comes to its end, once."""
    jobs = Jobs(log)
    job = jobs.submit("ping")
    one = claim_one(log)
    as_owner(connection, "TRUNCATE ledger.heads")
    end(log, one, Succeeded(one.work.name, one.token))
    rebuild_heads(log, processes=1)
    assert looking(log) == []
    if jobs.status(job) == "running":
        for expected in (Counts(granted=1), Counts(requeued=1)):
            shown(log)
            assert Reaper(log).run_once() == expected
            connection.execute(LONG_AGO)
        again = claim_one(log)
        end(log, again, Succeeded(again.work.name, again.token))
    assert jobs.status(job) == "succeeded"
    assert topics(log, f"job/{job}").count("succeeded") == 1


def test_a_claim_that_is_over_stays_over_when_heads_are_made_anew(
    log: Ledger, connection: Connection
) -> None:
    job = Jobs(log).submit("ping")
    late = claim_one(log)
    connection.execute(LONG_AGO)
    Reaper(log).run_once()
    as_owner(connection, "TRUNCATE ledger.heads")
    rebuild_heads(log, processes=1)
    late.work.report("page.done")
    with pytest.raises(GuardFailed):
        log.append_all([late.work.under_lease(late.token)])
    assert Jobs(log).status(job) == "queued"


def test_states_know_their_token() -> None:
    assert OpenJob.token_in(OpenJob("0").state) == OpenBatch.token_in(OpenBatch("0", "1").state) == 0


def test_w1_20_an_operation_that_holds_the_interpreter_keeps_its_lease(log: Ledger) -> None:
    """Leases are renewed by the worker's process, and the operation runs in another one."""
    jobs, stop = Jobs(log), threading.Event()
    job = jobs.submit("hold_interpreter", {"seconds": 1.6})
    worker = Worker(log, "tests.jobs.lease_operations:registry", lease_seconds=0.9)
    reaper = Reaper(log, every=0.05, grace_seconds=0.9)
    threads = [threading.Thread(target=run, args=[stop]) for run in (worker.run, reaper.run)]
    for thread in threads:
        thread.start()
    try:
        assert jobs.wait(job, seconds=30) == {job: "succeeded"}
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert (jobs.get(job).attempt, jobs.get(job).requeues) == (1, 0)
    assert reaper.counts.reaped == 0
