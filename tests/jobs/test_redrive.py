"""Redriving what was split: what completed is kept, what failed runs again, letters have their round."""

from __future__ import annotations

import json

import pytest

from consumers.jobs.cascade import NAME
from consumers.jobs.record import Recorder, claim_part
from ledger import Ledger
from ledger.errors import DuplicateJob, Refused
from ledger.jobs import OpenBatch, OpenJob
from ledger.jobs.dead_letters import dead_letter, discard, redrive, why_not
from ledger.log.readers import Positions
from projections.engine.check import ViewCheck
from projections.engine.projector import Projector, views_named
from projections.jobs import JobQueries, timeline
from projections.shipped import load
from projections.verify import verify
from projections.verify.difference import Difference

from .claims import take
from .sets import Sets, topics


@pytest.fixture
def sets(log: Ledger) -> Sets:
    return Sets(log)


def shown(log: Ledger, *more: str) -> JobQueries:
    """The questions to the view of jobs, brought up to the end of the log."""
    load()
    Projector(log, views_named(["jobs", *more])).catch_up()
    return JobQueries(log)


def letters(log: Ledger) -> list[str]:
    return sorted(letter.stream.partition("/")[2].partition("/")[2] or "job" for letter in shown(log).dead())


def failed(sets: Sets, batches: int = 5) -> str:
    """A job of which 1 and 2 completed, 3 and 4 failed; that was too much, so the others were cancelled."""
    job = sets.deferred(batches=batches, failure_ratio=2 / batches)
    for nr, how in {"1": "complete", "2": "complete", "3": "fail", "4": "fail"}.items():
        sets.end(how, job, nr)
    sets.fan_in()
    sets.cascade()
    assert sets.jobs.status(job) == "failed"
    return job


def partly(sets: Sets) -> str:
    """A job that succeeded though its second batch of three failed."""
    job = sets.deferred(batches=3)
    for nr, how in {"1": "complete", "2": "fail", "3": "complete"}.items():
        sets.end(how, job, nr)
    sets.fan_in()
    assert sets.jobs.status(job) == "succeeded"
    return job


@pytest.mark.parametrize("followed", [(), ("progress",)])
def test_progress_is_what_did_well(sets: Sets, followed: tuple[str, ...]) -> None:
    """While it runs, and where it failed or was cancelled: of the job itself as of lists."""
    running, over, gone = (sets.deferred(batches=5, children=1, failure_ratio=0.3) for _ in range(3))
    for job in (running, over, gone):
        sets.end("complete", job, "1")
        sets.end("complete", *sets.children(job))
        sets.end("fail", job, "3")
    sets.end("fail", over, "4")
    sets.jobs.cancel(gone)
    sets.fan_in()
    sets.cascade()
    for job, status in ((running, "running"), (over, "failed"), (gone, "cancelled")):
        state = sets.jobs.get(job)
        assert (state.status, state.progress_current, state.progress_total) == (status, 2, 6)
    listed = {one.id: (one.progress_current, one.progress_total) for one in shown(sets.log, *followed).list()}
    assert listed == {running: (2, 6), over: (2, 6), gone: (2, 6)}


def test_a_failed_job_runs_again_what_did_not_complete(sets: Sets, log: Ledger) -> None:
    """What completed is kept and counted; the operation that split it does not run again."""
    job = failed(sets)
    assert sets.jobs.retry(job, "mended").status == "running"
    sets.fan_in()  # it has nothing to close yet
    sets.cascade()
    assert sets.jobs.get(job).progress_current == 2
    taken = take(log)
    assert [one.work.name for one in taken] == [f"batch/{job}/{nr}" for nr in "345"]
    assert [json.loads(one.payload) for one in taken] == [{"n": n} for n in (2, 3, 4)]
    for nr in "345":
        sets.end("complete", job, nr)
    sets.fan_in()
    state = sets.jobs.get(job)
    assert (state.status, state.progress_current, state.progress_total, state.rounds) == (
        "succeeded",
        5,
        5,
        1,
    )
    assert [(close["topic"], close.get("failed")) for close in sets.closes(job)] == [
        ("job.failed", None), ("job.succeeded", 0)
    ]  # fmt: skip
    assert topics(log.read(f"batch/{job}/1")) == ["batch.queued", "batch.started", "batch.completed"]
    assert [entry.fields["reason"] for entry in timeline(log, job) if entry.event == "job.reopened"] == [
        "mended"
    ]
    assert letters(log) == []


