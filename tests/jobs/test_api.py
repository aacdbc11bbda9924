"""The API of jobs: what is refused before it is sent, what is recorded together, what is idempotent."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

import ledger
from ledger import BadInput, Ledger, StreamConflict, StreamNotFound
from ledger.errors import CommandReused, DuplicateJob, JobUnsuccessful, MoveNotAllowed
from ledger.jobs import Jobs, OpenJob
from ledger.jobs.job import JobReported
from ledger.jobs.jobs import MAX_JOBS
from ledger.log.append import body_of
from tests.jobs.claims import claim_one, shown, topics

NOBODY = "8f14e45f-ceea-467f-a0e6-9d1c0a4c3f6e"

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"payload": {"a": {"b": "x\x00y"}}}, "a.b: contains NUL"),
    ({"payload": {"a": [1, float("nan")]}}, r"a\[1\]: nan"),
    ({"payload": {"a": float("inf")}}, "a: inf"),
    ({"payload": {"a": -0.0}}, "-0.0"),
    ({"payload": {"a": "\ud800"}}, "lone surrogate"),
    ({"payload": {1: "a"}}, "a key is int"),
    ({"payload": {"a": datetime.now(UTC)}}, "a: datetime is not JSON"),
    ({"payload": {"a": b"raw"}}, "a: bytes is not JSON"),
    ({"payload": {"a": "x" * (17 * 2**20)}}, "keep large results in a file"),
    ({"payload": [1, 2]}, "payload .* must be a mapping"),
    ({"payload": "{}"}, "payload .* must be a mapping"),
    ({"meta": 5}, "meta 5 must be a mapping"),
    ({"meta": {"a": float("nan")}}, "a: nan"),
    ({"operation": ""}, "needs an operation"),
    ({"operation": "x\x00"}, "NUL"),
    ({"operation": "x" * 1001}, "bytes, more than"),
    ({"operation": 5}, "operation: "),
    ({"queue": "  "}, "queue"),
    ({"queue": None}, "queue"),
    ({"queue": "q" * 1001}, "bytes, more than"),
    ({"id": "no-uuid"}, "must be a UUID"),
    ({"parent": "no-uuid"}, "must be a UUID"),
    ({"delay": -1}, "delay -1 must be"),
    ({"delay": float("nan")}, "delay nan must be"),
    ({"delay": True}, "delay True must be"),
    ({"delay": "60"}, "delay '60' must be"),
    ({"delay": timedelta(days=99999)}, "to 100 years"),
    ({"run_at": datetime(2030, 1, 1)}, "with a time zone"),  # noqa: DTZ001
    ({"run_at": "2030-01-01T00:00:00Z"}, "with a time zone"),
    ({"run_at": datetime.max.replace(tzinfo=UTC)}, "between the years"),
    ({"run_at": datetime.now(UTC), "delay": 1}, "not both"),
    ({"max_attempts": 0}, "max_attempts"),
    ({"max_retries": -1}, "max_retries"),
    ({"max_requeues": 2**31}, "max_requeues"),
    ({"timeout_seconds": 0}, "timeout_seconds"),
    ({"timeout_seconds": float("inf")}, "timeout_seconds"),
    ({"priority": 2**31}, "priority"),
    ({"tags": "one"}, "tags"),
    ({"colour": "red"}, "colour"),
    ({"dedup_key": "k"}, "`unique`"),
    ({"delay_seconds": 5}, "`delay`"),
]


def test_what_nobody_could_run_is_refused_before_anything_is_sent(log: Ledger) -> None:
    for wrong, said in WRONG:
        with pytest.raises(BadInput, match=said):
            Jobs(log).submit(**{"operation": "ping", **wrong})
        with pytest.raises(BadInput, match=said):
            Jobs(log).submit_many([{"operation": "ping"}, {"operation": "ping", **wrong}])
    assert log.streams() == []


def test_a_payload_is_read_as_it_was_given(log: Ledger) -> None:
    jobs = Jobs(log)
    given = {
        "big": 2**70,
        "deep": {"a": [1.5, None, {"b": True}]},
        "text": "é\u2028\\u0000",
        "exp": 1e300,
        "": "",
    }
    id = jobs.submit("ping", given, meta={"x": 2**70}, tags=["a", "b"], description="d")
    job = jobs.get(id)
    assert job.payload == ledger.domain.frozen.frozen(given)
    assert (job.meta, job.tags, job.description) == ({"x": 2**70}, ("a", "b"), "d")
    again = jobs.submit("ping", job.payload, meta=job.meta)
    assert jobs.get(again).payload == job.payload
    given["big"] = 0
    assert jobs.get(id).payload["big"] == 2**70


def test_an_id_of_the_callers(log: Ledger) -> None:
    jobs, id = Jobs(log), uuid4()
    assert jobs.submit("ping", id=str(id).upper()) == str(id)
    assert jobs.get(id).id == str(id)
    with pytest.raises(StreamConflict):
        jobs.submit("ping", id=id)


def test_a_command_submits_once(log: Ledger) -> None:
    jobs = Jobs(log)
    first = jobs.submit("ping", {"n": 1}, command="order 7", delay=60)
    assert jobs.submit("ping", {"n": 1}, command="order 7", delay=60) == first
    assert str(UUID(first)) == first
    assert topics(log, f"job/{first}") == ["created"]
    with pytest.raises(CommandReused):
        jobs.submit("ping", {"n": 2}, command="order 7", delay=60)
    assert jobs.submit("ping", {"n": 1}, command="order 8", delay=60) != first


def test_a_command_of_a_unique_child_submits_once(log: Ledger) -> None:
    """Also when it is over meanwhile, another has its key, and its parent is over."""
    jobs = Jobs(log)
    parent = jobs.submit("ping")
    first = jobs.submit("ping", unique="k", parent=parent, command="c")
    jobs.cancel(first)
    assert jobs.submit("ping", unique="k") != first
    jobs.cancel(parent)
    assert jobs.submit("ping", unique="k", parent=parent, command="c") == first
    with pytest.raises(DuplicateJob):
        jobs.submit("ping", unique="k", command="d")


def test_children_of_a_job(log: Ledger) -> None:
    jobs = Jobs(log)
    parent = jobs.submit("ping")
    one = jobs.submit("ping", parent=parent)
    more = jobs.submit_many([{"operation": "ping", "parent": parent}] * 3)
    assert jobs.get(parent).children == (one, *more)
    assert jobs.get(one).parent == parent
    jobs.cancel(parent)
    with pytest.raises(BadInput, match=f"{parent} is cancelled: it takes no more"):
        jobs.submit("ping", parent=parent)
    with pytest.raises(StreamNotFound):
        jobs.submit("ping", parent=NOBODY)
    assert len(log.streams("job/")) == 5


def test_many_jobs_in_one_append_per_thousand(log: Ledger) -> None:
    jobs = Jobs(log)
    before = log.bound()
    ids = jobs.submit_many(
        ({"operation": "ping", "payload": {"n": n}} for n in range(MAX_JOBS + 5)), command="bulk"
    )
    events = log.log(before, log.bound(), 5000)
    assert [event.stream for event in events] == [f"job/{id}" for id in ids]
    assert len({event.recorded_at for event in events}) == 2
    again = jobs.submit_many(
        [{"operation": "ping", "payload": {"n": n}} for n in range(MAX_JOBS + 5)], command="bulk"
    )
    assert again == ids
    assert log.bound() == before + MAX_JOBS + 5
    assert jobs.submit_many([]) == []
    with pytest.raises(DuplicateJob):
        jobs.submit_many([{"operation": "ping", "unique": True}] * 2)
    for wrong, said in (
        ({"operation": "ping", "command": "x"}, "command"),
        ("ping", "mapping"),
        ({}, "operation"),
    ):
        with pytest.raises(BadInput, match=said):
            jobs.submit_many([wrong])  # type: ignore[list-item]


def test_wait_sees_the_end_of_other_processes_jobs(log: Ledger, dsn: str) -> None:
    jobs = Jobs(log)
    ids = [jobs.submit("ping") for _ in range(3)]
    with ledger.connect(dsn) as other:
        timer = threading.Timer(0.2, lambda: [Jobs(other).cancel(id) for id in ids[:2]])
        timer.start()
        assert jobs.wait(*ids[:2], seconds=20) == {ids[0]: "cancelled", ids[1]: "cancelled"}
        timer.join()
    assert jobs.wait(*ids, seconds=0.01)[ids[2]] == "queued"
    assert jobs.wait() == {}
    with pytest.raises(StreamNotFound):
        jobs.wait(NOBODY)


def test_the_result(log: Ledger) -> None:
    jobs = Jobs(log)
    id = jobs.submit("ping")
    with pytest.raises(JobUnsuccessful, match="queued"):
        jobs.result(id)
    claimed = claim_one(log)
    claimed.work.succeed({"n": 17})
    log.append_all([claimed.work.under_lease(claimed.token)])
    jobs.comment(id, "fine")
    assert jobs.result(id) == {"n": 17}
    for ask in (jobs.result, jobs.get, jobs.status, jobs.events, jobs.cancel, jobs.retry, jobs.discard):
        with pytest.raises(StreamNotFound):
            ask(NOBODY)  # type: ignore[operator]


def test_cancel_is_idempotent(log: Ledger) -> None:
    """The second one changes nothing, and neither does one of a job that is over (spec C1-2)."""
    jobs = Jobs(log)
    id = jobs.submit("ping")
    first = jobs.cancel(id, "not needed")
    assert jobs.cancel(id, "really not") == first == jobs.get(id)
    assert topics(log, f"job/{id}") == ["created", "cancelled"]
    with pytest.raises(MoveNotAllowed):
        jobs.retry(id)


def test_cancel_meets_a_job_that_somebody_claims_and_reports_on(
    log: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """given a job that was opened to be cancelled, when it is claimed then, then the claim is over."""
    jobs = Jobs(log)
    id = jobs.submit("ping")
    opened = jobs._opened(id)
    claimed = claim_one(log)
    log.append(f"job/{id}", JobReported(token=claimed.token, event="x.y"))
    monkeypatch.setattr(jobs, "_opened", lambda _: opened)
    jobs.cancel(id)
    monkeypatch.undo()
    head = log.head(f"job/{id}")
    assert head is not None
    assert (head.status, head.token, jobs.get(id).token) == ("cancelled", None, None)
    claimed.work.succeed()
    with pytest.raises(ledger.GuardFailed):
        log.append_all([claimed.work.under_lease(claimed.token)])


def test_comments_and_descriptions_beside_a_busy_worker(log: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are recorded although a report comes before each of them, and move nothing."""
    jobs = Jobs(log)
    id = jobs.submit("ping", description="old")
    claimed = claim_one(log)
    load = jobs._opened

    def busy(asked: str) -> OpenJob:
        opened = load(asked)
        log.append_all(
            [ledger.log.append.Append(f"job/{id}", [body_of(JobReported(token=claimed.token, event="a.b"))])]
        )
        return opened

    monkeypatch.setattr(jobs, "_opened", busy)
    jobs.comment(id, " looks good ", author="ann")
    jobs.describe(id, findings="many", tags=["x"])
    monkeypatch.undo()
    job = jobs.get(id)
    assert (job.comments, job.description, job.findings, job.tags) == (1, "old", "many", ("x",))
    assert (job.status, job.token, jobs.status(id)) == ("running", claimed.token, "running")
    with pytest.raises(BadInput):
        jobs.comment(id, "  ")


