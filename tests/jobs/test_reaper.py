"""The reaper: what vanished workers left is offered again or failed; what lives, it leaves alone."""

from __future__ import annotations

import logging
import threading
from typing import Any

import psycopg
import pytest

from consumers.jobs.claim import LogOffers
from consumers.jobs.messages import Succeeded
from consumers.jobs.reaper import Counts, Reaper
from ledger import Ledger
from ledger.errors import StreamConflict
from ledger.jobs import Jobs, OpenBatch, OpenJob
from ledger.jobs.leases import HeldLease, Leases
from tests.jobs.claims import LONG_AGO, WORKER, claim, claim_one, dispatched, end, shown, take, topics

Connection = psycopg.Connection[Any]
# Workers that vanished


def test_an_expired_claim_is_requeued_within_its_budget_and_then_failed(
    log: Ledger, connection: Connection
) -> None:
    """Spec S1-62."""
    jobs, reaper = Jobs(log), Reaper(log)
    job = jobs.submit("ping", max_requeues=2)
    for worker in ("a", "b", "c"):
        claim_one(log, worker)
        connection.execute(LONG_AGO)
        figures = reaper.run_once()
        assert figures.reaped == 1
    now = jobs.get(job)
    assert (figures.failed, now.status, now.error_code, now.requeues, now.token) == (
        1, "failed", "lease_expired", 2, None)  # fmt: skip
    facts = [event.event for event in log.read(f"job/{job}")]
    assert topics(log, f"job/{job}")[1:] == [
        "started", "lease_expired_requeue", "started", "lease_expired_requeue", "started", "lease_expired"
    ]  # fmt: skip
    assert (facts[-1].token, facts[-1].worker, facts[-1].prior_requeues) == (facts[-2].token, "c", 2)
    assert Leases(log).all() == []
    assert reaper.run_once() == Counts()


def test_a_batch_goes_back_to_the_step_it_was_at(log: Ledger, connection: Connection) -> None:
    job = Jobs(log).submit("split")
    claim_one(log)
    dispatched(log, job, 1)
    one = claim_one(log)
    one.work.computed("write", "default", {})
    log.append_all([one.work.under_lease(one.token)])
    Leases(log).release([(one.work.name, one.token)])
    claim_one(log)
    connection.execute(LONG_AGO)
    assert Reaper(log).run_once().requeued == 1
    assert log.load(OpenBatch, job, "1").state.status == "computed"


def test_a_renewal_that_comes_first_keeps_the_claim(log: Ledger, connection: Connection) -> None:
    Jobs(log).submit("ping")
    one = claim_one(log)
    connection.execute(LONG_AGO)
    Leases(log).renew("w", [HeldLease(one.work.name, one.token, "ping")], 60)
    assert Reaper(log).run_once() == Counts()
    assert log.load(OpenJob, one.work.state.id).state.token == one.token


def test_a_renewal_that_comes_while_the_claim_is_ended_loses(log: Ledger, connection: Connection) -> None:
    """The lease is taken out, then it is renewed, then the append: the worker is told at its next beat."""
    Jobs(log).submit("ping")
    one = claim_one(log)
    connection.execute(LONG_AGO)
    reaper, held = Reaper(log), [HeldLease(one.work.name, one.token, "ping")]
    (lease,) = reaper.leases.take_expired()
    assert Leases(log).renew("w", held, 60)[0].holds
    assert reaper._end([lease]).requeued == 1
    assert not Leases(log).renew("w", held, 60)[0].holds


def test_an_outcome_that_comes_first_stays(log: Ledger, connection: Connection) -> None:
    Jobs(log).submit("ping")
    one = claim_one(log)
    connection.execute(LONG_AGO)
    reaper = Reaper(log)
    taken = reaper.leases.take_expired()
    end(log, one, Succeeded(one.work.name, one.token))
    assert reaper._end(taken) == Counts(dropped=1)
    assert topics(log, one.work.name) == ["created", "started", "succeeded"]