def test_it_may_fail_and_be_redriven_again_and_again(sets: Sets, log: Ledger) -> None:
    """Each time only what is left; a second step comes back to its second step."""
    job = failed(sets)
    for nth in (1, 2):
        sets.jobs.retry(job)
        sets.cascade()
        with log.open(OpenBatch, job, "3") as batch:
            batch.start("hand")
        with log.open(OpenBatch, job, "3") as batch:
            if nth == 1:
                batch.computed("write", "disk", {"rows": 7})
            else:
                batch.complete()
        sets.end("fail", job, "4")
        sets.end("fail", job, "5")
        sets.fan_in()
        sets.cascade()
        assert sets.jobs.get(job).reopened == nth
        assert len(sets.closes(job)) == 1 + nth
        assert letters(log) == ["4", "5", "job"]
    assert sets.statuses(job) == dict(zip("12345", ["completed"] * 3 + ["failed"] * 2, strict=True))
    verified(log)


def test_a_second_step_that_was_cancelled_is_offered_with_its_payload(sets: Sets, log: Ledger) -> None:
    job = sets.deferred(batches=2, failure_ratio=0.5)
    with log.open(OpenBatch, job, "1") as batch:
        batch.start("hand")
    with log.open(OpenBatch, job, "1") as batch:
        batch.computed("write", "disk", {"rows": 7})
    sets.end("fail", job, "2")
    sets.fan_in()
    sets.cascade()
    assert take(log) == []  # the views have seen that it was cancelled
    sets.jobs.retry(job)
    sets.cascade()
    first, second = sorted(take(log), key=lambda one: one.work.name)
    assert (first.work.state.status, first.work.state.operation, first.payload) == (
        "computed",
        "write",
        '{"rows": 7}',
    )
    assert (second.work.state.status, second.payload) == ("queued", '{"n": 1}')
    verified(log)


def verified(log: Ledger) -> None:
    """The views are what a fill from the beginning makes of them."""
    shown(log, "work", "progress")
    seen: list[Difference] = []
    for name in ("work", "jobs", "progress"):
        verify(log, processes=1, checks=[ViewCheck(views_named([name])[0])], found=seen.append)
    assert not seen


def test_a_repeated_cascade_redrives_nothing_twice(sets: Sets) -> None:
    job = failed(sets)
    sets.jobs.retry(job)
    sets.cascade()
    sets.end("fail", job, "3")
    Positions(sets.log).forget(NAME)
    sets.cascade()
    assert sets.batch(job, "3").status == "failed"


def test_a_cascade_that_is_behind_leaves_what_goes_on(sets: Sets) -> None:
    """Given a job that was redriven before anything was cancelled, then what ran goes on; none is lost."""
    job = sets.deferred(batches=4, failure_ratio=0.5)
    sets.claim(job, "4")
    sets.end("fail", job, "1")
    sets.end("fail", job, "2")
    sets.fan_in()
    sets.jobs.retry(job)
    sets.cascade()
    assert sets.statuses(job) == {"1": "queued", "2": "queued", "3": "queued", "4": "running"}
    for nr in "4321":
        sets.end("complete", job, nr)
    sets.fan_in()
    assert sets.jobs.status(job) == "succeeded"


def test_what_was_taken_while_its_job_had_failed_is_not_cancelled_after_it_was_redriven(
    sets: Sets, log: Ledger
) -> None:
    job = sets.deferred(batches=2, failure_ratio=0.5)
    sets.end("fail", job, "1")
    sets.fan_in()
    (taken,) = take(log)
    assert taken.parent_status == "failed"
    sets.jobs.retry(job)
    part = claim_part(taken, "w")
    Recorder(log, "w").record([part])
    assert (part.recorded, sets.batch(job, "2").status) == (False, "queued")


