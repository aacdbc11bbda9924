"""`pledger jobs`: submitting, looking, deciding; without a worker and without a view."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.errors import Code
from gateway.cli.output import plain
from ledger import Ledger
from ledger.jobs import Jobs, OpenJob
from tests.gateway.conftest import Ended

Pledger = Callable[..., Ended]


@pytest.fixture
def jobs(log: Ledger) -> Jobs:
    return Jobs(log)


def failed(jobs: Jobs, operation: str = "boom", **fields: Any) -> str:
    """A job that a worker took and that failed."""
    id = jobs.submit(operation, {"n": 1}, **fields)
    job = jobs.ledger.load(OpenJob, id).start("w1")
    job.fail("ArithmeticError", "it went\x1b[31m boom", {"traceback": "first\nlast", "exit_code": 1})
    jobs.ledger.commit(job)
    return id


# Submitting


def test_what_is_submitted_is_recorded_as_it_was_said(pledger: Pledger, jobs: Jobs) -> None:
    parent = pledger("jobs", "submit", "parent").out.strip()
    ended = pledger(
        "jobs", "submit", "count", "k=3", "file=a.fasta", "deep={\"x\": [1, null]}", "text=\"7\"",
        "--payload", '{"k": 1, "kept": true}', "--queue", "quick", "--priority", "7", "--parent", parent[:8],
        "--tag", "night", "--tag", "b", "--description", "what it is", "--meta", '{"a": 1}', "--meta", "b=x",
        "--max-attempts", "4", "--timeout", "1h30m", "--delay", "2m", "--json",
    )  # fmt: skip
    assert (ended.code, ended.err) == (0, "")
    job = jobs.get(ended.objects[0]["id"])
    assert ended.objects[0]["status"] == job.status == "queued"
    text = "7"
    assert plain(job.payload) == {
        "k": 3,
        "file": "a.fasta",
        "deep": {"x": [1, None]},
        "text": text,
        "kept": True,
    }
    assert (job.queue, job.priority, job.parent, job.tags) == ("quick", 7, parent, ("night", "b"))
    assert (job.description, job.meta, job.max_attempts) == ("what it is", {"a": 1, "b": "x"}, 4)
    assert job.timeout_seconds == 5400
    assert job.created_at is not None
    assert job.due_at is not None
    assert 115 < (job.due_at - job.created_at).total_seconds() < 125
    assert jobs.get(parent).children == (job.id,)


def test_a_payload_from_a_file_and_from_stdin(
    pledger: Pledger, jobs: Jobs, tmp_path: Path, process: Pledger
) -> None:
    file = tmp_path / "payload.json"
    file.write_text('{"word": "größer"}', encoding="utf-8")
    id = pledger("jobs", "submit", "count", "--payload-file", str(file), "n=2").out.strip()
    assert jobs.get(id).payload == {"word": "größer", "n": 2}
    file.write_bytes(b'{"word": "\xff"}')
    assert "is no UTF-8" in pledger("jobs", "submit", "count", "--payload-file", str(file)).err
    assert "No such file" in pledger("jobs", "submit", "count", "--payload-file", "nowhere.json").err


def test_what_could_never_be_submitted_is_refused_in_a_sentence(pledger: Pledger, log: Ledger) -> None:
    for words, says in [
        (["--payload", "[1]"], 'the payload must be a JSON object such as {"n": 1}, not a list'),
        (["--payload", "null"], "not null"),
        (["--payload", "true"], "not a truth value"),
        (["--payload", "{"], "the payload is no JSON"),
        (["--payload", "[" * 100_000], "the payload is no JSON"),
        (["--payload", '{"n": NaN}'], "not a number that JSON can hold"),
        (["--payload", "{}", "--payload-file", "x"], "exclude each other"),
        (["n"], "'n' must be NAME=VALUE"),
        (["=1"], "'=1' must be NAME=VALUE"),
        (["--meta", "{"], "--meta is no JSON"),
        (["--delay", "-1"], "must be 0 or more"),
        (["--delay", "nan"], "must be 0 or more"),
        (["--delay", "soon"], "--delay: 'soon' is not a span of time"),
        (["--delay", "1", "--run-at", "14:00"], "not both"),
        (["--run-at", "soon"], "'soon' is not a moment"),
        (["--timeout", "0"], "timeout_seconds must be more than 0"),
        (["--max-attempts", "0"], "--max-attempts"),
        (["--unique-key", ""], "--unique-key must not be empty"),
        (["--queue", " "], "queue"),
        (["--parent", "xyz"], "'xyz' is not a job id"),
    ]:
        ended = pledger("jobs", "submit", "count", *words)
        assert (ended.code, ended.out) == (Code.MISUSE, ""), words
        assert says in ended.err
        assert ended.err.count("\n") == 1
    assert log.streams() == []


def test_a_parent_must_be_there_and_not_be_over(pledger: Pledger, jobs: Jobs) -> None:
    nobody = "00000000-0000-4000-8000-000000000000"
    assert pledger("jobs", "submit", "count", "--parent", nobody).code == Code.NOT_FOUND
    over = jobs.submit("parent")
    jobs.cancel(over)
    ended = pledger("jobs", "submit", "count", "--parent", over)
    assert ended.code in (Code.CONFLICT, Code.MISUSE)
    assert "no more child jobs" in ended.err


def test_unique_jobs_and_commands(pledger: Pledger, jobs: Jobs) -> None:
    first = pledger("jobs", "submit", "count", "n=1", "--unique").out.strip()
    again = pledger("jobs", "submit", "count", "n=1", "--unique", "--json")
    assert again.code == Code.CONFLICT
    assert again.error["error"] == "DuplicateJob"
    assert again.error["parts"]["job"] == first
    assert pledger("jobs", "submit", "count", "n=2", "--unique").code == 0
    assert pledger("jobs", "submit", "count", "--unique-key", "mine").code == 0
    assert pledger("jobs", "submit", "other", "--unique-key", "mine").code == Code.CONFLICT
    once = [pledger("jobs", "submit", "count", "n=3", "--command", "c1").out for _ in range(2)]
    assert once[0] == once[1]
    assert pledger("jobs", "submit", "count", "n=4", "--command", "c1").code == Code.CONFLICT


# By its id, or the beginning of it


def test_the_beginning_of_an_id_is_enough_where_it_is_one_jobs(pledger: Pledger, jobs: Jobs) -> None:
    ids = [f"abcdef0{n}-0000-4000-8000-000000000000" for n in (1, 2)]
    for id in ids:
        jobs.submit("ping", id=id)
    for given in ("abcdef01", "ABCDEF010000", f"job/{ids[0]}", ids[0].replace("-", "")):
        assert json.loads(pledger("jobs", "show", given, "--json").out)["id"] == ids[0]
    many = pledger("jobs", "show", "abcd")
    assert (many.code, many.out) == (Code.MISUSE, "")
    assert many.err == f"pledger: abcd may be {ids[0]}, {ids[1]}: give more digits\n"
    assert pledger("jobs", "show", "abcdef03").code == Code.NOT_FOUND
    nobody = pledger("jobs", "show", "abcdef01-0000-4000-8000-000000000001")
    assert (nobody.code, nobody.err.count("\n")) == (Code.NOT_FOUND, 1)
    assert "there is no job abcdef01-0000-4000-8000-000000000001" in nobody.err
    for wrong in ("abc", "nonsense", "", "%", ids[0] + "0"):
        refused = pledger("jobs", "show", wrong)
        assert (refused.code, "is not a job id" in refused.err) == (Code.MISUSE, True), wrong


# Looking


def test_a_job_is_shown_whole(pledger: Pledger, jobs: Jobs) -> None:
    id = failed(jobs, meta={"by": "me"}, tags=["t"], parent=jobs.submit("parent"))
    rows = dict(row for row in pledger("jobs", "show", id).rows)
    assert (rows["job"], rows["status"], rows["tags"]) == (id, "failed", "t")
    assert rows["error"] == "ArithmeticError: it went\\x1b[31m boom"
    assert (rows["payload"], rows["meta"]) == ('{"n": 1}', '{"by": "me"}')
    (shown,) = pledger("jobs", "show", id, "--json").objects
    assert shown["error_message"] == "it went\x1b[31m boom"
    assert (shown["payload"], shown["attempt"], shown["due_at"]) == ({"n": 1}, 1, None)


def test_progress_is_counted_without_a_view(pledger: Pledger, jobs: Jobs) -> None:
    from ledger.jobs import OpenBatch

    id, log = jobs.submit("split"), jobs.ledger
    job = log.load(OpenJob, id).start("w1")
    job.begin_dispatch()
    log.commit(job)
    batches = [OpenBatch(id, str(nr)) for nr in range(1, 5)]
    for batch in batches:
        batch.queue(1, "part", "default")
    log.commit(*batches)
    for batch in batches[:3]:
        batch.start("w1")
        batch.complete()
    log.commit(*batches[:3])
    job.dispatch(4)
    log.commit(job)
    rows = dict(pledger("jobs", "show", id).rows)
    assert (rows["status"], rows["progress"]) == ("running, dispatched", "3 of 4, 75 %")
    assert rows["batches"] == "3 completed, 1 queued"
    (shown,) = pledger("jobs", "show", id, "--json").objects
    assert shown["progress"] == {"done": 3, "total": 4}
    assert shown["batch_statuses"] == {"completed": 3, "queued": 1}


def test_results(pledger: Pledger, jobs: Jobs) -> None:
    id = jobs.submit("double")
    early = pledger("jobs", "result", id)
    assert (early.code, early.out) == (Code.UNSUCCESSFUL, "")
    assert f"job {id} is queued" in early.err
    job = jobs.ledger.load(OpenJob, id).start("w1")
    job.succeed({"n": 2, "words": ["größer"]})
    jobs.ledger.commit(job)
    assert json.loads(pledger("jobs", "result", id).out) == {"n": 2, "words": ["größer"]}
    bad = pledger("jobs", "result", failed(jobs), "--json")
    assert (bad.code, bad.error["parts"]["error_code"]) == (Code.UNSUCCESSFUL, "ArithmeticError")


def test_the_timeline_of_a_job(pledger: Pledger, jobs: Jobs) -> None:
    id = failed(jobs)
    jobs.comment(id, "so be it")
    rows = pledger("jobs", "events", id).rows
    assert [row[2:4] for row in rows] == [
        ["info", "job.created"], ["info", "job.started"], ["error", "job.failed"], ["info", "job.commented"],
    ]  # fmt: skip
    assert rows[2][4] == "it went\\x1b[31m boom"
    told = pledger("jobs", "events", id, "--json", "--after", rows[0][0], "--limit", "2", "--follow").objects
    assert [one["event"] for one in told] == ["job.started", "job.failed"]
    assert told[1]["fields"]["details"]["exit_code"] == 1
    followed = pledger("jobs", "events", id, "--follow")  # ends, since the job is over
    assert followed.rows == rows


# Waiting


def test_how_waiting_ends(pledger: Pledger, jobs: Jobs) -> None:
    good, bad, gone, waits = jobs.submit("ping"), failed(jobs), jobs.submit("ping"), jobs.submit("ping")
    job = jobs.ledger.load(OpenJob, good).start("w1")
    job.succeed()
    jobs.ledger.commit(job)
    jobs.cancel(gone)
    assert pledger("jobs", "wait", good).code == 0
    ended = pledger("jobs", "wait", good, bad, good)
    assert (ended.code, [row[:2] for row in ended.rows]) == (6, [[good, "succeeded"], [bad, "failed"]])
    assert pledger("jobs", "wait", gone, "--json").code == Code.UNSUCCESSFUL == 6
    late = pledger("jobs", "wait", waits, good, "--timeout", "0", "--json")
    assert late.code == Code.TIMED_OUT == 7
    assert [(one["status"], one["over"]) for one in late.objects] == [("queued", False), ("succeeded", True)]
    assert "timeout: 1 of 2 jobs have not finished" in late.err
    assert pledger("jobs", "wait", waits, bad, "--timeout", "0").code == 6
    assert pledger("jobs", "wait", waits, "--timeout", "never").code == Code.MISUSE
    assert pledger("jobs", "wait").code == Code.MISUSE


# Deciding


def test_cancelling_is_done_once_and_leaves_what_is_over(pledger: Pledger, jobs: Jobs) -> None:
    waits, bad = jobs.submit("ping"), failed(jobs)
    ended = pledger("jobs", "cancel", waits, bad, "--reason", "not needed", "--json")
    assert ended.code == 0
    assert [(one["status"], one["cancelled"]) for one in ended.objects] == [
        ("cancelled", True),
        ("failed", False),
    ]
    assert "is failed already" in ended.err
    assert jobs.events(waits)[-1].event.reason == "not needed"  # type: ignore[union-attr]
    again = pledger("jobs", "cancel", waits, "--json")
    assert (again.code, again.objects[0]["cancelled"]) == (0, False)
    assert jobs.ledger.load(OpenJob, waits).version == 2
    other = jobs.submit("ping")
    assert pledger("jobs", "cancel", other, "00000000-0000-4000-8000-000000000000").code == Code.NOT_FOUND
    assert pledger("jobs", "cancel", other, "nonsense").code == Code.MISUSE
    assert jobs.status(other) == "queued"  # nothing is done where one of the ids is wrong


def test_retrying_what_failed(pledger: Pledger, jobs: Jobs) -> None:
    bad, waits = failed(jobs), jobs.submit("ping")
    ended = pledger("jobs", "retry", bad, waits, "--reason", "mended", "--json")
    assert ended.code == Code.REFUSED
    assert [(one["status"], one["retried"]) for one in ended.objects] == [("queued", True), ("queued", False)]
    assert ended.objects[1]["error"] == "only a failed job can be retried, and it is queued"
    assert jobs.get(bad).failures == 0
    unique = failed(jobs, "once", unique="key")
    other = jobs.submit("once", unique="key")
    held = pledger("jobs", "retry", unique)
    assert held.code == Code.CONFLICT
    assert other in held.out


def test_words_on_a_job(pledger: Pledger, jobs: Jobs) -> None:
    id = jobs.submit("ping", tags=["a"])
    assert pledger("jobs", "comment", id, "  good  ", "--author", "mina").rows == [[id, "1"]]
    assert pledger("jobs", "comment", id, "  ").code == Code.MISUSE
    (said,) = pledger("jobs", "describe", id, "--findings", "f", "--description", "d", "--json").objects
    assert said == {"id": id, "description": "d", "findings": "f", "tags": ["a"]}
    assert pledger("jobs", "describe", id, "--no-tags", "--json").objects[0]["tags"] == []
    assert pledger("jobs", "describe", id).code == Code.MISUSE
    assert pledger("jobs", "describe", id, "--tag", "x", "--no-tags").code == Code.MISUSE
    assert [event.topic for event in jobs.events(id)][1:3] == ["job.commented", "job.described"]
