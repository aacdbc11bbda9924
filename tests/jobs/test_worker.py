"""A worker with real processes: what runs, what is told to stop, what breaks, and what is held open."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from consumers.jobs import Worker
from consumers.service import Service
from ledger import BadInput, Ledger
from ledger.jobs import Jobs, OpenJob
from ledger.jobs.leases import Leases
from tests.jobs.conftest import REGISTRY, AtWork, eventually, topics, working

OPEN = """
SELECT pid, query FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid()
   AND xact_start < clock_timestamp() - interval '0.5 s'
"""


def began(jobs: Jobs, job: str) -> Callable[[], bool]:
    return lambda: "job.reported" in topics(jobs, job)


# With real processes


def test_all_kinds_of_ends(log: Ledger, connection: psycopg.Connection[Any]) -> None:
    """Given jobs of all kinds, when a worker runs, then each comes to its end, and nothing is held open."""
    jobs = Jobs(log)
    good = [jobs.submit("echo", {"n": n}) for n in range(20)]
    boom, bad, odd = jobs.submit("boom"), jobs.submit("echo", {"n": "yes"}), jobs.submit("odd")
    unknown = jobs.submit("nowhere")
    later, again = jobs.submit("busy"), jobs.submit("boom", max_attempts=2)
    slow = jobs.submit("slow")
    with working(log, drain_seconds=0.1, lease_seconds=1.5) as at_work:
        statuses = jobs.wait(*good, boom, bad, odd, seconds=30)
        eventually(began(jobs, slow))
        assert [statuses[job] for job in good] == ["succeeded"] * 20
        assert jobs.result(good[7]) == {"n": 7}
        assert topics(jobs, good[7]) == ["job.created", "job.started", "job.reported", "job.succeeded"]
        failed = {job: jobs.get(job) for job in (boom, bad, odd)}
        assert {job.status for job in failed.values()} == {"failed"}
        assert [job.error_code for job in failed.values()][:2] == ["ArithmeticError", "BadPayload"]
        assert topics(jobs, unknown) == ["job.created"]  # it waits for a worker that knows it
        assert failed[boom].error_message == "boom"
        eventually(lambda: topics(jobs, later)[-1] == "job.retry_later")
        assert jobs.get(later).retries == 1
        eventually(lambda: "job.attempt_failed" in topics(jobs, again))
        # nothing is open while an operation runs
        lease = next(lease for lease in Leases(log).all() if lease.stream == OpenJob.name_of(slow))
        eventually(lambda: any(x.until > lease.until for x in Leases(log).all()))  # renewed meanwhile
        assert connection.execute(OPEN).fetchall() == []
        (seen,) = Leases(log).workers()
        assert (seen.worker, seen.slots, seen.draining) == (at_work.worker.name, 2, False)
    assert at_work.error is None
    assert at_work.gave_back is True
    assert topics(jobs, slow)[-1] == "job.released"
    assert jobs.status(slow) == "queued"
    assert Leases(log).workers() == []
    assert Leases(log).all() == []


def test_cancelled_and_lost_claims_are_told(log: Ledger, connection: psycopg.Connection[Any]) -> None:
    """Given operations that run, when their claims are over, then they are told, then ended."""
    jobs = Jobs(log)
    kind, stubborn = jobs.submit("slow"), jobs.submit("stubborn")
    with working(log, grace_seconds=0.3, lease_seconds=0.6, drain_seconds=20) as at_work:
        eventually(lambda: began(jobs, kind)() and began(jobs, stubborn)())
        jobs.cancel(kind)
        jobs.cancel(stubborn)
        eventually(lambda: not at_work.worker._claims)
        after = jobs.submit("ping")  # slots are free again, and what was cancelled stays so
        assert jobs.wait(after, seconds=20) == {after: "succeeded"}
    assert at_work.gave_back is False
    for job in (kind, stubborn):  # they had nothing to say
        assert topics(jobs, job) == ["job.created", "job.started", "job.reported", "job.cancelled"]


def test_broken_connections_lose_nothing(log: Ledger, connection: psycopg.Connection[Any]) -> None:
    """Given a server that ends connections all the time, then each job is run and recorded once."""
    jobs = Jobs(log)
    ids = [jobs.submit("ping") for _ in range(60)]
    stop = threading.Event()

    def harass() -> None:
        while not stop.wait(0.05):
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid() AND random() < 0.3"
            )

    thread = threading.Thread(target=harass)
    with working(log, lease_seconds=20) as at_work:
        thread.start()
        try:
            eventually(lambda: at_work.worker.done > 20, 60)
        finally:
            stop.set()
            thread.join()
        assert set(jobs.wait(*ids, seconds=30).values()) == {"succeeded"}
    assert at_work.error is None
    for job in ids:
        assert topics(jobs, job) == ["job.created", "job.started", "job.succeeded"]


def test_a_registry_that_only_children_cannot_import(log: Ledger, tmp_path: Path, monkeypatch: Any) -> None:
    """Given a registry that the processes of operations cannot import, then the worker ends and says so."""
    source = f"import os\nif os.getpid() != {os.getpid()}:\n    raise ImportError('only at home')\n"
    (tmp_path / "homely_registry.py").write_text(
        source + "from consumers.jobs import Registry\nregistry = Registry()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    worker = Worker(log, "homely_registry:registry", services=False, projecting=False)
    with pytest.raises(BadInput, match="only at home"):
        worker.run(threading.Event())
    assert Leases(log).workers() == []
    sys.modules.pop("homely_registry", None)


# Services


def test_a_service_that_ends_is_begun_anew(caplog: pytest.LogCaptureFixture, monkeypatch: Any) -> None:
    """Given a service that fails, then it is logged and begun anew; one that goes on is ended."""
    monkeypatch.setattr("consumers.service.FIRST_PAUSE", 0.01)
    ran: list[int] = []

    def act(stop: threading.Event) -> None:
        ran.append(1)
        if len(ran) < 3:
            raise ValueError(f"service {len(ran)}")
        stop.wait()

    with Service("failing", lambda: act) as service:
        eventually(lambda: len(ran) == 3)
    assert service.begun == 3
    assert str(service.error) == "service 2"
    assert caplog.text.count("the service failing ended") == 2


def test_services_run_by_default(log: Ledger) -> None:
    """Given a worker of nothing but its defaults, then its services run, and end with it."""
    worker = Worker(log, REGISTRY)
    at_work = AtWork(worker)
    names = {"projector", "fan_in", "cascade", "scheduler", "reaper"}
    before = set(threading.enumerate())  # a server of another test may run services, too
    at_work.thread.start()
    try:
        eventually(lambda: names <= _started_since(before))
    finally:
        at_work.end()
    assert at_work.error is None
    assert at_work.gave_back is False
    assert not names & _started_since(before)


def _started_since(before: set[threading.Thread]) -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread not in before}
