"""The timeline of a job: its events and those of its batches, in one order, page by page."""

from __future__ import annotations

import sys
from datetime import timedelta
from itertools import pairwise
from random import Random
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from ledger import Append, BadInput, Body, Ledger, StreamNotFound
from ledger.jobs import Jobs, OpenBatch, OpenJob
from ledger.jobs.batch import BatchQueued
from ledger.log.append import body_of
from projections.jobs import timeline
from projections.jobs.timeline import is_newest, newest_events
from tests.jobs.history import history, record

Connection = psycopg.Connection[Any]


def told(log: Ledger, job: str, **page: Any) -> list[tuple[str, str, str | None, dict[str, Any]]]:
    return [(one.event, one.level, one.message, dict(one.fields)) for one in timeline(log, job, **page)]


def test_s1_46_events_are_named_as_the_spec_has_them(log: Ledger) -> None:
    jobs = Jobs(log)
    job = jobs.submit("embed", {"secret": 1}, queue="gpu", max_attempts=2)
    with log.open(OpenJob, job) as work:
        work.start("worker-1")
        work.report("page.done", message="so far", fields={"page": 7}, level="warning", progress_current=2)
        work.retry_later("GPU busy", 30)
    with log.open(OpenJob, job) as work:
        work.start("worker-2")
        work.expire()
        work.offer_again()
        work.start("worker-3")
        work.begin_dispatch()
    with log.open(OpenBatch, job, "1") as batch:
        batch.queue(1, "embed.batch", "gpu", payload={"secret": 2})
        batch.start("worker-1")
        batch.report("page.done", level="error", fields={"page": 8})
        batch.fail("OSError", "disk", {"exit_code": 3})
    with log.open(OpenJob, job) as work:
        work.dispatch(1)
    log.append(OpenJob.name_of(job), OpenJob(job).late(2, "succeeded"))
    jobs.comment(job, "look at this", "mina")
    jobs.cancel(job, "enough")
    assert told(log, job) == [
        ("job.created", "info", None, {"operation": "embed", "queue": "gpu", "max_attempts": 2}),
        ("job.started", "info", None, {"worker": "worker-1", "attempt": 1}),
        ("page.done", "warning", "so far", {"page": 7, "progress_current": 2}),
        ("job.retry_later", "info", "GPU busy", {"delay_seconds": 30.0, "retry_count": 1}),
        ("job.started", "info", None, {"worker": "worker-2", "attempt": 2}),
        (
            "job.lease_expired_requeue", "warning", None,
            {"worker": "worker-2", "prior_requeues": 0, "max_requeues": 3},
        ),
        ("job.queue_stall_requeue", "warning", None, {"queue": "gpu", "prior_requeues": 0}),
        ("job.started", "info", None, {"worker": "worker-3", "attempt": 3}),
        ("job.dispatching", "info", None, {"round": 1}),
        ("child.queued", "info", None, {"under": 1, "operation": "embed.batch", "queue": "gpu"}),
        ("child.started", "info", None, {"worker": "worker-1", "attempt": 1}),
        ("child.page.done", "error", None, {"page": 8}),
        (
            "child.failed", "error", "disk",
            {
                "error_code": "OSError", "details": {"exit_code": 3}, "operation": "embed.batch",
                "queue": "gpu",
            },
        ),
        ("job.dispatched", "info", None, {"batches": 1}),
        ("job.late_result", "warning", None, {"outcome": "succeeded"}),
        ("job.commented", "info", "look at this", {"author": "mina"}),
        ("job.cancelled", "info", None, {"reason": "enough"}),
    ]  # fmt: skip


def handed_out(log: Ledger, many: int) -> str:
    """A job with so many batches, recorded in pieces, with other events between them."""
    job = Jobs(log).submit("embed")
    queued = body_of(BatchQueued(under=1, operation="embed.batch", queue="gpu"))
    names = [OpenBatch.name_of(job, str(nr)) for nr in range(1, many + 1)]
    for start in range(0, many, 500):
        log.append_all([Append(name, [queued]) for name in names[start : start + 500]])
        log.append(f"lamp/{start}", Body("lamp.made", 1, "{}"))
    return job


@pytest.mark.parametrize("many", [3, 2100])
def test_w1_18_pages_follow_the_log_and_leave_nothing_out(
    log: Ledger, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events of one transaction have one time: a page after a time would leave some out."""
    monkeypatch.setattr(
        sys.modules["projections.jobs.timeline"], "STRETCH", 900
    )  # so that pages lie beyond it too
    before = Jobs(log).submit("embed")
    job = handed_out(log, many)
    neighbour = Jobs(log).submit("embed", id=str(uuid4()))
    limit = 2 if many == 3 else 700
    seen, after = list[Any](), 0
    while page := timeline(log, job, after, limit):
        assert len(page) <= limit
        seen += page
        after = page[-1].position
    assert [one.event for one in seen] == ["job.created", *["child.queued"] * many]
    assert len({one.stream for one in seen}) == many + 1
    assert all(a.position < b.position for a, b in pairwise(seen))
    assert len({one.at for one in seen}) < many
    assert not {before, neighbour} & {one.stream.split("/")[1] for one in seen}


def test_a_random_history_is_told_whole_and_in_order(log: Ledger) -> None:
    chance = Random(4)
    record(log, history(chance, jobs=8), chance)
    events = log.log(0, log.bound(), 10**6)
    ids = {event.stream.split("/")[1] for event in events}
    for job in ids:
        mine = [event.position for event in events if event.stream.split("/")[1] == job]
        assert [one.position for one in timeline(log, job, limit=10_000)] == mine


def test_what_is_not_there_and_what_cannot_be_asked(log: Ledger) -> None:
    job = Jobs(log).submit("embed")
    assert timeline(log, job, after=log.bound()) == []
    with pytest.raises(StreamNotFound):
        timeline(log, str(uuid4()))
    for wrong in ({"limit": 0}, {"limit": 10_001}, {"limit": True}):
        with pytest.raises(BadInput, match="limit"):
            timeline(log, job, **wrong)


def test_an_event_of_newer_code_is_told_as_it_is(log: Ledger) -> None:
    job = Jobs(log).submit("embed")
    log.append(OpenJob.name_of(job), Body("job.paused_by_moon", 1, '{"phase": "full"}'))
    assert told(log, job)[-1] == ("job.paused_by_moon", "info", None, {"phase": "full"})


def test_an_event_is_the_newest_until_another_follows_or_the_history_is_another(log: Ledger) -> None:
    job = handed_out(log, 2)
    second, first, created = newest_events(log, job)
    assert [is_newest(log, job, one) for one in (second, first, created)] == [True, False, False]
    otherwise: dict[str, Any] = {
        "position": second.position + 1, "stream": first.stream, "version": 2, "topic": "batch.started",
        "schema": 2, "data": created.data, "recorded_at": second.recorded_at + timedelta(microseconds=1),
    }  # fmt: skip
    for name, value in otherwise.items():  # as after a restore
        assert not is_newest(log, job, second._replace(**{name: value})), name
    Jobs(log).comment(job, "look at this", "mina")
    assert not is_newest(log, job, second)
    assert is_newest(log, job, newest_events(log, job, limit=1)[0])
    assert not is_newest(log, str(uuid4()), second)
