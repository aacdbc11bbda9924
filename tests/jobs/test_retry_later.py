"""Work that is put off, because what it needs is busy: nobody sleeps meanwhile (spec S1-27, W1-05)."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from consumers.jobs import Worker
from consumers.jobs.claim import LogOffers, Offer
from consumers.jobs.messages import RetryLater
from ledger import Ledger
from ledger.domain.state import Pending
from ledger.jobs import Jobs, OpenJob
from tests.jobs.claims import claim_one, end, shown, take, topics
from tests.jobs.conftest import REGISTRY, eventually


def started(retries: int = 0, **fields: Any) -> OpenJob:
    """A job that is claimed, and was put off so often before."""
    job = OpenJob("8f14e45f-ceea-467f-a0e6-9d1c0a4c3f6e")
    job.create("busy", **fields)
    for _ in range(retries):
        job.start("w").retry_later("busy", 0)
    return job.start("w")


@pytest.mark.parametrize(
    ("base", "earlier", "delay"),
    [(60, 0, 60), (30, 2, 120), (30, 1, 60), (0.5, 3, 4), (400, 1, 600), (30, 19, 600), (1e9, 0, 600),
     (0, 5, 0), (-5, 0, 0)],
)  # fmt: skip
def test_the_delay_doubles_up_to_ten_minutes(base: float, earlier: int, delay: float) -> None:
    """given a job that was put off so often, when it is put off again, then it waits so long (S1-27)."""
    job = started(earlier)
    job.retry_later("GPU busy", base)
    fact = job.news[-1]
    assert fact.model_dump(exclude={"token"}) == {
        "reason": "GPU busy", "delay_seconds": delay, "retry_count": earlier + 1,
    }  # fmt: skip
    assert (job.state.status, job.state.started_at, job.state.token) == ("queued", None, None)
    assert job.state.due_at == job.state.offered_at + timedelta(seconds=delay)  # type: ignore[operator]


def test_w1_05_it_ends_after_a_maximum() -> None:
    job = started(3, max_retries=3)
    job.retry_later("GPU busy", 1)
    assert (job.state.status, job.state.error_code) == ("failed", "RetriesExhausted")
    assert "GPU busy" in str(job.state.error_message)


def test_w1_05_only_those_in_a_row_count() -> None:
    """An attempt that failed for another reason, or a redrive, begins the count anew."""
    job = started(5, max_attempts=2)
    job.attempt_failed("Boom")
    job.start("w").retry_later("busy", 10)
    assert job.news[-1].delay_seconds == 10  # type: ignore[attr-defined]
    job.start("w").attempt_failed("Boom")
    job.redrive()
    job.start("w").retry_later("busy", 10)
    assert job.news[-1].retry_count == 1  # type: ignore[attr-defined]


def put_off(log: Ledger, seconds: float) -> Offer:
    """A job whose operation was put off."""
    Jobs(log).submit("busy")
    claimed = claim_one(log)
    end(log, claimed, RetryLater(claimed.work.name, claimed.token, reason="busy", delay_seconds=seconds))
    return claimed


def test_the_due_time_is_in_the_log_the_head_and_the_view(
    log: Ledger, connection: psycopg.Connection[Any]
) -> None:
    name = put_off(log, 30).work.name
    shown(log)
    fact = log.read(name)[-1]
    due = fact.recorded_at + timedelta(seconds=30)
    assert (fact.topic, log.load(OpenJob, name[4:]).state.due_at) == ("job.retry_later", due)
    ((view,),) = connection.execute(
        "SELECT due_at FROM ledger_views.work WHERE stream = %s", [name]
    ).fetchall()
    assert view == due
    assert take(log) == []


def test_it_is_taken_once_it_is_due(log: Ledger) -> None:
    name = put_off(log, 0.05).work.name
    due = log.load(OpenJob, name[4:]).state.due_at
    found: list[Offer] = []
    eventually(lambda: found.extend(take(log)) or found)
    assert found[0].due
    assert found[0].now >= due  # type: ignore[operator]


def test_w1_05_a_kill_during_the_wait_loses_nothing(log: Ledger, admin_dsn: str) -> None:
    """given a job that waits, when the worker and all that is not in the log is gone, then it is taken."""
    name = put_off(log, 0.05).work.name
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute("TRUNCATE ledger.leases, ledger.workers, ledger.rates")
    found: list[Offer] = []
    eventually(lambda: found.extend(take(log, "another")) or found)
    assert [(one.work.name, one.due) for one in found] == [(name, True)]


def test_the_head_decides_where_the_view_is_behind(log: Ledger) -> None:
    """The view still shows the job as ready from before it was claimed and put off."""
    job = Jobs(log).submit("busy")
    shown(log)
    offers = LogOffers(log, "w", None, 60)
    (one,) = offers.take(1)
    one.work.start("w")
    log.commit(one.work)
    one.work.retry_later("busy", 30)
    log.append_all([one.work.under_lease(one.token)])
    (again,) = offers.take(1, [(one.work.name, one.token)])
    assert (again.work.name, again.due) == (f"job/{job}", False)


# Delays of new jobs


def test_a_delay_counts_from_when_it_is_recorded(log: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the clock of the client is two hours ahead (spec S1-04)."""
    ahead = datetime.now(UTC) + timedelta(hours=2)
    monkeypatch.setattr(Pending, "clock", classmethod(lambda cls: cls.fromtimestamp(ahead.timestamp(), UTC)))
    jobs = Jobs(log)
    id = jobs.submit("ping", delay=timedelta(minutes=10))
    created = log.read(f"job/{id}")[0]
    assert created.event.delay_seconds == 600  # type: ignore[union-attr]
    assert jobs.get(id).due_at == created.recorded_at + timedelta(minutes=10)
    soon = jobs.submit("ping", delay=0)
    assert [one.work.state.id for one in take(log) if one.due] == [soon]


def test_run_at_is_a_time_with_its_zone(log: Ledger, connection: psycopg.Connection[Any]) -> None:
    jobs = Jobs(log)
    at = datetime(2031, 5, 1, 12, tzinfo=UTC)
    id = jobs.submit("ping", run_at=at)
    past = jobs.submit("ping", run_at=datetime(2001, 5, 1, 12, tzinfo=UTC))
    shown(log)
    assert jobs.get(id).due_at == at
    ((view,),) = connection.execute(
        "SELECT due_at FROM ledger_views.work WHERE stream = %s", [f"job/{id}"]
    ).fetchall()
    assert view == at
    assert [one.work.state.id for one in take(log)] == [past]


def test_w1_05_nobody_sleeps(log: Ledger) -> None:
    """One slot: while a job waits for its time, the slot does other work."""
    jobs, stop = Jobs(log), threading.Event()
    worker = Worker(log, REGISTRY, concurrency=1, services=False)
    thread = threading.Thread(target=worker.run, args=[stop])
    thread.start()
    try:
        waits = jobs.submit("busy", {"delay": 60})
        eventually(lambda: "retry_later" in topics(log, f"job/{waits}"))
        began = time.monotonic()
        others = [jobs.submit("ping") for _ in range(3)]
        assert set(jobs.wait(*others, seconds=20).values()) == {"succeeded"}
        assert time.monotonic() - began < 20
        assert topics(log, f"job/{waits}") == ["created", "started", "retry_later"]
    finally:
        stop.set()
        thread.join()
