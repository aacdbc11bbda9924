"""What each fact does to the state of a job or a batch, and to the token of its claim (spec S1-20 to 41)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta

import pytest

from ledger import BadInput, Event
from ledger.errors import ClaimLost
from ledger.jobs import OpenBatch, OpenJob
from ledger.jobs.work import LONGEST_DELAY
from tests.jobs.given import (
    ENDS,
    ID,
    NOW,
    START,
    When,
    Work,
    after,
    batch,
    computing,
    dispatched,
    ended,
    job,
    running,
    settled,
    writing,
)

# What each fact does to the state.


def test_s1_21_a_claim_is_known_by_its_token_worker_and_attempt() -> None:
    state = running().state
    assert (state.token, state.worker, state.attempt, state.started_at) == (2, "worker-1", 1, NOW)
    assert (state.offered_at, state.due_at) == (None, None)


@pytest.mark.parametrize(
    ("said", "expected"),
    [({}, (1, 2)), ({"progress_current": 9}, (9, 2)), ({"progress_total": 0}, (1, 0))],
)
def test_s1_23_numbers_of_progress_overwrite_each_its_own(
    said: dict[str, int], expected: tuple[int, int]
) -> None:
    for when in (lambda w: w.succeed(**said), lambda w: w.report("page.done", **said)):
        work = after(running(), lambda w: w.report("x", progress_current=1, progress_total=2), when)
        assert (work.state.progress_current, work.state.progress_total) == expected


def test_s1_25_a_failure_keeps_its_code_its_words_and_its_time() -> None:
    work = after(running(), lambda w: w.attempt_failed("OSError", "disk", {"exit_code": 1}))
    state = work.state
    assert (state.error_code, state.error_message, state.token) == ("OSError", "disk", None)
    assert state.finished_at == NOW + timedelta(minutes=1)
    assert state.started_at == NOW


def test_s1_26_long_words_are_cut_in_the_state_and_whole_in_the_fact() -> None:
    for given, when in ((running, "fail"), (lambda: running(max_attempts=2), "attempt_failed")):
        work = given()
        getattr(work, when)("OSError", "ä" * 5000)
        assert work.state.error_message == "ä" * 2000
        assert work.news[0].message == "ä" * 5000


@pytest.mark.parametrize(
    ("base", "delays"), [(30, [30, 60, 120, 240, 480, 600, 600]), (900, [600, 600]), (-1, [0])]
)
def test_s1_27_a_retry_waits_twice_as_long_each_time(base: float, delays: list[float]) -> None:
    work = job()
    for nth, delay in enumerate(delays, 1):
        work = after(work, START, lambda w: w.retry_later("busy", base))
        state = work.state
        assert (state.status, state.delay_seconds, state.retries) == ("queued", delay, nth)
        assert (state.started_at, state.worker, state.token) == (None, None, None)
        assert state.due_at == NOW + timedelta(minutes=2, seconds=delay)


def test_w1_05_retries_are_counted_in_a_row_and_end() -> None:
    put_off: list[When] = [START, lambda w: w.retry_later("busy")]
    work = after(job(max_retries=2, max_attempts=3), *put_off * 2)
    assert (work.state.retries, work.state.failures) == (2, 0)
    work = after(work, START, lambda w: w.attempt_failed("OSError"))
    assert (work.state.retries, work.state.failures) == (0, 1)  # it got on meanwhile
    work = after(work, *put_off * 3)
    assert (work.state.status, work.state.error_code) == ("failed", "RetriesExhausted")
    assert "busy" in work.state.error_message


def test_budgets_of_failures_retries_and_vanished_workers_are_three() -> None:
    work = after(
        job(max_attempts=3, max_retries=3, max_requeues=2),
        START, lambda w: w.expire(), START, lambda w: w.retry_later("busy"),
        START, lambda w: w.release(), START, lambda w: w.attempt_failed("E"), START, lambda w: w.expire(),
        START,
    )  # fmt: skip
    state = work.state
    assert (state.failures, state.retries, state.requeues, state.attempt) == (1, 0, 2, 6)
    assert after(work, lambda w: w.expire()).state.error_code == "lease_expired"


def test_a_delay_between_attempts_is_bounded() -> None:
    work = after(running(max_attempts=2), lambda w: w.attempt_failed("E", delay=10**9))
    assert work.state.delay_seconds == LONGEST_DELAY


def test_s1_62_a_vanished_worker_is_told_with_its_budget() -> None:
    work = running(max_requeues=1)
    work.expire()
    (fact,) = work.news
    assert fact.model_dump() == {"token": 2, "worker": "worker-1", "prior_requeues": 0, "max_requeues": 1}
    work = after(settled(work), START, lambda w: w.expire())
    assert work.state.error_message == "its worker vanished 2 times, at last worker-9"
    assert work.state.status == "failed"


@pytest.mark.parametrize("given", [job, running, dispatched, lambda: ended("cancelled"), batch, writing])
def test_w1_03_a_late_result_is_kept_and_changes_nothing(given: Callable[[], Work]) -> None:
    work = given()
    before = work.state
    work.record(work.late(1, "succeeded", result={"n": 1}))
    after_it = work.state
    assert after_it.late == before.late + 1
    assert {f: getattr(after_it, f) for f in before.__slots__ if f != "late"} == {
        f: getattr(before, f) for f in before.__slots__ if f != "late"
    }
    assert work.lease() is None


def test_a_redrive_begins_anew_but_keeps_what_it_is() -> None:
    work = after(running(max_attempts=2, priority=4, tags=("red",)), lambda w: w.attempt_failed("E"), START)
    work = after(work, lambda w: w.fail("OSError", "disk"), lambda w: w.redrive("mended"))
    state = work.state
    assert (state.attempt, state.failures, state.retries, state.requeues) == (0, 0, 0, 0)
    assert (state.status, state.finished_at, state.priority, state.tags) == ("queued", None, 4, ("red",))
    assert state.error_code == "OSError"  # why it was redriven shows until it succeeds
    assert after(work, START, ENDS["succeeded"]).state.error_code is None


def test_s1_40_a_dispatched_job_has_no_worker_and_a_total() -> None:
    work = dispatched(3, children=["a", "b"], failure_ratio=0.5)
    state = work.state
    assert (state.status, state.token, state.dispatched, state.rounds) == ("running", None, True, 1)
    assert (state.progress_current, state.progress_total, state.failure_ratio) == (0, 5, 0.5)
    for when in (lambda w: w.cancel(), lambda w: w.fail("AllChildrenFailed")):
        assert after(dispatched(), when).state.dispatched is False


def test_a_second_round_of_batches_has_names_of_its_own() -> None:
    work = after(dispatched(), lambda w: w.fail("E"), lambda w: w.redrive(), START)
    assert work.begin_dispatch() == 2
    assert (OpenBatch.number(1, 7), OpenBatch.number(2, 7)) == ("7", "2.7")


def test_a_child_counts_once() -> None:
    work = after(
        running(), lambda w: w.add_child("a"), lambda w: w.add_child("a"), lambda w: w.dispatch(0, ["a", "b"])
    )
    assert (work.state.children, work.state.progress_total) == (("a", "b"), 2)
    with pytest.raises(BadInput, match="no more child jobs"):
        ended("failed").add_child("c")


def test_s1_41_a_second_step_has_a_payload_and_budgets_of_its_own() -> None:
    work = after(computing(max_attempts=3), lambda w: w.attempt_failed("E"), START)
    work = after(work, lambda w: w.computed("embed.write", "disk", {"uri": "s3://x"}))
    state = work.state
    assert (state.status, state.operation, state.queue, state.step) == (
        "computed",
        "embed.write",
        "disk",
        "writing",
    )
    assert (state.failures, state.retries, state.token, state.worker) == (0, 0, None, None)
    assert after(work, START).state.status == "writing"


# Tokens and leases


def test_a_token_is_the_version_of_the_claim_and_grows() -> None:
    work, tokens = job(), list[int]()
    for _ in range(3):
        work.start("worker-1")
        tokens.append(work.state.token)
        assert tokens[-1] == work.version + 1 == work.lease()
        work = after(settled(work), lambda w: w.report("x"), lambda w: w.release())
    assert tokens == sorted(set(tokens))


def test_a_claim_in_the_same_append_as_its_offer_has_the_right_token() -> None:
    opened = OpenJob(ID)
    opened.create("embed")
    assert opened.start("worker-1").state.token == 2 == opened.next_version - 1


LEASES: list[tuple[Callable[[], Work], Iterable[When], int | None]] = [
    (job, [START], 2), (job, [START, ENDS["succeeded"]], 0), (running, [lambda w: w.report("x")], None),
    (running, [lambda w: w.release()], 0), (running, [lambda w: w.retry_later("busy")], 0),
    (running, [lambda w: w.cancel()], 0), (running, [lambda w: w.expire()], 0),
    (running, [lambda w: w.begin_dispatch()], None), (running, [lambda w: w.dispatch(1)], 0),
    (job, [lambda w: w.cancel()], None), (dispatched, [lambda w: w.fail("E")], None),
    (lambda: ended("failed"), [lambda w: w.redrive()], None), (running, [lambda w: w.release(), START], 4),
    (computing, [lambda w: w.computed("w", "q", {})], 0), (writing, [lambda w: w.complete()], 0),
]  # fmt: skip


@pytest.mark.parametrize(("given", "whens", "lease"), LEASES)
def test_the_heads_token_is_set_and_cleared_with_the_claim(
    given: Callable[[], Work], whens: Iterable[When], lease: int | None
) -> None:
    work = given()
    for when in whens:
        when(work)
    assert work.lease() == lease
    assert settled(work).lease() is None


def test_a_lease_is_checked_against_the_present_claim() -> None:
    work = running()
    work.check_lease(2)
    with pytest.raises(ClaimLost, match="token 3"):
        work.check_lease(3)
    with pytest.raises(ClaimLost):
        after(work, lambda w: w.release()).check_lease(2)


def test_every_fact_is_known_by_its_shape() -> None:
    for kind in (OpenJob, OpenBatch):
        assert all(
            issubclass(fact, Event) and fact.topic.startswith(kind.CATEGORY) for fact in kind.FACTS.values()
        )
        assert len(kind.FACTS) == 14
