"""
The life of a job and of a batch, move by move: given what happened, when somebody decides, then this holds.

The rows of the table of spec 2.3, as far as a stream decides them, and S1-20 to S1-32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ledger import BadInput, MoveNotAllowed
from ledger.errors import ClaimLost
from ledger.jobs import OpenJob
from tests.jobs.given import (
    ENDS,
    ID,
    START,
    When,
    Work,
    after,
    batch,
    computing,
    dispatched,
    ended,
    job,
    news,
    running,
    writing,
)

# The table of spec 2.3: from, trigger, event, to.


def failed_set() -> OpenJob:
    """A job that failed with its set."""
    return after(dispatched(), lambda w: w.fail("AllChildrenFailed"))  # type: ignore[no-any-return]


MOVES: list[tuple[str, Callable[[], Work], When, str, str]] = [
    ("a worker claims it", job, START, "job.started", "running"),
    ("its operation returned", running, ENDS["succeeded"], "job.succeeded", "succeeded"),
    ("it was deferred", running, lambda w: w.dispatch(2), "job.dispatched", "running"),
    ("its operation raised", running, lambda w: w.attempt_failed("OSError"), "job.failed", "failed"),
    (
        "its operation raised, and may be tried again",
        lambda: running(max_attempts=2),
        lambda w: w.attempt_failed("OSError"),
        "job.attempt_failed",
        "queued",
    ),
    ("what it needs is busy", running, lambda w: w.retry_later("busy"), "job.retry_later", "queued"),
    ("its worker vanished", running, lambda w: w.expire(), "job.lease_expired_requeue", "queued"),
    (
        "its worker vanished too often",
        lambda: running(max_requeues=0),
        lambda w: w.expire(),
        "job.lease_expired",
        "failed",
    ),
    ("it waits for long", job, lambda w: w.offer_again(), "job.queue_stall_requeue", "queued"),
    ("its worker leaves", running, lambda w: w.release(), "job.released", "queued"),
    ("somebody cancels what waits", job, lambda w: w.cancel(), "job.cancelled", "cancelled"),
    ("somebody cancels what runs", running, lambda w: w.cancel(), "job.cancelled", "cancelled"),
    ("somebody cancels a set", dispatched, lambda w: w.cancel(), "job.cancelled", "cancelled"),
    ("its set failed", dispatched, lambda w: w.fail("AllChildrenFailed"), "job.failed", "failed"),
    ("somebody redrives it", lambda: ended("failed"), lambda w: w.redrive(), "job.redriven", "queued"),
    ("somebody discards it", lambda: ended("failed"), lambda w: w.discard(), "job.discarded", "failed"),
    ("a worker claims a batch", batch, START, "batch.started", "running"),
    ("its first step is done", computing, lambda w: w.computed("w", "q", {}), "batch.computed", "computed"),
    ("it has no second step", computing, lambda w: w.complete(), "batch.completed", "completed"),
    ("its second step is done", writing, lambda w: w.complete(), "batch.completed", "completed"),
    ("its first step raised", computing, lambda w: w.attempt_failed("E"), "batch.attempt_failed", "queued"),
    ("its second step raised", writing, lambda w: w.attempt_failed("E"), "batch.attempt_failed", "computed"),
    ("its writer is busy", writing, lambda w: w.retry_later("busy"), "batch.retry_later", "computed"),
    ("its writer leaves", writing, lambda w: w.release(), "batch.released", "computed"),
    ("its writer vanished", writing, lambda w: w.expire(), "batch.lease_expired_requeue", "computed"),
    ("a batch is cancelled", writing, lambda w: w.cancel("parent_cancelled"), "batch.cancelled", "cancelled"),
    (
        "a batch failed for good",
        lambda: writing(max_attempts=1),
        lambda w: w.attempt_failed("E"),
        "batch.failed",
        "failed",
    ),
    (
        "somebody redrives the second step",
        lambda: after(writing(), lambda w: w.fail("E")),
        lambda w: w.redrive(),
        "batch.redriven",
        "computed",
    ),
    (
        "somebody redrives the job that it belongs to",
        lambda: after(writing(), lambda w: w.cancel()),
        lambda w: w.redrive_with_job(3),
        "batch.redriven",
        "computed",
    ),
    ("its set goes on", failed_set, lambda w: w.reopen(), "job.reopened", "running"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "when", "topic", "status"), [m[1:] for m in MOVES], ids=[m[0] for m in MOVES]
)
def test_a_move_of_the_table(given: Callable[[], Work], when: When, topic: str, status: str) -> None:
    work = given()
    when(work)
    assert news(work)[-1:] == [topic]
    assert work.state.status == status


# What is refused, and stores nothing.

CLAIMED: dict[str, When] = {
    "succeed": lambda w: w.succeed(), "report": lambda w: w.report("x"), "release": lambda w: w.release(),
    "retry_later": lambda w: w.retry_later("busy"), "expire": lambda w: w.expire(),
    "begin_dispatch": lambda w: w.begin_dispatch(), "dispatch": lambda w: w.dispatch(1),
}  # fmt: skip


@pytest.mark.parametrize("what", CLAIMED)
@pytest.mark.parametrize("given", [job, dispatched, *(lambda how=how: ended(how) for how in ENDS)])
def test_without_a_claim_nothing_of_a_worker_is_recorded(given: Callable[[], OpenJob], what: str) -> None:
    """Also not of a worker whose claim was taken away, or whose job was dispatched (W1-03, W1-12)."""
    work = given()
    before = work.state
    with pytest.raises((ClaimLost, MoveNotAllowed)):
        CLAIMED[what](work)
    assert (work.news, work.state) == ([], before)


REFUSED: list[tuple[Callable[[], Work], When]] = [
    (lambda: OpenJob(ID), START), (running, START), (dispatched, START),
    *((lambda how=how: ended(how), START) for how in ENDS),
    (job, lambda w: w.redrive()), (running, lambda w: w.redrive()), (dispatched, lambda w: w.redrive()),
    (lambda: ended("succeeded"), lambda w: w.redrive()), (lambda: ended("cancelled"), lambda w: w.redrive()),
    (lambda: after(ended("failed"), lambda w: w.discard()), lambda w: w.redrive()),
    (dispatched, lambda w: w.reopen()), (lambda: ended("failed"), lambda w: w.reopen()),
    (lambda: after(failed_set(), lambda w: w.discard()), lambda w: w.reopen()), (failed_set, START),
    (lambda: after(dispatched(), lambda w: w.cancel()), lambda w: w.reopen()),
    (lambda: after(computing(), lambda w: w.complete()), lambda w: w.redrive_with_job(1)),
    (computing, lambda w: w.redrive_with_job(1)),
    (running, lambda w: w.offer_again()), (lambda: ended("failed"), lambda w: w.offer_again()),
    (job, lambda w: w.fail("E")), (lambda: ended("cancelled"), lambda w: w.fail("E")),
    (job, lambda w: w.create("again")), (running, lambda w: w.create("again")),
    (computing, lambda w: w.redrive()), (writing, lambda w: w.offer_again()), (batch, lambda w: w.fail("E")),
    (computing, START), (lambda: after(writing(), lambda w: w.complete()), START),
    (batch, lambda w: w.queue(1, "again", "q")), (writing, lambda w: w.queue(1, "again", "q")),
]  # fmt: skip


@pytest.mark.parametrize(("given", "when"), REFUSED)
def test_a_move_that_is_in_no_row_is_refused(given: Callable[[], Work], when: When) -> None:
    work = given()
    before = work.state
    with pytest.raises(MoveNotAllowed):
        when(work)
    assert (work.news, work.state) == ([], before)


@pytest.mark.parametrize("how", ENDS)
def test_c1_2_cancelling_what_is_over_changes_nothing(how: str) -> None:
    work = ended(how)
    before = work.state
    assert work.cancel("again") is False
    assert (work.news, work.state) == ([], before)


@pytest.mark.parametrize("given", [job, running, lambda: ended("succeeded"), lambda: ended("cancelled")])
def test_only_what_failed_is_discarded_and_only_once(given: Callable[[], OpenJob]) -> None:
    assert given().discard() is False
    work = after(ended("failed"), lambda w: w.discard("hopeless"))
    assert (work.state.discarded, work.discard(), work.news) == (True, False, [])


@pytest.mark.parametrize(
    "fields", [{"operation": ""}, {"queue": " "}, {"max_attempts": 0}, {"timeout_seconds": 0}]
)
def test_s1_01_what_nobody_could_run_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        OpenJob(ID).create(**{"operation": "embed", **fields})


@pytest.mark.parametrize(
    "wrong", [{"batches": 0}, {"batches": 1, "failure_ratio": 0}, {"batches": 1, "failure_ratio": 1.1}]
)
def test_s1_40_an_empty_set_is_no_dispatch(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        running().dispatch(**wrong)