def test_leases_of_claims_that_are_over_are_taken_out(log: Ledger, connection: Connection) -> None:
    jobs = Jobs(log)
    over, never = jobs.submit("ping"), jobs.submit("ping")
    claim(log, most=1)
    jobs.cancel(over)
    take(log)
    connection.execute(LONG_AGO)
    assert Reaper(log).run_once() == Counts(dropped=2)
    assert (jobs.status(over), jobs.status(never)) == ("cancelled", "queued")
    assert len(claim(log)) == 1


def test_silent_workers_are_no_longer_listed(log: Ledger, connection: Connection) -> None:
    for name in ("here", "gone"):
        Leases(log).register(name, **WORKER)
    connection.execute("UPDATE ledger.workers SET seen_at = now() - interval '1 day' WHERE worker = 'gone'")
    assert Reaper(log).run_once().forgotten == 1
    assert [worker.worker for worker in Leases(log).workers()] == ["here"]


def test_of_many_reapers_each_claim_is_ended_by_one(log: Ledger, connection: Connection) -> None:
    jobs, barrier = Jobs(log), threading.Barrier(4)
    ids = [jobs.submit("ping") for _ in range(40)]
    claim(log)
    connection.execute(LONG_AGO)
    figures: list[Counts] = []

    def reap() -> None:
        barrier.wait()
        figures.append(Reaper(log).run_once())

    threads = [threading.Thread(target=reap) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(each.requeued for each in figures) == 40
    assert all(topics(log, f"job/{job}").count("lease_expired_requeue") == 1 for job in ids)


# Leases that were lost


def test_a_lost_lease_is_put_anew_and_its_worker_has_time_to_renew_it(
    log: Ledger, connection: Connection
) -> None:
    jobs = Jobs(log)
    ids = [jobs.submit("ping") for _ in range(2)]
    alive, dead = sorted(
        claim(log, most=1, worker="alive") + claim(log, worker="dead"), key=lambda t: t.token
    )
    connection.execute("DELETE FROM ledger.leases")
    shown(log)
    reaper = Reaper(log)
    assert reaper.run_once() == Counts(granted=2)
    assert {lease.worker for lease in Leases(log).all() if lease.holds} == {"alive", "dead"}
    connection.execute(LONG_AGO)
    Leases(log).renew("alive", [HeldLease(alive.work.name, alive.token, "ping")], 60)
    assert reaper.run_once() == Counts(requeued=1)
    assert sorted(jobs.status(job) for job in ids) == ["queued", "running"]
    assert log.load(OpenJob, alive.work.state.id).state.token == alive.token
    assert dead.work.name != alive.work.name


def test_a_claim_whose_reaper_died_half_way_is_found_again(log: Ledger, connection: Connection) -> None:
    Jobs(log).submit("ping")
    one = claim_one(log)
    connection.execute(LONG_AGO)
    reaper = Reaper(log)
    assert len(reaper.leases.take_expired()) == 1  # and here it is killed
    shown(log)
    assert reaper.run_once() == Counts(granted=1)
    connection.execute(LONG_AGO)
    assert reaper.run_once() == Counts(requeued=1)
    assert topics(log, one.work.name)[-1] == "lease_expired_requeue"


# Weaknesses of the seed


def test_w1_01_two_workers_never_have_one_job(log: Ledger, connection: Connection) -> None:
    Jobs(log).submit("ping")
    (first,) = take(log, "first")
    connection.execute(LONG_AGO)
    (second,) = take(log, "second")
    first.work.start("first")
    second.work.start("second")
    log.commit(second.work)
    with pytest.raises(StreamConflict):
        log.commit(first.work)
    assert topics(log, first.work.name) == ["created", "started"]


@pytest.mark.parametrize("claimed", [False, True])
def test_w1_02_what_a_killed_worker_had_is_offered_again(
    log: Ledger, connection: Connection, claimed: bool
) -> None:
    """Offer is not acknowledged: before the claim nothing happened, after it the lease is watched."""
    jobs = Jobs(log)
    job = jobs.submit("ping")
    (claim if claimed else take)(log, "killed")
    connection.execute(LONG_AGO)
    assert Reaper(log).run_once() == (Counts(requeued=1) if claimed else Counts(dropped=1))
    claim_one(log, "next")
    assert jobs.get(job).worker == "next"


@pytest.mark.parametrize("how", ["cancelled", "requeued", "taken over"])
def test_w1_03_a_late_worker_changes_nothing(log: Ledger, connection: Connection, how: str) -> None:
    jobs = Jobs(log)
    job = jobs.submit("ping")
    late = claim_one(log, "late")
    if how == "cancelled":
        jobs.cancel(job)
    else:
        connection.execute(LONG_AGO)
        Reaper(log).run_once()
    if how == "taken over":
        claim_one(log, "next")
    before = jobs.get(job)
    end(log, late, Succeeded(late.work.name, late.token, result={"n": 1}))
    after, fact = jobs.get(job), log.read(f"job/{job}")[-1].event
    assert (after.status, after.token, after.worker, after.late) == (
        before.status, before.token, before.worker, 1)  # fmt: skip
    assert (fact.topic, fact.token, fact.result) == ("job.late_result", late.token, {"n": 1})


def test_w1_11_a_healthy_job_may_run_for_as_long_as_it_wants(log: Ledger, connection: Connection) -> None:
    """Only silence counts, and not when it was started."""
    Jobs(log).submit("ping")
    one = claim_one(log)
    for _ in range(3):
        connection.execute(
            "UPDATE ledger.leases SET taken_at = taken_at - interval '1 day', until = until - interval '59 s'"
        )
        Leases(log).renew("w", [HeldLease(one.work.name, one.token, "ping")], 60)
        assert Reaper(log).run_once() == Counts()
    assert log.load(OpenJob, one.work.state.id).state.attempt == 1


def test_w1_12_a_dispatched_parent_is_never_a_candidate(log: Ledger, connection: Connection) -> None:
    jobs = Jobs(log)
    job = jobs.submit("split")
    claim_one(log)
    dispatched(log, job, 3)
    shown(log)
    connection.execute(LONG_AGO)
    assert Reaper(log).run_once() == Counts(dropped=1)  # the lease of the operation, which is over
    connection.execute("DELETE FROM ledger.leases")
    for _ in range(3):
        assert Reaper(log, stall_seconds=0).run_once().plus(Counts(offered=-3)) in (
            Counts(), Counts(offered=-3))  # fmt: skip
        shown(log)
    now = jobs.get(job)
    assert (now.status, now.dispatched, now.rounds, now.attempt) == ("running", True, 1, 1)


def test_w1_13_nothing_is_offered_before_the_requeue_is_committed(
    log: Ledger, connection: Connection, dsn: str
) -> None:
    """A fast worker that looks before the commit takes nothing, drops nothing; after it, it takes it."""
    job = Jobs(log).submit("ping")
    claim_one(log)
    connection.execute(LONG_AGO)
    with psycopg.connect(dsn) as reaping:
        with log.join(reaping) as joined:
            joined.take(OpenJob, job).expire()
        assert LogOffers(log, "fast", None, 60).take(10) == []
        assert Jobs(log).status(job) == "running"
        reaping.commit()
    assert claim_one(log, "fast").work.state.worker == "fast"


# The loop


def test_a_cycle_that_fails_is_logged_and_the_next_one_follows(
    log: Ledger, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Spec S1-60."""
    reaper, stop, cycles = Reaper(log, every=0.001), threading.Event(), list[int]()

    def cycle() -> Counts:
        cycles.append(1)
        if len(cycles) == 1:
            raise ZeroDivisionError("no luck")
        stop.set()
        return Counts(requeued=1)

    monkeypatch.setattr(reaper, "run_once", cycle)
    with caplog.at_level(logging.ERROR):
        reaper.run(stop)
    assert (len(cycles), reaper.counts.reaped) == (2, 1)
    assert "no luck" in caplog.text
