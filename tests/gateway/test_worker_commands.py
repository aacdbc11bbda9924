"""`pledger worker`, `reaper`, `dead`, and lists of jobs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

import pytest

from gateway.cli.errors import Code
from ledger import Ledger
from ledger.jobs import Jobs, OpenJob
from ledger.jobs.leases import Leases
from tests.gateway.conftest import Ended, environment, eventually, forked
from tests.gateway.test_jobs import failed, jobs
from tests.jobs.claims import WORKER

Pledger = Callable[..., Ended]
Start = Callable[..., subprocess.Popen[str]]
RUN = ("worker", "run", "--operations", "tests.gateway.operations", "--name", "w1")

__all__ = ["jobs"]


@pytest.fixture
def followed(jobs: Jobs) -> Callable[[], None]:
    """Brings the views to the end of the log."""
    from projections.engine.projector import Projector, views_named
    from projections.shipped import load

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
    eventually(lambda: pledger("worker", "list").rows[0][2] == "0/1")  # as it says at its next beat
    worker.send_signal(signal.SIGTERM)
    out, said = worker.communicate(timeout=30)
    assert (worker.returncode, json.loads(out)) == (0, {"worker": "w1", "done": 2, "gave_back": False})
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert lines[0]["message"] == "worker w1 runs boom, double, sleep; Ctrl-C ends it"
    assert "stopping: claims nothing more, nothing runs" in [line["message"] for line in lines]
    done = {line["job"]: line for line in lines if "job" in line}
    assert (done[good]["level"], done[good]["status"], done[good]["operation"]) == (
        "info",
        "succeeded",
        "double",
    )
    assert (done[bad]["level"], done[bad]["error_code"], done[bad]["batch"], done[bad]["worker"]) == (
        "error", "ArithmeticError", None, "w1"
    )  # fmt: skip
    assert pledger("worker", "list").rows == []


def test_a_worker_says_a_line_for_each_job(pledger: Pledger, jobs: Jobs) -> None:
    """When, how bad, which job, what became of it, and why."""
    bad, again = jobs.submit("boom"), jobs.submit("boom", max_attempts=2)
    with signalled(lambda: jobs.get(again).failures == 1 and jobs.status(bad) == "failed", signal.SIGTERM):
        ended = pledger(*RUN, "--no-services")
    lines = [line.split(" ", 2) for line in ended.err.splitlines() if line.startswith("2")]
    told = {id: (level, rest) for _, level, rest in lines for id in (bad, again) if id in rest}
    assert datetime.fromisoformat(lines[0][0]).tzinfo is not None
    assert told[bad][0] == "ERROR"
    assert re.fullmatch(
        f"job {bad} boom failed after [0-9.e-]+ s: ArithmeticError: it went boom", told[bad][1]
    )
    assert told[again][0] == "WARNING"
    assert f"job {again} boom failed, to be tried again in 1 s, after" in told[again][1]


def test_who_waits_is_told_that_no_worker_runs(pledger: Pledger, jobs: Jobs) -> None:
    ids = [jobs.submit("ping") for _ in range(2)]
    waited = pledger("jobs", "wait", *ids, "--timeout", "0.5")
    advice = "start one with `pledger worker run --operations MODULE:NAME`"
    assert waited.err.splitlines()[0] == f"2 of 2 jobs wait: no worker runs; {advice}"
    Leases(jobs.ledger).register("w", **{**WORKER, "operations": ["other"]})
    waited = pledger("jobs", "wait", *ids, "--timeout", "0.5")
    assert waited.err.splitlines()[0] == "2 of 2 jobs wait: no worker knows its operation"


def test_what_cannot_be_done_in_time_is_given_back(pledger: Pledger, jobs: Jobs) -> None:
    id = jobs.submit("sleep", {"seconds": 60})
    with signalled(lambda: jobs.status(id) == "running", signal.SIGTERM):
        ended = pledger(*RUN, "--drain-seconds", "0.1", "--no-services")
    assert ended.code == Code.TERMINATED
    assert "work that did not finish in time was returned to the queue" in ended.err
    assert jobs.get(id).status == "queued"
    assert jobs.events(id)[-1].topic == "job.released"


def test_a_second_ctrl_c_ends_it_at_once(pledger: Pledger, jobs: Jobs) -> None:
    id = jobs.submit("sleep", {"seconds": 60})
    with signalled(lambda: jobs.status(id) == "running", signal.SIGINT, signal.SIGINT):
        ended = pledger(*RUN, "--no-services")
    assert ended.code == Code.INTERRUPTED
    assert "claims nothing more" in ended.err


def test_what_is_no_registry_is_said_so(pledger: Pledger, log: Ledger) -> None:
    for operations, says in [
        ("no.such:registry", "the module of operations 'no.such' cannot be imported"),
        ("tests.gateway.operations:nothing", "does not name a registry of operations"),
        ("tests.gateway.operations:RUN", "does not name a registry of operations"),
        ("tests.gateway.operations:double", "is not a Registry but function"),
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
    assert ended.err == "the reaper checks every 0.1 s; Ctrl-C ends it\n"
    assert jobs.status(id) == "running"


# Lists


def test_lists_say_that_their_view_is_missing_or_behind(
    pledger: Pledger, jobs: Jobs, followed: Callable[[], None]
) -> None:
    missing = pledger("jobs", "list")
    assert (missing.code, missing.out) == (0, "")
    assert missing.err.splitlines() == [
        "the view jobs did not exist; it was made now",
        "no job matches",
    ]
    for words in (["dead", "list"], ["queues", "list"]):
        assert pledger(*words).code == 0
    first = jobs.submit("ping")
    followed()
    jobs.submit("ping")
    behind = pledger("jobs", "list")
    assert (behind.code, [row[0] for row in behind.rows]) == (0, [first])
    assert "the view jobs is 1 events behind, and nothing follows it" in behind.err
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
    assert "there are more: give --after" in page.err
    assert listed("--after", str(page.objects[0]["position"])) == [parent]
    unknown = pledger("jobs", "list", "--status", "asleep")
    assert (unknown.code, unknown.out) == (Code.MISUSE, "")
    assert "queued, running, succeeded, failed, cancelled" in unknown.err
    queues = {one["queue"]: one for one in pledger("queues", "list", "--json").objects}
    assert (queues["default"]["queued"], queues["default"]["status"]) == (2, "open")
    assert (queues["quick"]["failed"], queues["quick"]["reason"]) == (1, "mending")
    assert queues["never used"]["status"] == "paused"


def test_a_list_of_jobs_in_a_pipe_is_whole(
    pledger: Pledger, jobs: Jobs, followed: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.cli.jobs.show.PAGE", 7)
    ids = [jobs.submit("boom") for _ in range(55)]
    followed()
    assert [one["id"] for one in pledger("jobs", "list", "--json").objects] == ids[::-1]
    assert len(pledger("jobs", "list").rows) == 55


def test_what_no_worker_takes_says_why(pledger: Pledger, jobs: Jobs, followed: Callable[[], None]) -> None:
    one, other = jobs.submit("ping"), jobs.submit("from new code", queue="quick")
    followed()
    leases = Leases(jobs.ledger)

    def told() -> tuple[list[str | None], list[str]]:
        listed = pledger("jobs", "list", "--json").objects
        shown = [pledger("jobs", "show", id, "--json").objects[0]["waits_because"] for id in (other, one)]
        assert [row["waits_because"] for row in listed] == shown
        return shown, pledger("worker", "list").err.splitlines()

    nobody, no = "no worker runs", "no worker knows its operation"
    assert told() == (
        [nobody] * 2,
        [f"1 jobs of ping wait in queue default: {nobody}",
         f"1 jobs of from new code wait in queue quick: {nobody}",
         "no worker runs; start one with `pledger worker run --operations MODULE:NAME`"],
    )  # fmt: skip
    leases.register("w", **WORKER)
    assert told() == ([no, None], [f"1 jobs of from new code wait in queue quick: {no}"])
    assert ["waits", f"since {no}"] in pledger("jobs", "show", other).rows
    assert [row[-1] for row in pledger("jobs", "list").rows] == [no, ""]
    assert pledger("worker", "list").rows[0][-2:] == ["here", "ping"]
    leases.register("v", **{**WORKER, "operations": ["from new code"], "queues": ["default"]})
    assert told()[0] == ["no worker that knows its operation takes from its queue", None]


# Elsewhere


def test_a_reader_that_goes_away_and_quiet(pledger: Pledger, jobs: Jobs, dsn: str) -> None:
    id = jobs.submit("ping")
    for _ in range(3):
        jobs.comment(id, "x" * 60_000)
    piped = f"{' '.join(forked())} jobs events {id} --json; echo $? >&2"
    done = subprocess.run(
        ["/bin/sh", "-c", f"({piped}) | head -c 10"], env=environment(LEDGER_DSN=dsn), capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ('{"position', f"{Code.READER_GONE.value}\n")
    assert pledger("jobs", "wait", id, "--timeout", "0", "--quiet").err == ""
