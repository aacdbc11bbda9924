"""Parents are closed by their sets: once, in any order, in the state that their policy says."""

from __future__ import annotations

import pytest

from consumers.jobs.fan_in import FanIn
from consumers.jobs.operation import OperationResult
from consumers.reactor import Answer
from ledger import Ledger
from ledger.jobs.dead_letters import redrive
from ledger.log.ledger import connect
from projections import Follower

from .sets import Sets, topics


@pytest.fixture
def sets(log: Ledger) -> Sets:
    return Sets(log)


def test_the_last_of_a_set_closes_its_parent(sets: Sets) -> None:
    job = sets.deferred(batches=3)
    sets.end("complete", job, "3")
    sets.end("complete", job, "1")
    sets.fan_in()
    assert sets.jobs.status(job) == "running"
    sets.end("complete", job, "2")
    sets.fan_in()
    (close,) = sets.closes(job)
    assert (close["topic"], close["via"], close["failed"]) == ("job.succeeded", "last_batch_stored", 0)
    state = sets.jobs.get(job)
    assert (state.status, state.progress_current, state.progress_total) == ("succeeded", 3, 3)


def test_some_failed_and_the_rest_did_well(sets: Sets) -> None:
    job = sets.deferred(batches=3)
    for nr, how in zip("123", ("fail", "cancel", "complete"), strict=True):
        sets.end(how, job, nr)
    sets.fan_in()
    (close,) = sets.closes(job)
    assert (close["topic"], close["failed"], close["progress_current"]) == ("job.succeeded", 1, 1)


def test_none_did_well(sets: Sets) -> None:
    """spec S1-28, S1-45."""
    job = sets.deferred(batches=5, children=1)
    for nr, message in zip("12345", ("rare", "x" * 600, "often", "often", ""), strict=True):
        sets.end("fail", job, nr, message=message)
    sets.end("cancel", *sets.children(job))
    sets.fan_in()
    (close,) = sets.closes(job)
    assert close["topic"] == "job.failed"
    assert (close["error_code"], close["reason"]) == ("AllChildrenFailed", "all_children_failed")
    assert close["details"] == {
        "failed_children_count": 5,
        "dispatched_total": 6,
        "top_error_messages": ["often", "rare", "x" * 500],
    }
    assert sets.jobs.get(job).error_message == "All child jobs failed or were cancelled"


def test_too_many_failed_ends_it_at_once(sets: Sets) -> None:
    job = sets.deferred(batches=100, failure_ratio=0.07)
    for nr in range(1, 7):
        sets.end("fail", job, str(nr))
    sets.fan_in()
    assert sets.jobs.status(job) == "running"
    sets.end("fail", job, "7")
    sets.fan_in()
    (close,) = sets.closes(job)
    assert (close["via"], close["error_code"]) == ("child_failure_aggregate", "TooManyChildrenFailed")
    sets.cascade()
    assert set(sets.statuses(job).values()) == {"failed", "cancelled"}
    sets.fan_in()
    assert len(sets.closes(job)) == 1


def test_nothing_to_do_is_a_success(sets: Sets) -> None:
    """spec S1-40."""
    job = sets.deferred()
    assert sets.jobs.status(job) == "succeeded"
    assert "job.dispatched" not in topics(sets.jobs.events(job))


def test_batches_that_end_before_the_set_is_known(sets: Sets) -> None:
    job = sets.jobs.submit("split")
    session = sets.claim(job)
    done = []

    def messages():  # type: ignore[no-untyped-def]
        yield from (("q", {"operation": "part"}) for _ in range(1000))
        for nr in range(1, 1001, 250):  # the first piece is handed out already
            sets.end("complete", job, str(nr))
            done.append(str(nr))
        sets.fan_in()

    assert sets.record(session, OperationResult(deferred=True, publish_operations=messages()))
    assert len(done) == 4
    assert len(sets.statuses(job)) == 1000
    small = sets.jobs.submit("split")
    session = sets.claim(small)
    outcome = _outcome(session, 2)
    for nr in "12":
        sets.end("complete", small, nr)
    sets.fan_in()
    assert sets.jobs.status(small) == "running"
    sets.record(session, outcome)
    sets.fan_in()
    assert [close["topic"] for close in sets.closes(small)] == ["job.succeeded"]


def _outcome(session, batches: int):  # type: ignore[no-untyped-def]
    from consumers.jobs.dispatch import outcome_of

    messages = [("q", {"operation": "part"})] * batches
    return outcome_of(session, OperationResult(deferred=True, publish_operations=messages))


def test_only_children(sets: Sets) -> None:
    job = sets.deferred(children=2)
    one, two = sets.children(job)
    assert sets.jobs.get(one).parent == job
    sets.end("complete", one)
    sets.end("fail", two)
    sets.fan_in()
    assert sets.closes(job)[0]["failed"] == 1


def test_a_child_that_is_added_later_is_waited_for(sets: Sets) -> None:
    job = sets.deferred(batches=1)
    late = sets.jobs.submit("part", parent=job)
    sets.end("complete", job, "1")
    sets.fan_in()
    assert sets.jobs.status(job) == "running"
    sets.end("complete", late)
    sets.fan_in()
    assert sets.closes(job)[0]["progress_total"] == 2


