"""The weaknesses of the origin (spec W1-01 to W1-22): which test holds each; some of the tests are here."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pytest

from consumers.jobs.claim import LogOffers
from consumers.jobs.context import OperationContext
from consumers.jobs.messages import Failed, RetryLater
from consumers.jobs.operation import Registry
from ledger import GuardFailed, Ledger, MoveNotAllowed
from ledger.jobs import Jobs, OpenBatch, OpenJob
from ledger.jobs.leases import Leases
from projections import Projector, views_named
from projections.jobs import JobQueries
from projections.jobs.unclaimed import unclaimed
from tests.jobs.claims import WORKER
from tests.jobs.sets import Sets

HERE = Path(__file__).parent
Connection = psycopg.Connection[Any]

HELD_BY: dict[str, tuple[str, ...]] = {
    "W1-01": (
        "test_reaper::test_w1_01_two_workers_never_have_one_job",
        "test_laws::test_of_two_that_claim_at_once_one_has_it",
    ),
    "W1-02": ("test_reaper::test_w1_02_what_a_killed_worker_had_is_offered_again",),
    "W1-03": (
        "test_reaper::test_w1_03_a_late_worker_changes_nothing",
        "test_laws::test_a_stale_token_changes_nothing",
        "test_states::test_w1_03_a_late_result_is_kept_and_changes_nothing",
    ),
    "W1-04": (
        "test_cascade::test_a_cancel_goes_down_to_the_last",
        "test_cascade::test_nothing_is_handed_out_after_the_cancel",
    ),
    "W1-05": (
        "test_states::test_w1_05_retries_are_counted_in_a_row_and_end",
        "test_retry_later::test_w1_05_nobody_sleeps",
        "test_retry_later::test_w1_05_a_kill_during_the_wait_loses_nothing",
    ),
    "W1-06": (
        "test_weaknesses::test_w1_06_what_a_failed_operation_had_half_done_is_not_committed",
        "test_transactions::test_an_error_in_the_block_ends_nothing",
    ),
    "W1-07": ("test_weaknesses::test_w1_07_an_unknown_operation_leaves_no_job_running",),
    "W1-08": (
        "test_weaknesses::test_w1_08_what_is_recorded_is_offered",
        "test_transactions::test_a_job_ends_with_its_rows_and_what_it_submits",
    ),
    "W1-09": (
        "test_fan_in::test_many_fan_ins_close_once",
        "test_transactions::test_rows_and_end_in_one_transaction",
    ),
    "W1-10": (
        "test_fan_in::test_some_failed_and_the_rest_did_well",
        "test_fan_in::test_a_redriven_batch_counts_again",
    ),
    "W1-11": ("test_reaper::test_w1_11_a_healthy_job_may_run_for_as_long_as_it_wants",),
    "W1-12": (
        "test_reaper::test_w1_12_a_dispatched_parent_is_never_a_candidate",
        "test_cascade::test_a_job_that_is_offered_again_loses_its_round",
    ),
    "W1-13": ("test_reaper::test_w1_13_nothing_is_offered_before_the_requeue_is_committed",),
    "W1-14": ("test_fan_in::test_none_did_well",),
    "W1-15": (
        "test_weaknesses::test_w1_15_what_is_visible_is_what_holds",
        "test_transactions::test_rows_and_end_in_one_transaction",
    ),
    "W1-16": ("test_limits::test_w1_16_a_limit_is_exact_under_racing_takers",),
    "W1-17": ("test_weaknesses::test_w1_17_a_deleted_job_leaves_no_child_alone",),
    "W1-18": (
        "test_timeline::test_w1_18_pages_follow_the_log_and_leave_nothing_out",
        "test_weaknesses::test_w1_18_jobs_of_one_moment_are_on_one_page_each",
    ),
    "W1-19": ("test_weaknesses::test_w1_19_a_dead_letter_says_why_and_comes_back_or_goes",),
    "W1-20": ("test_leases::test_w1_20_an_operation_that_holds_the_interpreter_keeps_its_lease",),
    "W1-21": ("test_unique::test_w1_21_of_concurrent_duplicates_one_is_submitted",),
    "W1-22": ("test_weaknesses::test_w1_22_what_is_said_names_the_attempt_that_said_it",),
}


@cache
def known_in(file: str) -> frozenset[str]:
    """The tests that a file of this folder has."""
    tree = ast.parse((HERE / f"{file}.py").read_text(encoding="utf-8"))
    return frozenset(
        node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


def test_every_weakness_is_in_the_table() -> None:
    assert list(HELD_BY) == [f"W1-{nth:02}" for nth in range(1, 23)]


@pytest.mark.parametrize("weakness", HELD_BY)
def test_a_weakness_is_held_by_tests_that_there_are(weakness: str) -> None:
    for place in HELD_BY[weakness]:
        file, _, name = place.partition("::")
        assert name in known_in(file), f"{weakness}: {place}"


def caught_up(log: Ledger, *views: str) -> None:
    Projector(log, views_named(views)).catch_up()


NOMINATE = "SELECT stream FROM ledger_views.nominate_work(NULL, NULL, %s)"


def half_done(session: OperationContext) -> None:
    """An operation that fails between two of its rows."""
    with session.transaction() as writing:
        writing.execute("INSERT INTO mine VALUES (1)")
        raise ArithmeticError("half done")


def test_w1_06_what_a_failed_operation_had_half_done_is_not_committed(
    log: Ledger, connection: Connection
) -> None:
    """Its rows, and the jobs that it prepared; whether it failed or was put off."""
    connection.execute("CREATE TABLE mine (n integer)")
    sets = Sets(log)
    for outcome in (Failed, RetryLater):
        session = sets.claim(sets.jobs.submit("embed", max_attempts=2))
        child = session.submit("ping")
        with pytest.raises(ArithmeticError):
            half_done(session)
        sets.record(session, outcome(session.task.stream, session.task.token))
        assert log.head(OpenJob.name_of(child)) is None
    assert connection.execute("SELECT count(*) FROM mine").fetchone() == (0,)


def test_w1_07_an_unknown_operation_leaves_no_job_running(log: Ledger) -> None:
    """Nobody claims what he does not know: it waits, and it is said why."""
    with pytest.raises(KeyError, match="nowhere"):
        Registry().get("nowhere")
    job = Jobs(log).submit("nowhere", queue="quick")
    caught_up(log, "work")
    assert LogOffers(log, "w", None, 60, operations=["ping"]).take(9) == []
    assert unclaimed(log) == [("quick", "nowhere", 1, "no worker runs")]
    Leases(log).register("w", **WORKER)
    assert unclaimed(log) == [("quick", "nowhere", 1, "no worker knows its operation")]
    Leases(log).register("w", **{**WORKER, "operations": ["nowhere"]})
    assert unclaimed(log) == []
    Leases(log).register("v", **{**WORKER, "operations": ["nowhere"], "queues": ["default"]})
    Leases(log).register("w", **{**WORKER, "operations": ["nowhere"], "draining": True})
    assert unclaimed(log)[0].why == "no worker that knows its operation takes from its queue"
    assert Jobs(log).status(job) == "queued"


def test_w1_08_what_is_recorded_is_offered(log: Ledger, connection: Connection) -> None:
    """There is no second step after the commit that could fail: the log itself is the queue."""
    job = Jobs(log).submit("ping")
    assert log.bound() == log.read(OpenJob.name_of(job))[0].position
    caught_up(log, "work")
    assert connection.execute(NOMINATE, [1]).fetchall() == [(OpenJob.name_of(job),)]


def test_w1_15_what_is_visible_is_what_holds(log: Ledger, connection: Connection) -> None:
    """An event and what it changes are one append: both are seen, or neither is."""
    sets = Sets(log)
    job = sets.jobs.submit("embed")
    session = sets.claim(job)
    session.emit("page.done", fields={"_progress_current": 3, "_progress_total": 9})
    head = log.head(OpenJob.name_of(job))
    assert head is not None
    assert head.version == head.state_version == 3
    assert (sets.jobs.get(job).progress_current, sets.jobs.get(job).progress_total) == (3, 9)
    stale = log.load(OpenJob, job)
    sets.jobs.cancel(job)
    stale.succeed({"n": 1})
    with pytest.raises(GuardFailed):
        log.append_all([stale.under_lease(session.task.token)])
    assert "job.succeeded" not in [event.topic for event in sets.jobs.events(job)]
    assert sets.jobs.status(job) == "cancelled"


def test_w1_17_a_deleted_job_leaves_no_child_alone(log: Ledger, connection: Connection) -> None:
    """A job whose members run is cancelled first, and they with it; a deleted one keeps its history."""
    sets = Sets(log)
    parent = sets.deferred(batches=1, children=1)
    (child,) = sets.children(parent)
    with pytest.raises(MoveNotAllowed):
        sets.jobs.delete(parent)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("DELETE FROM ledger.events WHERE stream = %s", [OpenJob.name_of(parent)])
    sets.jobs.cancel(parent)
    sets.cascade()
    assert sets.jobs.get(child).parent == parent
    assert sets.jobs.status(child) == "cancelled"
    assert log.load(OpenBatch, parent, "1").state.status == "cancelled"
    sets.jobs.delete(parent)
    assert log.read(OpenJob.name_of(parent))[0].topic == "job.created"
    assert sets.jobs.get(child).parent == parent


def test_w1_18_jobs_of_one_moment_are_on_one_page_each(log: Ledger) -> None:
    """Pages are cut by position: jobs of one append have one time, and none is left out or told twice."""
    made = []
    for n in range(5):
        job = OpenJob(f"00000000-0000-4000-8000-00000000000{n}")
        job.create("ping")
        made.append(job)
    log.commit(*made)
    caught_up(log, "jobs")
    asked, seen, after = JobQueries(log), list[Any](), None
    while page := asked.list(after=after, limit=2):
        seen += page
        after = page[-1].position
    assert len({one.created_at for one in seen}) == 1
    assert [one.id for one in seen] == [str(job.key[0]) for job in reversed(made)]


def test_w1_19_a_dead_letter_says_why_and_comes_back_or_goes(log: Ledger) -> None:
    sets, asked = Sets(log), JobQueries(log)
    codes = ("OSError", "OSError", "KeyError")
    ids = [sets.jobs.submit("embed", queue="gpu") for _ in codes]
    for job, code in zip(ids, codes, strict=True):
        session = sets.claim(job)
        what = {"error_code": code, "message": f"why {job}"}
        sets.record(session, Failed(session.task.stream, session.task.token, **what))
    caught_up(log, "jobs")
    letters = asked.dead()
    assert [(one.job, one.message) for one in letters] == [(job, f"why {job}") for job in reversed(ids)]
    assert [one.job for one in asked.dead(error_code="OSError")] == [ids[1], ids[0]]
    assert asked.dead(operation="write") == asked.dead(queue="cpu") == []
    assert [one.job for one in asked.dead(after=letters[0].position, limit=1)] == [ids[1]]
    sets.jobs.retry(ids[0], "the disk is there again")
    sets.jobs.discard(ids[1], "hopeless")
    caught_up(log, "jobs")
    assert [one.job for one in asked.dead()] == [ids[2]]
    assert [one.discarded for one in asked.list(status="failed")] == [False, True]


def test_w1_22_what_is_said_names_the_attempt_that_said_it(log: Ledger) -> None:
    """An attempt that is made again is a claim of its own: what the one before said carries its token."""
    sets = Sets(log)
    job = sets.jobs.submit("embed", max_attempts=2)
    tokens = []
    for _ in range(2):
        session = sets.claim(job)
        session.emit("page.done")
        tokens.append(session.task.token)
        sets.record(session, Failed(session.task.stream, session.task.token, error_code="OSError"))
    told: list[Any] = [event.event for event in sets.jobs.events(job)]
    assert [fact.token for fact in told if fact.topic == "job.reported"] == tokens
    assert [fact.token for fact in told if fact.topic == "job.started"] == tokens
    assert len(set(tokens)) == 2
