"""Batches: handed out in bounded pieces, of two steps, ended in groups; and laws of sets under any order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from consumers.jobs import dispatch
from consumers.jobs.dispatch import outcome_of
from consumers.jobs.messages import Deferred, Succeeded
from consumers.jobs.operation import OperationResult
from ledger import BadInput, Ledger, StreamConflict
from ledger.errors import LedgerError, WorkStopped
from ledger.jobs import Batches, OpenBatch

from .sets import Sets, topics


@pytest.fixture
def sets(log: Ledger) -> Sets:
    return Sets(log)


# Handing out


def test_pieces_are_bounded(sets: Sets, monkeypatch: pytest.MonkeyPatch) -> None:
    """A generator is read as it is recorded: in pieces by number, and by what their payloads take."""
    monkeypatch.setattr(dispatch, "MAX_BATCHES", 10)
    monkeypatch.setattr(dispatch, "MAX_CHARACTERS", 3000)
    sizes: list[int] = []
    session = sets.claim(sets.jobs.submit("split"))
    whole = session.ledger.append_all

    def counted(appends: Any, **more: Any) -> Any:
        sizes.append(sum(len(append.events) for append in appends))
        return whole(appends, **more)

    def messages() -> Iterator[tuple[str, Any]]:
        for n in range(35):
            assert n - sum(sizes[1:]) <= 10
            yield "q", {"operation": "part", "payload": {"text": "x" * (2000 if n > 29 else 1)}}

    monkeypatch.setattr(session.ledger, "append_all", counted)
    outcome = outcome_of(session, OperationResult(deferred=True, publish_operations=messages()))
    assert isinstance(outcome, Deferred)
    assert outcome.batches == 35
    assert sizes == [1, 10, 10, 10, 2, 2, 1]


def test_what_a_batch_is_given(sets: Sets) -> None:
    """spec S1-44: its payload is a copy, as it was."""
    session = sets.claim(sets.jobs.submit("split"))
    payload = {"file": "a.fasta"}
    message = {"operation": "part", "payload": payload, "priority": 3, "max_attempts": 1}
    sets.record(session, OperationResult({"n": 1}, deferred=True, publish_operations=[("gpu", message)]))
    payload["file"] = "b.fasta"
    batch = sets.batch(session.job_id, "1")
    assert (batch.operation, batch.queue, batch.priority, batch.under) == ("part", "gpu", 3, 1)
    fact = sets.log.read(f"batch/{session.job_id}/1")[0].event
    assert dict(fact.payload) == {"file": "a.fasta"}  # type: ignore[union-attr]
    assert topics(sets.jobs.events(session.job_id))[2:] == ["job.dispatching", "job.dispatched"]
    job = sets.jobs.get(session.job_id)
    assert (job.status, job.token, job.progress_current, job.progress_total) == ("running", None, 0, 1)


@pytest.mark.parametrize(
    "result",
    [
        OperationResult(publish_operations=[("q", {"operation": "part"})]),
        OperationResult(deferred=True, publish_operations=[("q", {"payload": {}})]),
        OperationResult(deferred=True, publish_operations=[("q", {"operation": "part", "colour": 1})]),
        OperationResult(deferred=True, failure_ratio=0, publish_operations=[("q", {"operation": "part"})]),
        OperationResult(publish_after_commit=[("q", "nobody")]),
    ],
)
def test_what_is_no_result_is_refused(sets: Sets, result: OperationResult) -> None:
    session = sets.claim(sets.jobs.submit("split"))
    with pytest.raises((LedgerError, ValueError)):
        outcome_of(session, result)


@pytest.mark.parametrize(
    ("payload", "kind"), [([1], "list"), ("{}", "str"), (0, "int"), ("", "str"), ([], "list")]
)
def test_a_payload_of_a_batch_that_is_no_mapping_is_named(sets: Sets, payload: Any, kind: str) -> None:
    said = f"the payload {payload!r} of a batch of 'part' must be a mapping such as {{'n': 1}}, not a {kind}"
    message = {"operation": "part", "payload": payload}
    session = sets.claim(sets.jobs.submit("split"))
    with pytest.raises(BadInput) as refused:
        outcome_of(session, OperationResult(deferred=True, publish_operations=[("q", message)]))
    assert str(refused.value) == said
    with pytest.raises(BadInput) as refused:
        OpenBatch(session.job_id, "9").queue(1, "part", "q", payload=payload)
    assert str(refused.value) == said
    assert sets.statuses(session.job_id) == {}


def test_a_claim_that_is_over_hands_out_nothing(sets: Sets) -> None:
    session = sets.claim(sets.jobs.submit("split"))
    sets.jobs.cancel(session.job_id)
    with pytest.raises(WorkStopped):
        outcome_of(session, OperationResult(deferred=True, publish_operations=[("q", {"operation": "part"})]))
    assert sets.statuses(session.job_id) == {}


def test_submitted_jobs_may_go_to_another_queue(sets: Sets) -> None:
    session = sets.claim(sets.jobs.submit("split"))
    child = session.submit("part")
    sets.record(session, OperationResult(publish_after_commit=[("slow", child)]))
    assert (sets.jobs.get(child).queue, sets.jobs.get(child).parent) == ("slow", None)


def test_compute_then_write(sets: Sets) -> None:
    """spec S1-41: the step that follows is the same batch, in another queue."""
    job = sets.deferred(batches=1)
    first = sets.claim(job, "1")
    then = [("write", {"operation": "store", "payload": {"rows": 2}})]
    outcome = sets.record(first, OperationResult({"rows": 2}, publish_operations=iter(then)))
    assert isinstance(outcome, Succeeded)
    assert outcome.then == ("store", "write", {"rows": 2})
    batch = sets.batch(job, "1")
    assert (batch.status, batch.operation, batch.queue, batch.step) == (
        "computed",
        "store",
        "write",
        "writing",
    )
    sets.fan_in()
    assert sets.jobs.status(job) == "running"
    sets.record(sets.claim(job, "1"), OperationResult({"stored": 2}))
    sets.fan_in()
    assert sets.jobs.status(job) == "succeeded"


def test_a_batch_is_no_parent(sets: Sets) -> None:
    session = sets.claim(sets.deferred(batches=1), "1")
    for result in (
        OperationResult(deferred=True),
        OperationResult(publish_operations=[("q", {"operation": "a"})] * 2),
    ):
        with pytest.raises(BadInput):
            outcome_of(session, result)


# Ended in groups


def test_a_group_is_completed_in_one_append(sets: Sets, log: Ledger) -> None:
    job = sets.deferred(batches=6)
    sets.claim(job, "2")
    sets.end("cancel", job, "3")
    computed = sets.claim(job, "4")
    sets.record(computed, OperationResult(publish_operations=[("w", {"operation": "store"})]))
    done = Batches(log, "writer-1").complete(
        job, {nr: {"rows": int(nr)} for nr in ("1", "2", "3", "4", "5", "9")}
    )
    assert sorted(done.completed) == ["1", "4", "5"]
    assert done.others == {"2": "running", "3": "cancelled", "9": None}
    batch = sets.batch(job, "4")
    assert (batch.status, batch.worker, batch.attempt, batch.token) == ("completed", "writer-1", 2, None)
    events = log.read(f"batch/{job}/5")
    assert topics(events) == ["batch.queued", "batch.started", "batch.completed"]
    assert events[1].recorded_at == log.read(f"batch/{job}/1")[2].recorded_at
    assert Batches(log, "writer-2").complete(job, {"1": {}}).others == {"1": "completed"}
    with pytest.raises(BadInput):
        Batches(log, "writer-1").complete(job, {"6": {"x": "\x00"}})
    sets.end("complete", job, "6")
    one, other = log.read(f"batch/{job}/5")[-1].event, log.read(f"batch/{job}/6")[-1].event
    assert (one.topic, type(one), dict(one.result)) == (other.topic, type(other), {"rows": 5})  # type: ignore[union-attr]


def test_a_group_that_conflicts_reads_again(sets: Sets, log: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    job = sets.deferred(batches=3)
    group = Batches(log, "writer-1")
    whole = group._appends

    def conflicting(*given: Any) -> Any:
        found = whole(*given)
        if sets.batch(job, "2").status == "queued":
            sets.end("complete", job, "2")
        return found

    monkeypatch.setattr(group, "_appends", conflicting)
    done = group.complete(job, {nr: {} for nr in "123"})
    assert (sorted(done.completed), done.others) == (["1", "3"], {"2": "completed"})


def test_a_group_with_its_rows(sets: Sets, log: Ledger, connection: psycopg.Connection[Any]) -> None:
    job = sets.deferred(batches=3)
    connection.execute("CREATE TABLE counts (nr text PRIMARY KEY)")
    group = Batches(log, "writer-1")
    with log.transaction(connection) as joined:
        connection.execute("INSERT INTO counts VALUES ('1'), ('2')")
        group.join(joined, job, {"1": {}, "2": {}})
    with pytest.raises(BadInput, match="batch 2 of job"), log.transaction(connection) as joined:  # noqa: PT012
        connection.execute("INSERT INTO counts VALUES ('3')")
        group.join(joined, job, {"2": {}, "3": {}})
    with pytest.raises(StreamConflict), log.transaction(connection) as joined:  # noqa: PT012
        connection.execute("INSERT INTO counts VALUES ('3')")
        group.join(joined, job, {"3": {}})
        sets.end("cancel", job, "3")
    assert connection.execute("SELECT nr FROM counts ORDER BY 1").fetchall() == [("1",), ("2",)]
    assert sets.statuses(job) == {"1": "completed", "2": "completed", "3": "cancelled"}
