"""`pledger runs`: lists, one run, its history, cancelling; and the audit of runs by the general commands."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from gateway.cli.errors import Code
from ledger import Ledger
from ledger.domain.known import KNOWN
from ledger.runs import FlowRuns, OpenFlowRun
from ledger.runs.blocks import Blocks
from ledger.runs.states import completed, failed, pending, running
from projections import Projector
from tests.gateway.conftest import Ended, plain_environment, pledger
from tests.runs.given_reads import START, VIEWS, World, flow_run, state

__all__ = ["plain_environment", "pledger"]  # fixtures
Pledger = Callable[..., Ended]


@pytest.fixture
def looking(pledger: Pledger, world: World, monkeypatch: pytest.MonkeyPatch) -> Pledger:
    """Run a command on the world that all tests only look at."""
    monkeypatch.setenv("LEDGER_DSN", world.log.address.conninfo)
    return pledger


def test_the_list_is_filtered_sorted_and_has_pages(looking: Pledger, world: World) -> None:
    ended = looking("runs", "list")
    assert (ended.code, ended.err) == (0, "")
    assert [row[1] for row in ended.rows] == ["blue-bee", "green-doe", "red-ant", "late-elk", "gray-cow"]
    assert ended.rows[2][:4] == [world.ids["a"], "red-ant", "etl", "Completed"]
    assert ended.rows[2][5] == "480.0"

    def names(*options: str) -> list[str]:
        return [one["name"] for one in looking("runs", "list", "--json", *options).objects]

    assert names("--state", "Late", "--state", "completed") == ["red-ant", "gray-cow"]
    assert names("--flow", "etl", "--tag", "x", "--tag", "y") == ["blue-bee"]
    assert names("--deployment", "prod", "--state", "RUNNING") == ["blue-bee"]
    assert names("--limit", "2", "--offset", "1") == ["green-doe", "red-ant"]
    assert "no flow run matches" in looking("runs", "list", "--flow", "nobody's").err
    (first, *_) = looking("runs", "list", "--json", "--limit", "1").objects
    assert (first["flow"], first["state"]["name"]) == ("etl", "Running")


def test_views_that_are_missing_are_made_and_lag_is_said(pledger: Pledger, log: Ledger) -> None:
    flow = str(uuid4())
    flow_run(log, str(uuid4()), "red", flow, state("RUNNING"))
    ended = pledger("runs", "list")
    assert [row[1] for row in ended.rows] == ["red"]
    assert "the view flow_runs did not exist; it was made now" in ended.err
    flow_run(log, str(uuid4()), "blue", flow, state("RUNNING"))
    assert "the view flow_runs is 2 events behind, and nothing follows it: run `pledger serve --prefect`" in (
        pledger("runs", "list").err
    )


def test_one_run_is_shown_with_its_task_runs(looking: Pledger, world: World) -> None:
    told = looking("runs", "show", world.ids["b"], "--json").objects[0]
    assert (told["name"], told["flow"]) == ("blue-bee", "etl")
    assert [one["name"] for one in told["task_runs"]] == ["child", "store"]
    ended = looking("runs", "show", world.ids["b"])
    assert ["name", "blue-bee"] in ended.rows
    assert [row[1:3] for row in ended.rows if row[0] == world.ids["t3"]] == [["store", "Failed"]]
    assert looking("runs", "show", f"task_run/{world.ids['t3']}", "--json").objects[0]["name"] == "store"
    for words, code, says in [
        (["00000000"], Code.MISUSE, "give more digits"),
        (["xyz"], Code.MISUSE, "is not a run's id"),
        (["ffff"], Code.NOT_FOUND, "no flow run or task run has an id that begins with ffff"),
    ]:
        ended = looking("runs", "show", *words)
        assert (ended.code, ended.out) == (code, "")
        assert says in ended.err


def test_history_shows_states_and_refused_proposals_with_their_rules(pledger: Pledger, log: Ledger) -> None:
    runs = FlowRuns(log)
    run, _ = runs.create(str(uuid4()), name="red", state=pending(), empirical_policy={"retries": 1})
    runs.set_state(run.id, running())
    runs.set_state(run.id, pending())  # refused: it has begun
    runs.set_state(run.id, failed(message="it broke"))  # replaced: it is retried
    rows = pledger("runs", "history", run.id, "--json").objects
    assert [(row["what"], row["name"], row["rule"]) for row in rows] == [
        ("state", "Pending", None),
        ("state", "Running", None),
        ("refused", "Pending", "PreventPendingTransitions"),
        ("state", "AwaitingRetry", "RetryFailedFlows"),
    ]
    assert (rows[2]["verdict"], rows[3]["proposed"], rows[3]["actor"]) == ("ABORT", "FAILED", "tester")
    assert rows[0]["recorded_at"]
    assert [row["version"] for row in rows] == [2, 3, 4, 5]
    everything = pledger("runs", "history", run.id, "--all", "--json").objects
    assert everything[0]["what"] == "created"
    table = pledger("runs", "history", run.id)
    assert [row[1] for row in table.rows] == ["Pending", "Running", "refused Pending", "AwaitingRetry"]


def test_history_tells_claimed_times_from_recorded_ones(looking: Pledger, world: World) -> None:
    rows = looking("runs", "history", world.ids["a"], "--json").objects
    assert [row["claimed_at"] for row in rows] == [
        f"2026-03-01T12:{minute}:00.000000+00:00" for minute in ("00", "01", "09")
    ]
    assert all(row["recorded_at"] > "2026-03-02" or row["recorded_at"] != row["claimed_at"] for row in rows)


def test_cancelling_is_decided_by_the_rules(pledger: Pledger, log: Ledger) -> None:
    runs = FlowRuns(log)
    waiting, _ = runs.create(str(uuid4()), state=pending(), infrastructure_pid="host:7")
    over, _ = runs.create(str(uuid4()), state=running())
    runs.set_state(over.id, completed())
    ended = pledger("runs", "cancel", waiting.id, over.id, "--message", "enough", "--json")
    assert ended.code == Code.REFUSED
    assert [(row["cancelled"], row["state"]) for row in ended.objects] == [
        (True, "Cancelling"), (False, "Completed"),
    ]  # fmt: skip
    assert ended.objects[1]["rule"] == "HandleFlowTerminalStateTransitions"
    assert "1 of 2 were refused" in ended.err
    forced = pledger("runs", "cancel", waiting.id, "--force", "--json")
    assert (forced.code, forced.objects[0]["state"]) == (0, "Cancelled")
    last = runs.get(waiting.id).state
    assert last is not None
    assert last.name == "Cancelled"


def test_keys_are_rotated(
    pledger: Pledger, log: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEDGER_BLOCK_KEYS_FILE", str(tmp_path / "keys"))
    blocks = Blocks(log)
    type_id = blocks.schemas.create_type({"name": "Login", "slug": "login"}).id
    given = {"block_type_id": type_id, "fields": {"properties": {"password": {"type": "string"}}}}
    schema, _ = blocks.schemas.create(given)
    made = blocks.create(
        {"name": "db", "data": {"password": "x"}, "block_type_id": type_id, "block_schema_id": schema.id}
    )
    (first,) = (key for key in blocks.keys.all())
    told = pledger("runs", "rotate-keys", "--json").objects[0]
    assert told["changed"] == 1
    assert told["key"] not in (first, "")
    assert blocks.get(made["id"], include_secrets=True)["data"] == {"password": "x"}


def test_the_services_run_until_they_are_stopped(pledger: Pledger, log: Ledger) -> None:
    """A late run is marked; then the process gets a signal."""
    due = state("SCHEDULED", 0, scheduled_time=START.isoformat())
    id = flow_run(log, str(uuid4()), "red", str(uuid4()), due)
    Projector(log, [KNOWN.views[name] for name in VIEWS]).catch_up()

    def until_late(_: object = None) -> None:
        while log.load(OpenFlowRun, id).state.state_name != "Late":
            log.wakeup.wait(log.wakeup.seen(), 0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    watcher = threading.Thread(target=until_late)
    watcher.start()
    ended = pledger("runs", "services", "--late-after", "1")
    watcher.join()
    assert (ended.code, ended.err) == (0, "the services of runs are at work; Ctrl-C ends them\n")


# The general commands work on runs


def test_runs_are_audited_as_any_stream(pledger: Pledger, log: Ledger) -> None:
    runs = FlowRuns(log)
    run, _ = runs.create(str(uuid4()), name="red", state=pending())
    runs.set_state(run.id, running())
    stream = f"flow_run/{run.id}"
    diff = pledger("diff", stream, "--from", "2", "--to", "3", "--json")
    assert diff.code == 0
    assert "run_count" in diff.out
    blame = pledger("blame", stream, "--json")
    assert blame.code == 0
    assert "flow_run.state_set" in blame.out
    assert pledger("why", stream, "--json").code == 0
    then = pledger("show", stream, "--json", "--version", "2")
    assert (then.code, json.loads(then.out.splitlines()[0])["state"]["status"]) == (0, "pending")


def test_w3_10_verify_finds_a_manipulated_row(pledger: Pledger, log: Ledger, admin_dsn: str) -> None:
    id = flow_run(log, str(uuid4()), "red", str(uuid4()), state("RUNNING"))
    Projector(log, [KNOWN.views["flow_runs"]]).catch_up()
    fine = pledger("verify", "--check", "flow_runs", "--json")
    assert fine.code == 0, fine.out
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute("UPDATE ledger_views.flow_runs_1 SET state_name = 'Completed'")
    found = pledger("verify", "--check", "flow_runs", "--json")
    assert found.code == Code.REFUSED
    assert id in found.out
