"""`pledger dead`: dead letters are listed, shown, redriven and discarded."""

from __future__ import annotations

from collections.abc import Callable

from consumers.jobs.cascade import cascade
from consumers.jobs.fan_in import fan_in
from gateway.cli.errors import Code
from ledger.jobs import Jobs, OpenBatch, OpenJob
from tests.gateway.conftest import Ended
from tests.gateway.test_jobs import failed, jobs
from tests.gateway.test_worker_commands import followed

Pledger = Callable[..., Ended]

__all__ = ["followed", "jobs"]


def failed_batch(jobs: Jobs) -> tuple[str, str]:
    """A running job, and the name of its batch that failed."""
    id, log = jobs.submit("split"), jobs.ledger
    job = log.load(OpenJob, id).start("w1")
    job.begin_dispatch()
    batch = OpenBatch(id, "1")
    batch.queue(1, "part", "default", payload={"rows": [1]})
    log.commit(job, batch)
    batch.start("w1")
    batch.fail("KeyError", "'x'")
    job.dispatch(1)
    log.commit(job, batch)
    return id, f"batch/{id}/1"


def test_dead_letters_are_looked_at_and_redriven(
    pledger: Pledger, jobs: Jobs, followed: Callable[[], None]
) -> None:
    one, two = failed(jobs), failed(jobs, "other", queue="quick")
    parent, batch = failed_batch(jobs)
    followed()
    dead = pledger("dead", "list", "--json").objects
    assert [letter["stream"] for letter in dead] == [batch, f"job/{two}", f"job/{one}"]
    assert [row[0] for row in pledger("dead", "list", "--error", "KeyError").rows] == [f"{parent}/1"]
    assert [row[0] for row in pledger("dead", "list", "--queue", "quick").rows] == [two]
    (shown,) = pledger("dead", "show", one[:8], "--json").objects
    assert shown["details"] == {"traceback": "first\nlast", "exit_code": 1}
    assert (shown["payload"], shown["redrive"]) == ({"n": 1}, None)
    assert pledger("dead", "show", f"{parent[:8]}/1", "--json").objects[0]["payload"] == {"rows": [1]}
    assert ["traceback", "last"] in pledger("dead", "show", one).rows

    dry = pledger("dead", "redrive", "--json")
    assert (dry.code, [row["redriven"] for row in dry.objects]) == (0, [False] * 3)
    assert "3 would be redriven; give --yes to do it" in dry.err
    assert (jobs.status(one), jobs.status(two)) == ("failed", "failed")
    assert pledger("dead", "redrive", one, "--yes").rows == [[one, "boom", "ArithmeticError", "redriven"]]
    assert pledger("dead", "redrive", parent, "--yes", "--reason", "mended").code == 0
    assert (jobs.status(one), jobs.status(two)) == ("queued", "failed")
    again = pledger("dead", "redrive", one, "--yes")  # the view has not seen it yet
    assert (again.code, "it is queued" in again.out) == (Code.REFUSED, True)
    followed()
    assert [row[0] for row in pledger("dead", "list").rows] == [two]


def test_a_job_is_redriven_with_its_batches(
    pledger: Pledger, jobs: Jobs, followed: Callable[[], None]
) -> None:
    """Of what failed of it nothing is refused, and the advice can be followed."""
    parent, batch = failed_batch(jobs)
    fan_in(jobs.ledger).catch_up()
    followed()
    assert [row[0] for row in pledger("dead", "list").rows] == [parent, f"{parent}/1"]
    alone = pledger("dead", "redrive", f"{parent}/1", "--yes", "--json")
    assert (alone.code, alone.objects[0]["refused"]) == (
        Code.REFUSED, f"{batch} can only be redriven with its job, which failed: redrive job/{parent}"
    )  # fmt: skip
    assert "2 would be redriven; give --yes to do it" in pledger("dead", "redrive").err
    both = pledger("dead", "redrive", "--yes", "--json")
    assert (both.code, [row["redriven"] for row in both.objects]) == (0, [True, True])
    shown = pledger("jobs", "show", parent, "--json").objects[0]
    assert (shown["status"], shown["reopened"], shown["progress"]) == ("running", 1, {"done": 0, "total": 1})
    followed()
    assert pledger("dead", "list").rows == []
    cascade(jobs.ledger).catch_up()
    with jobs.ledger.open(OpenBatch, parent, "1") as again:
        again.start("w1")
        again.fail("KeyError", "'x'")
    fan_in(jobs.ledger).catch_up()
    assert pledger("jobs", "retry", parent, "--whole").rows == [[parent, "queued", ""]]


def test_a_batch_of_a_job_that_is_over_is_not_redriven(
    pledger: Pledger, jobs: Jobs, followed: Callable[[], None]
) -> None:
    parent, batch = failed_batch(jobs)
    jobs.cancel(parent)
    followed()
    foreseen = pledger("dead", "redrive")
    assert (foreseen.code, foreseen.err) == (0, "0 would be redriven, 1 refused; give --yes to do it\n")
    refused = pledger("dead", "redrive", "--yes", "--json")
    assert refused.code == Code.REFUSED
    assert refused.objects[0]["refused"].startswith(f"{batch} no longer counts: its job is cancelled")
    assert pledger("dead", "discard", "--yes").code == 0


def test_dead_letters_are_put_aside(pledger: Pledger, jobs: Jobs, followed: Callable[[], None]) -> None:
    ids = [failed(jobs) for _ in range(3)]
    followed()
    few = pledger("dead", "discard", "--operation", "boom", "--limit", "2", "--yes")
    assert (few.code, len(few.rows)) == (0, 2)
    assert "there are more than 2" in few.err
    assert [jobs.get(id).discarded for id in ids] == [False, True, True]
    assert jobs.status(ids[2]) == "failed"
    assert pledger("jobs", "retry", ids[2]).code == Code.REFUSED
    assert pledger("dead", "discard", ids[2], "--yes", "--json").objects[0]["discarded"] is False
    assert pledger("dead", "redrive", "--limit", "10001").code == Code.MISUSE
    assert pledger("dead", "redrive", "--reason", "why").code == Code.MISUSE
    assert pledger("dead", "show", jobs.submit("ping")).code == Code.NOT_FOUND
