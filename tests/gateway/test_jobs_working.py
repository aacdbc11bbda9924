"""`pledger worker`, `reaper`, `dead`, and lists of jobs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from gateway.codes import Code
from ledger import Ledger
from ledger.jobs import Jobs, OpenBatch, OpenJob
from tests.gateway.conftest import COMMAND, Ended, environment, eventually
from tests.gateway.test_jobs import failed, jobs

Pledger = Callable[..., Ended]
Start = Callable[..., subprocess.Popen[str]]
RUN = ("worker", "run", "--operations", "tests.gateway.operations", "--name", "w1")

__all__ = ["jobs"]


@pytest.fixture
def followed(jobs: Jobs) -> Callable[[], None]:
    """Brings the views to the end of the log."""
    from projections.shipped import load
    from projections.views.projector import Projector, views_named

    load()
    return lambda: Projector(jobs.ledger, views_named(["jobs", "work"])).catch_up()


@contextmanager
def signalled(condition: Callable[[], object], *signals: signal.Signals) -> Iterator[None]:
    """Sends signals to this process, once its command handles them and the condition holds."""

    def handled() -> bool:
        return "stopped_by_signals" in getattr(signal.getsignal(signal.SIGTERM), "__qualname__", "")

    def send() -> None:
        eventually(lambda: handled() and condition())
        for number in signals:
            os.kill(os.getpid(), number)
            time.sleep(0.05)  # two of one kind that come at once are one

    sender = threading.Thread(target=send)
    sender.start()
    yield
    sender.join()


# A worker


def test_a_worker_runs_jobs_until_it_is_told_to_stop(started: Start, pledger: Pledger, jobs: Jobs) -> None:
    good, bad = jobs.submit("double", {"n": 4}), jobs.submit("boom")
    worker = started(*RUN, "--json")
    told = pledger("jobs", "events", good, "--follow")  # ends with the job
    assert [row[3] for row in told.rows] == [
        "job.created",
        "job.started",
        "double.\\x1bbegun",
        "job.succeeded",
    ]
    waited = pledger("jobs", "wait", good[:12], bad[:12], "--timeout", "30")
    assert (waited.code, [row[1] for row in waited.rows]) == (Code.UNSUCCESSFUL, ["succeeded", "failed"])
    assert pledger("jobs", "result", good).objects == [{"n": 8, "word": "\x1b[31m"}]
    (here,) = pledger("worker", "list", "--json").objects
    assert (here["worker"], here["slots"], here["operations"]) == ("w1", 1, ["boom", "double", "sleep"])
    assert pledger("worker", "list").rows[0][2] == "0/1"
    worker.send_signal(signal.SIGTERM)
    out, said = worker.communicate(timeout=30)
    assert (worker.returncode, json.loads(out)) == (0, {"worker": "w1", "done": 2, "gave_back": False})
    assert said.splitlines()[0] == "worker w1 runs boom, double, sleep; Ctrl-C ends it"
    assert "takes nothing more, nothing runs" in said
    assert pledger("worker", "list").rows == []


def test_what_cannot_be_done_in_time_is_given_back(pledger: Pledger, jobs: Jobs) -> None:
    id = jobs.submit("sleep", {"seconds": 60})
    with signalled(lambda: jobs.status(id) == "running", signal.SIGTERM):
        ended = pledger(*RUN, "--drain-seconds", "0.1", "--no-services")
    assert ended.code == Code.TERMINATED
    assert "work that was not done in time was given back" in ended.err
    assert jobs.get(id).status == "queued"
    assert jobs.events(id)[-1].topic == "job.released"


def test_a_second_ctrl_c_ends_it_at_once(pledger: Pledger, jobs: Jobs) -> None:
    id = jobs.submit("sleep", {"seconds": 60})
    with signalled(lambda: jobs.status(id) == "running", signal.SIGINT, signal.SIGINT):
        ended = pledger(*RUN, "--no-services")
    assert ended.code == Code.INTERRUPTED
    assert "takes nothing more" in ended.err


def test_what_is_no_registry_is_said_so(pledger: Pledger, log: Ledger) -> None:
    for operations, says in [
        ("no.such:registry", "the module of operations 'no.such' cannot be imported"),
        ("tests.gateway.operations:nothing", "names no registry of operations"),
        ("tests.gateway.operations:RUN", "names no registry of operations"),
        ("tests.gateway.operations:double", "is no Registry, but function"),
    ]:
        ended = pledger("worker", "run", "--operations", operations)
        assert (ended.code, ended.err.count("\n")) == (Code.MISUSE, 1), operations
        assert says in ended.err
    assert pledger("worker", "run").code == Code.MISUSE


# Rescue


def test_a_reaper_tells_what_it_did(pledger: Pledger, jobs: Jobs, followed: Callable[[], None]) -> None:
    id = jobs.submit("ping")
    job = jobs.ledger.load(OpenJob, id).start("w1")
    jobs.ledger.commit(job)
    followed()
    told = pledger("reaper", "run", "--once", "--json")
    assert (told.code, told.objects[0]["granted"]) == (0, 1)  # nobody had a lease on it
    with signalled(lambda: True, signal.SIGTERM):
        ended = pledger("reaper", "run", "--every", "0.1")
    assert (ended.code, dict(ended.rows)["granted"]) == (0, "0")
    assert ended.err == "the reaper looks every 0.1 s; Ctrl-C ends it\n"
    assert jobs.status(id) == "running"


# Lists


def test_lists_say_that_their_view_is_missing_or_behind(
    pledger: Pledger, jobs: Jobs, followed: Callable[[], None]
) -> None:
    for words in (["jobs", "list"], ["dead", "list"], ["queues", "list"]):
        missing = pledger(*words)
        assert (missing.code, missing.out) == (Code.UNREACHABLE, "")
        assert "pledger views follow jobs" in missing.err
    first = jobs.submit("ping")
    followed()
    jobs.submit("ping")
    behind = pledger("jobs", "list")
    assert (behind.code, [row[0] for row in behind.rows]) == (0, [first])
    assert "the view jobs is 1 events behind, and nobody follows it" in behind.err
    followed()
    assert pledger("jobs", "list").err == ""


def test_jobs_are_listed_by_what_they_are(pledger: Pledger, jobs: Jobs, followed: Callable[[], None]) -> None:
    parent, bad = jobs.submit("split", tags=["night"]), failed(jobs, queue="quick")
    child = jobs.submit("part", parent=parent)
    jobs.pause("quick", "mending")
    jobs.pause("never used")
    followed()

    def listed(*words: str) -> list[str]:
        return [one["id"] for one in pledger("jobs", "list", "--json", *words).objects]

    assert listed() == [bad, parent]
    assert listed("--include-children") == [child, bad, parent]
    assert listed("--parent", parent[:8]) == [child]
    assert listed("--status", "FAILED", "--operation", "boom", "--queue", "quick") == [bad]
    assert listed("--tag", "night") == [parent]
    page = pledger("jobs", "list", "--limit", "1", "--json")
    assert "there may be more: --after" in page.err
    assert listed("--after", str(page.objects[0]["position"])) == [parent]
    unknown = pledger("jobs", "list", "--status", "asleep")
    assert (unknown.code, unknown.out) == (Code.MISUSE, "")
    assert "queued, running, succeeded, failed, cancelled" in unknown.err
    queues = {one["queue"]: one for one in pledger("queues", "list", "--json").objects}
    assert (queues["default"]["queued"], queues["default"]["status"]) == (2, "open")
    assert (queues["quick"]["failed"], queues["quick"]["reason"]) == (1, "mending")
    assert queues["never used"]["status"] == "paused"


# Dead letters


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
    assert "3 would be redriven; --yes does it" in dry.err
    assert (jobs.status(one), jobs.status(two)) == ("failed", "failed")
    assert pledger("dead", "redrive", one, "--yes").rows == [[one, "boom", "ArithmeticError", "redriven"]]
    assert pledger("dead", "redrive", parent, "--yes", "--reason", "mended").code == 0
    assert (jobs.status(one), jobs.status(two)) == ("queued", "failed")
    again = pledger("dead", "redrive", one, "--yes")  # the view has not seen it yet
    assert (again.code, "it is queued" in again.out) == (Code.REFUSED, True)
    followed()
    assert [row[0] for row in pledger("dead", "list").rows] == [two]


def test_a_batch_of_a_job_that_is_over_is_not_redriven(
    pledger: Pledger, jobs: Jobs, followed: Callable[[], None]
) -> None:
    parent, batch = failed_batch(jobs)
    jobs.cancel(parent)
    followed()
    foreseen = pledger("dead", "redrive")
    assert (foreseen.code, foreseen.err) == (0, "0 would be redriven, 1 refused; --yes does it\n")
    refused = pledger("dead", "redrive", "--yes", "--json")
    assert refused.code == Code.REFUSED
    assert refused.objects[0]["refused"].startswith(f"{batch} counts no more, since its job is cancelled")
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


# Elsewhere


def test_a_reader_that_goes_away_and_quiet(pledger: Pledger, jobs: Jobs, dsn: str) -> None:
    id = jobs.submit("ping")
    for _ in range(3):
        jobs.comment(id, "x" * 60_000)
    piped = f"{' '.join(COMMAND)} jobs events {id} --json; echo $? >&2"
    done = subprocess.run(
        ["/bin/sh", "-c", f"({piped}) | head -c 10"], env=environment(LEDGER_DSN=dsn), capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ('{"position', f"{Code.READER_GONE.value}\n")
    assert pledger("jobs", "wait", id, "--timeout", "0", "--quiet").err == ""