def test_a_child_that_is_a_parent_closes_upwards(sets: Sets) -> None:
    job = sets.deferred(children=1)
    (child,) = sets.children(job)
    sets.dispatch(sets.claim(child), batches=1)
    sets.end("complete", child, "1")
    sets.fan_in()
    assert (sets.jobs.status(child), sets.jobs.status(job)) == ("succeeded", "succeeded")


def test_a_redriven_batch_counts_again(sets: Sets, log: Ledger) -> None:
    job = sets.deferred(batches=2)
    sets.end("fail", job, "1")
    with log.open(type(sets.load(job, "1")), job, "1") as batch:
        batch.redrive()
    sets.end("complete", job, "2")
    sets.fan_in()
    assert sets.jobs.status(job) == "running"
    sets.end("complete", job, "1")
    sets.fan_in()
    assert sets.closes(job)[0]["failed"] == 0


def test_a_round_of_before_does_not_count(sets: Sets) -> None:
    """W1-12: a job that is run again hands out a new set."""
    job = sets.jobs.submit("split", max_attempts=2)
    session = sets.claim(job)
    _outcome(session, 2)  # its worker vanishes before it is recorded
    sets.end("complete", job, "1")
    with sets.log.open(type(sets.load(job)), job) as opened:
        opened.expire()
    sets.dispatch(sets.claim(job), batches=2)
    sets.end("complete", job, "2")
    sets.end("complete", job, "2.1")
    sets.fan_in()
    assert sets.jobs.status(job) == "running"
    sets.end("complete", job, "2.2")
    sets.fan_in()
    assert sets.closes(job)[0]["progress_current"] == 2


def test_a_job_that_is_redriven_begins_its_set_anew(sets: Sets) -> None:
    job = sets.deferred(batches=1, children=1)
    sets.end("fail", job, "1")
    sets.end("fail", *sets.children(job))
    sets.fan_in()
    sets.jobs.retry(job)
    sets.dispatch(sets.claim(job), children=1)
    assert len(sets.children(job)) == 1
    sets.fan_in()
    assert sets.jobs.status(job) == "running"
    sets.end("complete", *sets.children(job))
    sets.fan_in()
    assert [close["topic"] for close in sets.closes(job)] == ["job.failed", "job.succeeded"]


def test_a_fan_in_that_is_far_behind_does_not_close_the_next_round(sets: Sets, log: Ledger) -> None:
    """Asked about the past, with an empty memory at every event, it finds what was decided then."""
    job = sets.deferred(batches=3, failure_ratio=0.3)
    sets.end("fail", job, "1")
    sets.end("fail", job, "2")
    sets.fan_in()
    sets.jobs.retry(job, whole=True)
    sets.dispatch(sets.claim(job), batches=2)
    answers: list[Answer] = []
    for event in Follower(log).poll():
        answers += FanIn(log)(event)
    assert [(answer.command, answer.harmless) for answer in answers] == [(f"fan_in:{job}:1", True)]


def test_a_cancelled_parent_stays_cancelled(sets: Sets) -> None:
    job = sets.deferred(batches=1)
    sets.end("complete", job, "1")
    sets.jobs.cancel(job)
    sets.fan_in()
    assert (sets.jobs.status(job), sets.closes(job)) == ("cancelled", [])


def test_many_fan_ins_close_once(sets: Sets, dsn: str) -> None:
    job = sets.deferred(batches=2)
    sets.end("complete", job, "1")
    sets.end("complete", job, "2")
    with connect(dsn) as other:
        for log in (sets.log, other):
            for event in Follower(log).poll():
                for answer in FanIn(log)(event):
                    log.append(
                        answer.stream, *answer.events, expected=answer.expected, command=answer.command
                    )
    sets.fan_in()
    sets.fan_in()
    assert len(sets.closes(job)) == 1


def test_memory_is_bounded(sets: Sets, log: Ledger) -> None:
    """What was left out of memory is counted again, and counted right."""
    jobs = [sets.deferred(batches=4) for _ in range(4)]
    for nr in "1234":
        for job in jobs:
            sets.end("complete", job, nr)
    small = FanIn(log, max_size=5)
    answers = []
    for event in Follower(log).poll():
        answers += small(event)
        assert sum(1 + len(one) for one in small._sets.values()) == small._size
        assert small._size <= 5 + 4
    assert sorted(answer.stream for answer in answers) == sorted(f"job/{job}" for job in jobs)


def test_strange_names_are_nobodys_batches(sets: Sets, log: Ledger) -> None:
    from ledger import Body

    job = sets.deferred(batches=1)
    log.append(f"batch/{job}/x.y", Body("batch.completed", 1, "{}"))
    log.append("batch/z", Body("batch.completed", 1, "{}"))
    log.append(f"job/{job}/more", Body("job.cancelled", 1, "{}"))
    sets.end("complete", job, "1")
    sets.fan_in()
    sets.cascade()
    assert sets.jobs.status(job) == "succeeded"


def test_what_completed_between_the_verdict_and_the_close_closes_it_when_it_is_redriven(
    sets: Sets, log: Ledger
) -> None:
    """Its failed batch was redriven and completed before the fan-in, which was behind, failed it."""
    job = sets.deferred(batches=1)
    sets.end("fail", job, "1")
    redrive(log, f"batch/{job}/1")
    sets.end("complete", job, "1")
    sets.fan_in()
    assert sets.jobs.status(job) == "failed"
    sets.jobs.retry(job)
    sets.fan_in()
    assert sets.jobs.status(job) == "succeeded"
