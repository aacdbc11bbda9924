"""What is asked of the view `jobs`: lists, children, batches, counts, figures."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import psycopg
import pytest

from ledger import BadInput, Ledger, SchemaMismatch
from ledger.jobs import Jobs, OpenBatch, OpenJob
from projections import Projector
from projections.jobs import JobQueries
from projections.metrics import metrics
from tests.jobs.test_job_list import FOLLOWED, JOBS, SAME

Connection = psycopg.Connection[Any]


def ended(log: Ledger, job: str, code: str | None = None, message: str = "") -> None:
    """Let a worker run a job to its end."""
    with log.open(OpenJob, job) as opened:
        opened.start("worker-1")
    with log.open(OpenJob, job) as opened:
        opened.fail(code, message) if code else opened.succeed({"n": 1})


def test_lists_are_what_was_asked_for_newest_first(log: Ledger) -> None:
    jobs, asked = Jobs(log), JobQueries(log)
    with pytest.raises(SchemaMismatch, match="pledger views follow jobs"):
        asked.list()
    a = jobs.submit("embed", queue="gpu", tags=("red", "big"), description="first", priority=3)
    b = jobs.submit("embed", unique=True)
    c = jobs.submit("write", queue="gpu", parent=a)
    d = jobs.submit("write", tags=("red",))
    ended(log, d)
    ended(log, b, "OSError", "disk")
    jobs.cancel(c)
    Projector(log, [JOBS]).catch_up()

    def ids(**wanted: Any) -> list[str]:
        return [job.id for job in asked.list(**wanted)]

    assert ids() == [d, b, a]
    assert ids(include_children=True) == [d, c, b, a]
    assert ids(status="FAILED") == [b]
    assert ids(operation="write", include_children=True) == [d, c]
    assert ids(queue="gpu") == [a]
    assert ids(queue="gpu", include_children=True, status="cancelled") == [c]
    assert ids(parent=a) == [job.id for job in asked.children(a)] == [c]
    assert ids(tag="red") == [d, a]
    assert ids(tag="re", include_children=True) == []
    assert ids(limit=2) == [d, b]
    assert ids(after=asked.list(limit=2)[-1].position) == [a]
    row, state = asked.list(status="queued")[0], jobs.get(a)
    assert all(getattr(row, name) == getattr(state, name) for name in SAME)
    assert asdict(asked.list(status="failed")[0])["dedup_key"] == jobs.get(b).dedup_key
    assert [(one.queue, one.operation, one.status, one.jobs, one.top_level) for one in asked.counts()] == [
        ("default", "embed", "failed", 1, 1), ("default", "write", "succeeded", 1, 1),
        ("gpu", "embed", "queued", 1, 1), ("gpu", "write", "cancelled", 1, 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [{"status": "done"}, {"limit": 0}, {"limit": 501}, {"limit": True}, {"after": "x"}, {"parent": "x"}],
)
def test_what_cannot_be_asked_is_refused(log: Ledger, wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=r"must be"):
        JobQueries(log).list(**wrong)


def dispatched(log: Ledger, jobs: Jobs, many: int, **more: Any) -> str:
    """A job that handed out batches."""
    job = jobs.submit("embed", **more)
    with log.open(OpenJob, job) as opened:
        opened.start("worker-1")
    for nr in range(1, many + 1):
        with log.open(OpenBatch, job, str(nr)) as batch:
            batch.queue(1, "embed.batch", "gpu", max_attempts=1)
    with log.open(OpenJob, job) as opened:
        opened.begin_dispatch()
        opened.dispatch(many)
    return job


def test_batches_are_listed_and_a_dispatched_job_is_as_far_as_they_are(log: Ledger) -> None:
    jobs, asked = Jobs(log), JobQueries(log)
    job = dispatched(log, jobs, 3)
    other = dispatched(log, jobs, 1)
    for nr in ("1", "3"):
        with log.open(OpenBatch, job, nr) as batch:
            batch.start("worker-2")
        with log.open(OpenBatch, job, nr) as batch:
            batch.complete() if nr == "1" else batch.attempt_failed("ValueError", "page 7")
    Projector(log, [JOBS]).catch_up()
    assert [(one.progress_current, one.progress_total) for one in asked.list()] == [(0, 1), (1, 3)]
    child = jobs.submit("write", parent=other)
    ended(log, child)
    Projector(log, FOLLOWED).catch_up()
    assert [(one.id, one.progress_current, one.progress_total) for one in asked.list()] == [
        (other, 1, 1), (job, 1, 3)
    ]  # fmt: skip
    assert [(one.nr, one.status) for one in asked.batches(job)] == [
        ("1", "completed"), ("2", "queued"), ("3", "failed")
    ]  # fmt: skip
    assert [one.nr for one in asked.batches(job, "Queued")] == ["2"]
    assert [one.nr for one in asked.batches(job, after="1", limit=1)] == ["2"]
    (letter,) = asked.dead()
    assert (letter.job, letter.nr, letter.queue, letter.operation) == (job, "3", "gpu", "embed.batch")
    assert (letter.error_code, letter.message) == ("ValueError", "page 7")


def test_figures_for_prometheus(log: Ledger, connection: Connection) -> None:
    jobs = Jobs(log)
    assert "pledger_jobs{" not in metrics(log)
    dispatched(log, jobs, 2, queue="gpu")
    jobs.submit("embed", queue="gpu")
    jobs.submit("embed", queue="gpu", delay=1000)
    ended(log, jobs.submit("write"), "OSError")
    Projector(log, FOLLOWED).catch_up()
    connection.execute(
        "INSERT INTO ledger.leases VALUES (2, now(), now() - interval '1 s', 'job/x', 'w', 'embed')"
    )
    connection.execute(
        "INSERT INTO ledger.workers (started_at, seen_at, done, pid, slots, busy, worker, host, operations)"
        " VALUES (now(), now(), 7, 1, 4, 2, 'w', 'h', '{embed}')"
    )
    told = metrics(log)
    for line in (
        'pledger_jobs{operation="embed",queue="gpu",schema="ledger",status="dispatched"} 1.0',
        'pledger_jobs{operation="embed",queue="gpu",schema="ledger",status="queued"} 2.0',
        'pledger_dead_letters{kind="job",operation="write",queue="default",schema="ledger"} 1.0',
        'pledger_work_waiting{operation="embed",queue="gpu",schema="ledger"} 2.0',
        'pledger_work_due{operation="embed",queue="gpu",schema="ledger"} 1.0',
        'pledger_work_waiting{operation="embed.batch",queue="gpu",schema="ledger"} 2.0',
        'pledger_work_unclaimed{operation="embed.batch",queue="gpu",reason="no worker knows its operation",',
        'pledger_leases{operation="embed",schema="ledger",state="expired"} 1.0',
        'pledger_workers{schema="ledger",state="working"} 1.0',
        'pledger_worker_busy{schema="ledger",worker="w"} 2.0',
        'pledger_worker_done_total{schema="ledger",worker="w"} 7.0',
    ):
        assert line in told
