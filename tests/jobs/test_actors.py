"""Who did it: all that is recorded under a claim carries one actor, the name of the worker."""

from __future__ import annotations

import getpass
import os

import pytest

from ledger import Ledger, acting
from ledger.jobs import Jobs
from tests.jobs.conftest import eventually, working

OPERATIONS = "tests.jobs.actor_operations:registry"


@pytest.mark.parametrize("name", ["w1", None])
def test_a_worker_and_the_operations_that_it_runs_are_one_actor(log: Ledger, name: str | None) -> None:
    with acting(actor="mina"):
        job = Jobs(log).submit("split")
    with working(log, OPERATIONS, name=name) as at_work:
        eventually(lambda: [e.topic for e in log.log(0, log.bound())].count("job.succeeded") == 1, 60)
        eventually(lambda: [e.topic for e in log.log(0, log.bound())].count("batch.completed") == 1, 60)
    events = [event for event in log.log(0, log.bound()) if event.meta.actor != "mina"]
    assert {event.meta.actor for event in events} == {at_work.worker.name}
    assert [event.topic for event in log.log(0, log.bound()) if event.meta.actor == "mina"] == ["job.created"]
    assert {event.topic for event in events} >= {
        "job.created", "job.started", "job.reported", "job.dispatching", "job.dispatched", "job.succeeded",
        "batch.queued", "batch.started", "batch.completed", "lamp.made",
    }  # fmt: skip
    assert Jobs(log).get(job).worker == at_work.worker.name


def test_a_worker_without_a_name_of_its_own_is_called_after_who_runs_it(log: Ledger, dsn: str) -> None:
    with working(log, OPERATIONS) as at_work:
        assert at_work.worker.name.startswith(f"{log.actor}:{os.getpid()}:")


def test_who_runs_it_is_by_default_the_user_at_this_host(dsn: str) -> None:
    from ledger.log.ledger import connect

    with connect(dsn) as log:
        assert log.actor.startswith(f"{getpass.getuser()}@")
