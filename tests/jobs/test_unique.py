"""Unique jobs: of all with one key, at most one is queued or running (spec S1-71, W1-21)."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from ledger import BadInput, Ledger
from ledger.errors import DuplicateJob, MoveNotAllowed
from ledger.jobs import Jobs, dedup_key
from ledger.jobs.jobs import key_of
from tests.jobs.claims import claim_one


def fail(log: Ledger, id: str) -> None:
    claimed = claim_one(log)
    assert claimed.work.state.id == id
    claimed.work.fail("Boom")
    log.append_all([claimed.work.under_lease(claimed.token)])


def test_the_key_is_that_of_operation_and_payload() -> None:
    assert dedup_key("a", {"x": 1, "y": [1.5]}) == dedup_key("a", {"y": [1.5], "x": 1})
    assert len({dedup_key("a", {}), dedup_key("b", {}), dedup_key("a", {"x": None})}) == 3
    assert len(dedup_key("a", {})) == 16


def test_a_duplicate_is_refused_and_names_the_other(log: Ledger) -> None:
    jobs = Jobs(log)
    first = jobs.submit("clean", {"a": 1, "b": 2}, unique=True)
    with pytest.raises(DuplicateJob, match=first) as raised:
        jobs.submit("clean", {"b": 2, "a": 1}, unique=True)
    assert raised.value.job == first
    assert jobs.get(first).dedup_key == raised.value.key == dedup_key("clean", {"a": 1, "b": 2})
    jobs.submit("clean", {"a": 1, "b": 2})
    jobs.submit("clean", {"a": 2}, unique=True)
    assert jobs.submit("x", unique="my key") != jobs.submit("x", unique="my/key")
    assert len(log.streams("job/")) == 5


@pytest.mark.parametrize("wrong", ["", 5, None, b"k", "a\x00"])
def test_a_key_that_is_none_is_refused(wrong: object) -> None:
    with pytest.raises(BadInput):
        key_of("x", {}, wrong)


def test_w1_21_of_concurrent_duplicates_one_is_submitted(log: Ledger) -> None:
    """The others are refused with its id, none of them with an error of the database."""
    jobs, many = Jobs(log), 6
    for round in range(5):
        barrier = Barrier(many)

        def submit(n: int, barrier: Barrier = barrier, payload: dict[str, int] | None = None) -> str:
            barrier.wait()
            try:
                return jobs.submit("clean", payload, unique=True)
            except DuplicateJob as error:
                return f"refused: {error.job}"

        payload = {"round": round % 2}  # a key that was free before, and one that is free again
        with ThreadPoolExecutor(many) as pool:
            said = [*pool.map(lambda n: submit(n, payload=payload), range(many))]  # noqa: B023
        (one,) = {word for word in said if not word.startswith("refused")}
        assert sorted(said) == sorted([one] + [f"refused: {one}"] * (many - 1))
        jobs.cancel(one)
    assert len(log.streams("job/")) == 5


def test_a_retry_takes_the_key_again(log: Ledger) -> None:
    jobs = Jobs(log)
    first = jobs.submit("clean", unique="k")
    fail(log, first)
    second = jobs.submit("clean", unique="k")
    with pytest.raises(DuplicateJob, match=second):
        jobs.retry(first)
    jobs.cancel(second)
    jobs.retry(first)
    with pytest.raises(DuplicateJob, match=first):
        jobs.submit("clean", unique="k")
    assert jobs.status(first) == "queued"


def test_whatever_happens_one_at_most_is_active(log: Ledger) -> None:
    """A walk through submits, cancels, failures and retries, beside a model of it."""
    jobs, chance = Jobs(log), random.Random(21)
    model: dict[str, str] = {}
    for step in range(60):
        active = [id for id, status in model.items() if status == "queued"]
        assert len(active) <= 1
        some = chance.choice([*model]) if model else None
        match chance.choice(["submit", "cancel", "fail", "retry"]):
            case "submit" if active:
                with pytest.raises(DuplicateJob, match=active[0]):
                    jobs.submit("clean", unique="k")
            case "submit":
                model[jobs.submit("clean", unique="k")] = "queued"
            case "cancel" if some:
                jobs.cancel(some)
                model[some] = "cancelled" if model[some] == "queued" else model[some]
            case "fail" if active:
                with log.open(type(jobs._opened(active[0])), active[0]) as job:
                    job.start("w").fail("Boom")
                model[active[0]] = "failed"
            case "retry" if some and model[some] != "failed":
                with pytest.raises(MoveNotAllowed):
                    jobs.retry(some)
            case "retry" if some and active:
                with pytest.raises(DuplicateJob, match=active[0]):
                    jobs.retry(some)
            case "retry" if some:
                jobs.retry(some)
                model[some] = "queued"
        assert jobs.wait(*model, seconds=0) == model, step


def test_racing_retries_and_submits_leave_one_active(log: Ledger) -> None:
    jobs = Jobs(log)
    ids = [jobs.submit("clean", unique="k")]
    fail(log, ids[0])

    def attempt(n: int) -> None:
        try:
            if n % 2:
                jobs.retry(ids[0])
            else:
                ids.append(jobs.submit("clean", unique="k"))
        except (DuplicateJob, MoveNotAllowed):
            pass

    for _ in range(4):
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(attempt, range(6)))
        (one,) = [id for id in ids if jobs.status(id) == "queued"]
        with log.open(type(jobs._opened(one)), one) as job:
            job.start("w").fail("Boom")
        ids[:] = [one]


def test_a_head_that_was_dropped_hides_no_duplicate(log: Ledger, admin_dsn: str) -> None:
    import psycopg

    jobs = Jobs(log)
    first = jobs.submit("clean", unique="k")
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute("DELETE FROM ledger.heads")
    with pytest.raises(DuplicateJob, match=first):
        jobs.submit("clean", unique="k")
    assert jobs.wait(first, seconds=0) == {first: "queued"}
    assert jobs.cancel(first).status == "cancelled"
    assert jobs.submit("clean", unique="k") != first
