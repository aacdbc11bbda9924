"""A worker whose operations the test ends by hand: back-pressure, drain, outages, what the log refuses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection, Pipe
from typing import Any
from uuid import uuid4

import pytest

import consumers.jobs.worker
from consumers.jobs.messages import Outcome, Prepared, Stopped, Succeeded, Task
from ledger import Ledger, ServerUnavailable
from ledger.errors import AppendUncertain, Refused
from ledger.jobs import Jobs, OpenBatch, OpenJob
from ledger.jobs.leases import Leases
from ledger.log.append import Append
from tests.jobs.conftest import eventually, topics, working


class HandSlot:
    """A slot whose outcome the test says."""

    made: list[HandSlot]

    def __init__(self, registry: str, where: dict[str, Any], **_: Any) -> None:
        self.pipe: Connection
        self.pipe, self.theirs = Pipe()
        self.task: Task | None = None
        self.told: list[str] = []
        self.ran: list[Task] = []
        HandSlot.made.append(self)

    @property
    def free(self) -> bool:
        return self.task is None

    def run(self, task: Task) -> None:
        assert self.task is None
        self.ran.append(task)
        self.task = task

    def says(self, kind: type[Outcome] = Succeeded, **fields: Any) -> None:
        eventually(lambda: self.task is not None)
        assert self.task is not None
        self.theirs.send(kind(self.task.stream, self.task.token, **fields))

    def read_outcome(self) -> Outcome | None:
        outcome: Outcome = self.pipe.recv()
        self.task = None
        return outcome

    def overdue(self) -> bool:
        return False

    def request_stop(self, reason: str) -> None:
        self.told.append(reason)

    def kill(self) -> None:
        if self.task is not None:
            self.says(Stopped)

    def close(self) -> None:
        self.pipe.close()
        self.theirs.close()


@pytest.fixture
def slots(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[HandSlot]]:
    HandSlot.made = []
    monkeypatch.setattr(consumers.jobs.worker, "Slot", HandSlot)
    return HandSlot.made


def test_never_more_than_free_slots(log: Ledger, slots: list[HandSlot]) -> None:
    """Given more jobs than slots, then only so many are claimed, and the others are left."""
    jobs = Jobs(log)
    ids = [jobs.submit("ping") for _ in range(5)]
    with working(log, drain_seconds=20) as at_work:
        eventually(lambda: len(at_work.worker._claims) == 2)
        assert sorted(jobs.status(job) for job in ids) == ["queued"] * 3 + ["running"] * 2
        assert len(Leases(log).all()) == 2
        slots[0].says()
        eventually(
            lambda: sum(jobs.status(job) == "running" for job in ids) == 2 and at_work.worker.done == 1
        )
        at_work.stop.set()  # a drain takes nothing more, and waits for what runs
        eventually(lambda: any(worker.draining for worker in Leases(log).workers()))
        slots[0].says()
        slots[1].says()
    assert at_work.gave_back is False
    assert at_work.worker.done == 3
    assert sorted(jobs.status(job) for job in ids) == ["queued"] * 2 + ["succeeded"] * 3
    assert Leases(log).all() == []


def test_what_belongs_to_a_job_that_is_over_is_not_run(log: Ledger, slots: list[HandSlot]) -> None:
    """Given children and batches of jobs that are over, then they are cancelled (S1-22, S1-43)."""
    jobs = Jobs(log)
    ids = {status: parent_of_a_batch(log, status) for status in ("cancelled", "failed")}
    waiting, child = jobs.submit("ping", run_at=None, delay=60), ""
    child = jobs.submit("ping", parent=waiting)
    jobs.cancel(waiting)
    with working(log) as at_work:
        eventually(lambda: jobs.status(child) == "cancelled")
        for status, job in ids.items():
            batch = OpenBatch.name_of(job, "1")
            eventually(partial(ends_with, log, batch, "batch.cancelled"))
            assert log.read(batch)[-1].event.reason == f"parent_{status}"  # type: ignore[union-attr]
    assert topics(jobs, child) == ["job.created", "job.cancelled"]
    assert jobs.events(child)[-1].event.reason == "parent_cancelled"  # type: ignore[union-attr]
    assert at_work.gave_back is False
    assert all(not slot.ran for slot in slots)


def ends_with(log: Ledger, stream: str, topic: str) -> bool:
    return log.read(stream)[-1].topic == topic


def parent_of_a_batch(log: Ledger, status: str) -> str:
    """A job with one batch that waits, which is cancelled or failed."""
    job = Jobs(log).submit("ping")
    with log.open(OpenJob, job) as opened:
        opened.start("somebody")
    with log.open(OpenJob, job) as opened:
        opened.begin_dispatch()
        opened.cancel() if status == "cancelled" else opened.fail("Failed")
    with log.open(OpenBatch, job, "1") as batch:
        batch.queue(1, "ping", "default", payload={})
    return job


def test_an_outage_loses_no_outcome(
    log: Ledger, slots: list[HandSlot], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a server that is away when operations end, then what came of them is recorded later, once."""
    jobs = Jobs(log)
    appends, away = log.append_all, ["uncertain", "away", "away"]

    def append_all(given: Sequence[Append], **options: Any) -> Any:
        ours = any(
            body.topic in ("job.started", "job.succeeded") for append in given for body in append.events
        )
        if ours and away:
            how = away.pop(0)
            if how == "uncertain":  # it was recorded, and the answer was lost
                appends(given, **options)
                raise AppendUncertain(append.stream for append in given)
            raise ServerUnavailable("away")
        return appends(given, **options)

    monkeypatch.setattr(log, "append_all", append_all)
    monkeypatch.setattr(consumers.jobs.worker, "RETRY_PAUSE", 0.01)
    with working(log, concurrency=1, drain_seconds=20) as at_work:
        first, second = jobs.submit("ping"), jobs.submit("ping")
        eventually(lambda: not away and slots[0].task is not None)
        away += ["uncertain", "away"]
        slots[0].says(result={"n": 1})
        eventually(lambda: jobs.status(first) == "succeeded" and slots[0].task is not None)
        slots[0].says()
        jobs.wait(second, seconds=20)
    assert at_work.error is None
    for job in (first, second):
        assert topics(jobs, job) == ["job.created", "job.started", "job.succeeded"]
    assert jobs.result(first) == {"n": 1}


