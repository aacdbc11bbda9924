"""What hangs on a job that is over is cancelled, down to the last (W1-04, W1-12, W1-17)."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from consumers.jobs import cascade as module
from consumers.jobs.cascade import Cascade, cascade
from consumers.jobs.dispatch import outcome_of
from consumers.jobs.operation import OperationResult
from ledger import BadInput, GuardFailed, Ledger
from ledger.errors import WorkStopped
from projections import Follower

from .sets import Sets, topics


@pytest.fixture
def sets(log: Ledger) -> Sets:
    return Sets(log)


def test_a_cancel_goes_down_to_the_last(sets: Sets, log: Ledger) -> None:
    job = sets.deferred(batches=2, children=1)
    (child,) = sets.children(job)
    sets.dispatch(sets.claim(child), batches=1, children=1)
    (grandchild,) = sets.children(child)
    running = sets.claim(job, "2")
    sets.jobs.cancel(job)
    sets.cascade()
    assert set(sets.statuses(job).values()) | set(sets.statuses(child).values()) == {"cancelled"}
    assert [sets.jobs.status(one) for one in (job, child, grandchild)] == ["cancelled"] * 3
    (cancelled,) = [event for event in sets.jobs.events(grandchild) if event.topic == "job.cancelled"]
    assert cancelled.event.reason == "parent_cancelled"  # type: ignore[union-attr]
    assert cancelled.meta.actor == "reactor cascade"
    head = log.head(f"batch/{job}/2")
    assert head is not None
    assert (head.status, head.token) == ("cancelled", None)
    with pytest.raises(WorkStopped):
        running.emit("too.late")


def test_what_is_over_is_left(sets: Sets) -> None:
    job = sets.deferred(batches=4, children=1)
    for nr, how in zip("123", ("complete", "fail", "cancel"), strict=True):
        sets.end(how, job, nr)
    sets.end("complete", *sets.children(job))
    sets.jobs.cancel(job)
    sets.cascade()
    assert sets.statuses(job) == {"1": "completed", "2": "failed", "3": "cancelled", "4": "cancelled"}
    assert sets.jobs.status(*sets.children(job)) == "succeeded"
    before = sets.log.bound()
    Cascade(sets.log)(sets.jobs.events(job)[-1])  # told again, it finds nothing to do
    assert sets.log.bound() == before


def test_many_batches_in_pieces(sets: Sets, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some end between the look and the cancel."""
    monkeypatch.setattr(module, "MAX_STREAMS", 20)
    job = sets.deferred(batches=50)
    whole = Cascade._cancel

    def late(self: Cascade, streams: list[str], *more: Any) -> bool:
        for stream in streams[::7]:
            sets.end("complete", job, stream.rpartition("/")[2])
        return whole(self, streams, *more)

    monkeypatch.setattr(Cascade, "_cancel", late)
    sets.jobs.cancel(job)
    sets.cascade()
    statuses = list(sets.statuses(job).values())
    assert (statuses.count("completed"), statuses.count("cancelled")) == (8, 42)


def test_heads_that_know_nothing_are_looked_through(sets: Sets, admin_dsn: str) -> None:
    import psycopg

    job = sets.deferred(batches=3)
    sets.end("complete", job, "2")
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute(
            "UPDATE ledger.heads SET status = NULL, state = NULL, state_version = 0 WHERE stream ^@ 'batch/'"
        )
    sets.jobs.cancel(job)
    sets.cascade()
    assert sets.statuses(job) == {"1": "cancelled", "2": "completed", "3": "cancelled"}


def test_a_job_that_is_offered_again_loses_its_round(sets: Sets) -> None:
    """Also where the cascade is so far behind that the next round is there already."""
    job = sets.jobs.submit("split", max_attempts=2)
    session = sets.claim(job)
    messages = [("q", {"operation": "part"})] * 2
    outcome_of(session, OperationResult(deferred=True, publish_operations=messages))
    with sets.log.open(type(sets.load(job)), job) as opened:
        opened.release()
    sets.dispatch(sets.claim(job), batches=2)
    sets.cascade()
    assert sets.statuses(job) == {"1": "cancelled", "2": "cancelled", "2.1": "queued", "2.2": "queued"}


def test_a_failed_job_that_was_redriven_keeps_its_new_set(sets: Sets) -> None:
    job = sets.deferred(batches=2, children=1, failure_ratio=0.1)
    (old,) = sets.children(job)
    sets.end("fail", job, "1")
    sets.fan_in()
    sets.jobs.retry(job)
    sets.dispatch(sets.claim(job), batches=1, children=1)
    sets.cascade()
    assert sets.statuses(job) == {"1": "failed", "2": "cancelled", "2.1": "queued"}
    assert (sets.jobs.status(old), sets.jobs.status(*sets.children(job))) == ("cancelled", "queued")


def test_nothing_is_handed_out_after_the_cancel(sets: Sets) -> None:
    """A member is in the log before the cancel of its parent, or refused: so the cascade finds all."""
    job = sets.jobs.submit("split")
    session = sets.claim(job)
    began, stopped = threading.Event(), list[BaseException]()

    def endless():  # type: ignore[no-untyped-def]
        for _ in range(1_000_000):
            yield "q", {"operation": "part"}
            began.set()

    def hand_out() -> None:
        try:
            sets.record(session, OperationResult(deferred=True, publish_operations=endless()))
        except WorkStopped as error:
            stopped.append(error)

    thread = threading.Thread(target=hand_out)
    thread.start()
    assert began.wait(30)
    sets.jobs.cancel(job)
    thread.join(30)
    assert len(stopped) == 1
    with pytest.raises((GuardFailed, BadInput)):
        sets.jobs.submit("part", parent=job)
    events = Follower(sets.log, batch=100_000).poll()
    (cancelled,) = [event.position for event in events if event.topic == "job.cancelled"]
    queued = [event.position for event in events if event.topic == "batch.queued"]
    assert max(queued, default=0) < cancelled
    sets.cascade()
    assert set(sets.statuses(job).values()) <= {"cancelled"}


def test_a_lone_job_costs_nothing(sets: Sets) -> None:
    job = sets.jobs.submit("part")
    sets.jobs.cancel(job)
    reactor = cascade(sets.log)
    assert reactor.catch_up() == 1
    assert topics(sets.jobs.events(job)) == ["job.created", "job.cancelled"]
