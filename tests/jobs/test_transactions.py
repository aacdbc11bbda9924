"""Rows and the end of a batch commit together, or neither does (W1-08, W1-09, W1-15)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from consumers.jobs.dispatch import outcome_of
from consumers.jobs.messages import AlreadyRecorded, Failed
from consumers.jobs.operation import OperationResult
from ledger import BadInput, Ledger
from ledger.errors import WorkStopped

from .sets import Sets, topics

Connect = Callable[..., psycopg.Connection[Any]]


@pytest.fixture
def sets(log: Ledger, connection: psycopg.Connection[Any]) -> Sets:
    connection.execute("CREATE TABLE counts (nr text PRIMARY KEY, rows integer)")
    return Sets(log)


def _rows(connection: psycopg.Connection[Any]) -> list[Any]:
    return connection.execute("SELECT nr, rows FROM counts ORDER BY nr").fetchall()


def test_rows_and_end_in_one_transaction(sets: Sets, connection: psycopg.Connection[Any]) -> None:
    job = sets.deferred(batches=1)
    session = sets.claim(job, "1")
    with session.transaction() as writing:
        writing.execute("INSERT INTO counts VALUES (%s, %s)", ["1", 20])
        writing.result["rows"] = 20
        session.emit("rows.stored", fields={"rows": 20})
        assert _rows(connection) == []
    assert _rows(connection) == [("1", 20)]
    assert session.recorded
    assert isinstance(outcome_of(session, OperationResult({"ignored": 1})), AlreadyRecorded)
    batch = sets.batch(job, "1")
    assert (batch.status, batch.token) == ("completed", None)
    (*_, end) = sets.log.read(f"batch/{job}/1")
    assert (end.topic, dict(end.event.result)) == ("batch.completed", {"rows": 20})  # type: ignore[union-attr]
    session.emit("too.late")  # said, and left out
    sets.fan_in()
    assert sets.jobs.status(job) == "succeeded"


def test_on_connections_of_the_users(sets: Sets, connect: Connect, dsn: str) -> None:
    job = sets.deferred(batches=4)
    for nr, place in enumerate(
        (connect(), connect(autocommit=True), connect(row_factory=dict_row), dsn), start=1
    ):
        with sets.claim(job, str(nr)).transaction(place) as writing:
            writing.execute("INSERT INTO counts VALUES (%s, %s)", [str(nr), nr])
    assert set(sets.statuses(job).values()) == {"completed"}
    assert len(_rows(connect())) == 4


def test_another_database_is_refused(sets: Sets, postgres: Any) -> None:
    job = sets.deferred(batches=1)
    session = sets.claim(job, "1")
    with pytest.raises(BadInput, match="not to the ledger's database"), session.transaction(postgres.dsn()):
        raise AssertionError
    with psycopg.connect(postgres.dsn()) as elsewhere:
        with pytest.raises(BadInput, match="not to the ledger's database"), session.transaction(elsewhere):
            raise AssertionError
    assert sets.batch(job, "1").status == "running"


@pytest.mark.parametrize("during", [False, True])
def test_a_claim_that_is_over_stores_nothing(
    sets: Sets, connection: psycopg.Connection[Any], during: bool
) -> None:
    job = sets.deferred(batches=1)
    session = sets.claim(job, "1")
    if not during:
        sets.end("cancel", job, "1")
    with pytest.raises(WorkStopped), session.transaction() as writing:  # noqa: PT012
        writing.execute("INSERT INTO counts VALUES ('1', 1)")
        if during:
            sets.jobs.cancel(job)
            sets.cascade()
    assert _rows(connection) == []
    assert (session.recorded, sets.batch(job, "1").status) == (False, "cancelled")


def test_a_cancel_at_the_last_moment(sets: Sets, connection: psycopg.Connection[Any]) -> None:
    """After the claim was looked at, before the append: the guard refuses, and the rows go with it."""
    job = sets.deferred(batches=1)
    session = sets.claim(job, "1")
    ends = session._ends

    def cancelled(writing: Any) -> Any:
        appends = ends(writing)
        sets.end("cancel", job, "1")
        return appends

    session._ends = cancelled  # type: ignore[method-assign]
    with pytest.raises(WorkStopped), session.transaction() as writing:
        writing.execute("INSERT INTO counts VALUES ('1', 1)")
    assert _rows(connection) == []
    assert session.stopped is not None


def test_an_error_in_the_block_ends_nothing(sets: Sets, connection: psycopg.Connection[Any]) -> None:
    job = sets.deferred(batches=1)
    session = sets.claim(job, "1")
    with pytest.raises(ZeroDivisionError), session.transaction() as writing:  # noqa: PT012
        writing.execute("INSERT INTO counts VALUES ('1', 1)")
        1 / 0  # noqa: B018
    assert (_rows(connection), sets.batch(job, "1").status) == ([], "running")
    with session.transaction() as writing:
        writing.execute("INSERT INTO counts VALUES ('1', 2)")
    assert _rows(connection) == [("1", 2)]
    with pytest.raises(BadInput, match="already"), session.transaction():
        raise AssertionError


def test_a_death_between_commit_and_report_is_harmless(sets: Sets) -> None:
    """Its worker hears of a dead process: the batch is over, and stays so."""
    job = sets.deferred(batches=1)
    session = sets.claim(job, "1")
    with session.transaction() as writing:
        writing.execute("INSERT INTO counts VALUES ('1', 1)")
    sets.record(session, Failed(session.task.stream, session.task.token, error_code="ProcessDied"))
    sets.fan_in()
    assert (sets.batch(job, "1").status, sets.jobs.status(job)) == ("completed", "succeeded")


def test_a_job_ends_with_its_rows_and_what_it_submits(sets: Sets) -> None:
    job = sets.jobs.submit("load")
    session = sets.claim(job)
    next_one = session.submit("index", {"of": "counts"}, queue="later")
    with session.transaction() as writing:
        writing.execute("INSERT INTO counts VALUES ('all', 7)")
        writing.result["rows"], writing.progress["progress_current"] = 7, 7
    assert (sets.jobs.get(job).progress_current, dict(sets.jobs.result(job))) == (7, {"rows": 7})
    assert (sets.jobs.get(next_one).queue, sets.jobs.get(next_one).parent) == ("later", None)
    assert topics(sets.jobs.events(job)) == ["job.created", "job.started", "job.succeeded"]