def test_retry_and_discard(log: Ledger) -> None:
    jobs = Jobs(log)
    id = jobs.submit("ping", queue="q", priority=3)
    claimed = claim_one(log)
    claimed.work.fail("Boom", "it broke")
    log.append_all([claimed.work.under_lease(claimed.token)])
    shown(log)
    job = jobs.retry(id, "mended")
    assert (job.status, job.queue, job.attempt, job.error_code) == ("queued", "q", 0, "Boom")
    with pytest.raises(MoveNotAllowed):
        jobs.retry(id)
    with log.open(OpenJob, id) as opened:
        opened.start("w").fail("Boom")
    assert jobs.discard(id, "never mind").discarded
    assert jobs.discard(id).discarded
    assert topics(log, f"job/{id}").count("discarded") == 1
    with pytest.raises(MoveNotAllowed):
        jobs.retry(id)


def test_events_are_told_in_order(log: Ledger) -> None:
    jobs = Jobs(log)
    id = jobs.submit("ping")
    for n in range(3):
        jobs.comment(id, f"{n}")
    events = jobs.events(id)
    assert [event.version for event in events] == [1, 2, 3, 4]
    assert [event.event.text for event in jobs.events(id, after=2)] == ["1", "2"]  # type: ignore[union-attr]
    assert len(jobs.events(id, limit=2)) == 2


def test_a_job_that_an_operation_prepares_is_looked_at_at_once() -> None:
    """So that what is wrong with it fails the operation, and not its worker."""
    from consumers.jobs.context import OperationContext
    from consumers.jobs.messages import Task

    task = Task(f"job/{NOBODY}", 2, 2, "ping", "{}", NOBODY, 1)
    session = OperationContext(task, lambda: pytest.fail("it needs no ledger"))
    for wrong in ({"delay": -1}, {"unique": True}, {"payload": {"a": float("nan")}}, {"colour": "red"}):
        with pytest.raises(BadInput):
            session.submit("ping", **wrong)  # type: ignore[arg-type]
    id = session.submit("ping", {"n": 1}, delay=5, queue=" q ")
    assert [(job.id, job.operation) for job in session.prepared] == [(id, "ping")]
