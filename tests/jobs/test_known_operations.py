"""A worker takes what it knows: what no worker knows waits, is shown, and fails nobody's job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from consumers.jobs import Worker
from consumers.jobs.claim import LogOffers
from consumers.jobs.record import Recorder, claim_part
from ledger import Ledger
from ledger.jobs import Jobs, OpenBatch, OpenJob
from ledger.jobs.leases import Leases
from tests.jobs.claims import shown
from tests.jobs.conftest import eventually, topics, working

OTHERS = "tests.jobs.operations_of_another:registry"


def taken(log: Ledger, *operations: str, most: int = 100, worker: str = "w") -> list[str]:
    """The ids of the jobs on which a worker that knows these operations takes leases."""
    shown(log)
    offers = LogOffers(log, worker, None, 60, operations=operations)
    return [str(one.work.key[0]) for one in offers.take(most)]


def test_two_workers_on_one_queue_run_each_what_they_know(log: Ledger) -> None:
    """Given jobs of both and a batch whose steps are of both, then all succeed, and none is tried in vain."""
    jobs = Jobs(log)
    ids = [jobs.submit(operation) for operation in ("ping", "greet") * 20]
    split = jobs.submit("split.for.others", {"batches": 6})
    with working(log, services=True), working(log, OTHERS, services=True):
        assert set(jobs.wait(*ids, split, seconds=60).values()) == {"succeeded"}
    assert {tuple(topics(jobs, id)) for id in ids} == {("job.created", "job.started", "job.succeeded")}


def test_what_nobody_here_knows_waits_for_who_does(log: Ledger) -> None:
    """Given a rolling deploy: jobs of new code come first, its workers later; none becomes a dead letter."""
    jobs = Jobs(log)
    new = [jobs.submit("greet", priority=9) for _ in range(5)]  # urgent, and in nobody's way
    with working(log):
        old = [jobs.submit("ping") for _ in range(5)]
        assert set(jobs.wait(*old, seconds=30).values()) == {"succeeded"}
        assert [topics(jobs, id) for id in new] == [["job.created"]] * 5
        assert "greet" not in {lease.operation for lease in Leases(log).all()}
        with working(log, OTHERS):
            assert set(jobs.wait(*new, seconds=30).values()) == {"succeeded"}


def test_only_known_operations_are_nominated(log: Ledger) -> None:
    """In order, up to what is wanted, within limits; whoever names none takes any."""
    jobs = Jobs(log)
    unknown = [jobs.submit("b", priority=5) for _ in range(3)]
    known = [jobs.submit("a") for _ in range(3)]
    limited = [jobs.submit("c", queue="other") for _ in range(2)]
    jobs.limit("c", concurrency=1)
    assert taken(log) == []  # who knows nothing takes nothing
    assert taken(log, "a", most=2) == known[:2]
    assert taken(log, "a", "c", "nowhere") == [known[2], limited[0]]
    shown(log)
    assert [str(one.work.key[0]) for one in LogOffers(log, "any", None, 60).take(9)] == unknown


def test_a_view_that_is_behind_gives_no_unknown_step(log: Ledger) -> None:
    """Given a second step that the view has not seen, then who knows only the first does not claim it."""
    jobs = Jobs(log)
    job = jobs.submit("greet")
    with log.open(OpenJob, job) as parent:
        parent.start("w")
    with log.open(OpenBatch, job, "1") as batch:
        batch.queue(1, "greet.then.ping", "default")
    offers = LogOffers(log, "w", None, 60, operations=["greet.then.ping"])
    shown(log)
    (one,) = offers.take(1)
    Recorder(log, "w").record([claim_part(one, "w")])
    with log.open(OpenBatch, job, "1") as batch:
        batch.computed("ping", "default", {})
    Leases(log).release([(one.work.name, one.token)])
    worker = Worker(log, OTHERS, projecting=False, services=False)
    worker._take(1)
    assert worker._parts == []
    assert worker._over == [(one.work.name, 4)]  # it is given back at once


def test_what_its_processes_do_not_know_is_given_back(log: Ledger, tmp_path: Path, monkeypatch: Any) -> None:
    """Given code that was replaced under a worker, then what its processes lost waits, and the rest runs."""
    module = tmp_path / "replaced.py"
    head = "from consumers.jobs import Registry\nregistry = Registry()\n"
    body = "@registry.operation({name!r})\ndef _{name}(session, payload, *, emit): pass\n"
    module.write_text(head + body.format(name="one") + body.format(name="two"))
    monkeypatch.syspath_prepend(tmp_path)
    jobs = Jobs(log)
    with working(log, "replaced", concurrency=1) as at_work:
        first = jobs.submit("two")
        assert jobs.wait(first, seconds=30) == {first: "succeeded"}
        module.write_text(head + body.format(name="one"))
        at_work.worker.slots[0].kill()  # its next process imports what is there now
        lost, known = jobs.submit("two"), jobs.submit("one")
        assert jobs.wait(known, seconds=30) == {known: "succeeded"}
        eventually(lambda: topics(jobs, lost)[-1] == "job.released")
        eventually(lambda: Leases(log).workers()[0].operations == ["one"])
    assert jobs.status(lost) == "queued"
    assert jobs.get(lost).failures == 0