def test_what_is_cancelled_after_it_was_redriven_stays_so(sets: Sets) -> None:
    job = failed(sets)
    sets.jobs.retry(job)
    sets.jobs.cancel(job)
    sets.cascade()
    assert sets.statuses(job) == dict(
        zip("12345", ["completed"] * 2 + ["failed"] * 2 + ["cancelled"], strict=True)
    )


def test_the_whole_of_it_can_be_run_again(sets: Sets, log: Ledger) -> None:
    """And a job of which child jobs failed is: they are not its batches. Former letters are gone."""
    job = failed(sets)
    assert letters(log) == ["3", "4", "job"]
    assert sets.jobs.retry(job, whole=True).status == "queued"
    assert letters(log) == []
    sets.dispatch(sets.claim(job), batches=2)
    sets.end("fail", job, "2.1")
    sets.end("fail", job, "2.2")
    sets.fan_in()
    assert letters(log) == ["2.1", "2.2", "job"]
    assert why_not(log, dead_letter(log, f"batch/{job}/3")) is not None
    verified(log)
    other = sets.deferred(batches=1, children=1)
    sets.end("complete", other, "1")
    sets.end("fail", *sets.children(other))
    with log.open(OpenJob, other) as opened:
        opened.fail("Bad")
    assert sets.jobs.retry(other).status == "queued"


def test_a_failed_batch_of_a_job_that_succeeded_is_redriven_by_itself(sets: Sets, log: Ledger) -> None:
    """The job stays what it is, and its counts follow."""
    job = partly(sets)
    assert letters(log) == ["2"]
    redrive(log, f"batch/{job}/2", "mended")
    assert [one.work.name for one in take(log)] == [f"batch/{job}/2"]
    assert letters(log) == []
    sets.fan_in()
    sets.end("complete", job, "2")
    for _ in range(2):
        sets.fan_in()
        Positions(log).forget("fan_in")  # and once more from the beginning
    state = sets.jobs.get(job)
    assert (state.status, state.progress_current, state.progress_total) == ("succeeded", 3, 3)
    facts = [event for event in sets.jobs.events(job) if event.topic == "job.recounted"]
    assert [json.loads(fact.data or "") for fact in facts] == [
        {"progress_current": 3, "progress_total": 3, "failed": 0}
    ]
    (listed,) = shown(log).list()
    assert (listed.status, listed.progress_current, listed.progress_total) == ("succeeded", 3, 3)
    assert sets.jobs.result(job) == {}


def test_what_a_letter_can_be_is_said_as_it_is(sets: Sets, log: Ledger) -> None:
    """The advice does not go in a circle: what it names can be done."""
    job = failed(sets)
    with pytest.raises(Refused, match=f"its job, which failed: redrive job/{job}"):
        redrive(log, f"batch/{job}/3")
    redrive(log, f"job/{job}")
    redrive(log, f"batch/{job}/3")  # its job runs again
    sets.cascade()
    assert topics(log.read(f"batch/{job}/3")).count("batch.redriven") == 1
    sets.jobs.cancel(job)
    with pytest.raises(Refused, match="its job is cancelled; discard it"):
        redrive(log, f"batch/{job}/4") if sets.batch(job, "4").status == "failed" else redrive_failed(
            sets, job
        )
    done = partly(sets)
    discard(log, f"batch/{done}/2")
    with pytest.raises(Refused, match="it is discarded"):
        redrive(log, f"batch/{done}/2")


def redrive_failed(sets: Sets, job: str) -> None:
    """A batch that fails after its job was cancelled, redriven."""
    sets.end("fail", job, "4")
    redrive(sets.log, f"batch/{job}/4")


def test_a_unique_job_takes_its_key_again(sets: Sets) -> None:
    job = sets.deferred(batches=1, job={"unique": True})
    sets.end("fail", job, "1")
    sets.fan_in()
    other = sets.jobs.submit("split", unique=True)
    with pytest.raises(DuplicateJob):
        sets.jobs.retry(job)
    sets.jobs.cancel(other)
    assert sets.jobs.retry(job).status == "running"
    with pytest.raises(DuplicateJob):
        sets.jobs.submit("split", unique=True)