def test_late_results_and_impossible_ones(
    log: Ledger, slots: list[HandSlot], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given outcomes that the log refuses, then they are late, or failures that say why."""
    jobs = Jobs(log)
    taken = jobs.submit("ping")
    late, twice, strange, good = (jobs.submit("ping") for _ in range(4))
    appends = log.append_all

    def append_all(given: Sequence[Append], **options: Any) -> Any:
        if any("strange" in (body.data or "") for append in given for body in append.events):
            raise Refused("no effect can take this")
        return appends(given, **options)

    jobs.cancel(taken)
    monkeypatch.setattr(log, "append_all", append_all)
    with working(log, concurrency=4, drain_seconds=20) as at_work:
        eventually(lambda: len(at_work.worker._claims) == 4)
        jobs.cancel(late, "enough")
        by_job = {slot.task.job: slot for slot in slots if slot.task is not None}
        prepared = Prepared(taken, "ping", {}, {})
        by_job[late].says(result={"n": 1})
        by_job[twice].says(jobs=(prepared,))
        by_job[strange].says(result={"strange": 1})
        by_job[good].says(jobs=(Prepared(str(uuid4()), "ping", {}, {"delay": 60}),))
        jobs.wait(late, twice, strange, good, seconds=20)
        eventually(lambda: at_work.worker.done == 4)
    fact = jobs.events(late)[-1]
    assert fact.topic == "job.late_result"
    assert jobs.status(late) == "cancelled"
    assert jobs.get(late).late == 1
    assert (fact.event.outcome, fact.event.result) == ("succeeded", {"n": 1})  # type: ignore[union-attr]
    assert (jobs.get(twice).status, jobs.get(twice).error_code) == ("failed", "StreamConflict")
    assert (jobs.get(strange).status, jobs.get(strange).error_code) == ("failed", "Refused")
    assert jobs.status(good) == "succeeded"
