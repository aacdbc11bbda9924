"""The import of a Prefect database: its ids, its times as claimed ones; a second one adds what is new."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.json import Json

from consumers.runs.imports import Import, Report, prefect_database
from consumers.runs.imports.database import seconds_of, time_of
from gateway.cli.errors import Code
from ledger import BadFile, Ledger
from ledger.runs import FlowRuns, OpenFlowRun, TaskRuns
from ledger.runs.artifacts import Artifacts
from ledger.runs.blocks import Blocks
from ledger.runs.records import Records
from ledger.runs.run_logs import RunLogs
from ledger.runs.states import running
from projections.runs.event_filters import EventFilter
from projections.runs.prefect_events import PrefectEvents
from projections.verify import verify
from tests.gateway.conftest import COMMAND, Ended, environment, plain_environment, pledger
from tests.runs.given_prefect import START, TABLES, Given, at, filled, number

__all__ = ["plain_environment", "pledger"]  # fixtures


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Given:
    monkeypatch.setenv("LEDGER_BLOCK_KEYS_FILE", str(tmp_path / "keys"))
    return filled(tmp_path / "prefect.db")


def imported(log: Ledger, given: Given) -> Report:
    with prefect_database(str(given.path)) as database:
        return Import(log, database).run()


def test_everything_comes_with_its_ids_and_claimed_times(log: Ledger, given: Given) -> None:
    report = imported(log, given)
    assert report.total.left == []
    assert {table: counts.new for table, counts in report.tables.items() if counts.new} == {
        "flow": 1, "block_type": 1, "block_schema": 1, "block_document": 2, "concurrency_limit_v2": 1,
        "concurrency_limit": 1, "work_pool": 1, "work_queue": 1, "deployment": 1, "variable": 1,
        "flow_run": 2, "task_run": 1, "artifact": 2, "log": 1,
    }  # fmt: skip
    assert report.left_out == ["1 workers: they come again by themselves"]

    runs = FlowRuns(log)
    run = runs.get(number(20))
    assert (run.name, run.flow_id, run.deployment_id) == ("red-ant", number(1), number(4))
    assert (run.work_pool_name, run.work_queue_name, run.created) == ("local", "default", START)
    assert (run.start_time, run.end_time) == (START + timedelta(minutes=1), START + timedelta(minutes=3))
    assert (run.run_count, run.total_run_time) == (1, timedelta(minutes=2))
    assert run.state is not None
    assert run.state.data == {"type": "resultrecord", "value": 7}
    assert [state.id for state in runs.states(run.id)] == [number(20_000), number(20_001), number(29)]
    assert runs.get_input(run.id, "answer").value == '"yes"'
    assert runs.create(number(1), idempotency_key="k1")[0].id == run.id  # the key is taken

    task = TaskRuns(log).get(number(21))
    assert [state.name for state in TaskRuns(log).states(task.id)] == [
        "Pending", "Running", "Retrying", "Completed",
    ]  # fmt: skip
    assert (task.run_count, task.total_run_time) == (2, timedelta(seconds=1.5))  # as its client counted

    records = Records(log)
    assert (deployment := records.get("deployment", number(4)))["work_pool_name"] == "local"
    assert deployment["job_variables"] == {"cpu": 2}
    assert [one["schedule"]["interval"] for one in deployment["schedules"]] == [3600.0]
    assert records.get("variable", number(5)).created == START
    assert records.named("concurrency_limit", "tag:gpu")["limit"] == 2
    assert Artifacts(log).latest("report")["latest_id"] == number(31)
    assert [line["message"] for line in RunLogs(log).read()] == ["hi"]
    assert verify(log, processes=1).differences == 0


def test_the_newest_artifact_of_a_key_is_the_latest_whatever_its_id(log: Ledger, given: Given) -> None:
    given.put("artifact", number(33), key="plot", type="markdown", data=json.dumps("old"), created=at(1))
    given.put("artifact", number(32), key="plot", type="markdown", data=json.dumps("new"), created=at(2))
    assert imported(log, given).total.left == []
    assert Artifacts(log).latest("plot")["latest_id"] == number(32)


def test_a_pool_is_not_ready_until_its_workers_come(log: Ledger, given: Given) -> None:
    given.put("work_pool", number(70), name="busy", type="process", base_job_template={}, status="READY")
    given.put("work_pool", number(71), name="resting", type="process", base_job_template={}, status="PAUSED")
    assert imported(log, given).total.left == []
    found = [Records(log).named("work_pool", name)["status"] for name in ("busy", "resting")]
    assert found == ["NOT_READY", "PAUSED"]


def test_the_states_of_a_task_run_that_stands_for_a_subflow_are_no_events(log: Ledger, given: Given) -> None:
    run = given.flow_run(number(60), number(1), "outer", ("RUNNING", "Running", 0.0))
    given.task_run(number(61), run, "inner", ("RUNNING", "Running", 1.0), ("COMPLETED", "Completed", 2.0))
    given.change(
        "task_run_state", number(61_001), state_details=json.dumps({"child_flow_run_id": number(62)})
    )
    assert imported(log, given).total.left == []
    assert [state.name for state in TaskRuns(log).states(number(61))] == ["Running", "Completed"]
    told = PrefectEvents(log).read(EventFilter()).events
    assert [event["id"] for event in told if event["event"].startswith("prefect.task-run.")] == [
        number(21_000 + nth) for nth in (3, 2, 1, 0)
    ]  # those of the other task run, the newest first


def test_secrets_are_encrypted_with_a_key_of_the_ledger(log: Ledger, given: Given) -> None:
    imported(log, given)
    outer = Blocks(log).get(number(10), include_secrets=True)["data"]
    assert outer["user"] == "ann"
    assert "hidden-password" in json.dumps(outer)
    texts = [event.data or "" for event in log.log(0, log.bound(), 1000)]
    assert not any("hidden-password" in text or given.key in text for text in texts)


def test_blocks_that_cannot_be_decrypted_are_left_out_with_a_word(
    log: Ledger, given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = given.key
    with_other_key = Given(given.path.with_name("other.db"))
    monkeypatch.setenv("PREFECT_SERVER_ENCRYPTION_KEY", with_other_key.key)
    report = imported(log, given)
    assert len(report.total.left) == 2
    assert "was encrypted with another key: set PREFECT_SERVER_ENCRYPTION_KEY" in report.total.left[0]
    monkeypatch.setenv("PREFECT_SERVER_ENCRYPTION_KEY", key)
    assert imported(log, given).tables["block_document"].new == 2


def test_a_second_import_records_only_what_is_new(log: Ledger, given: Given) -> None:
    imported(log, given)
    bound = log.bound()
    again = imported(log, given)
    assert (again.total.new, again.total.changed, again.total.left) == (0, 0, [])
    assert log.bound() == bound  # not one event
    given.state("flow", number(22), number(22_001), ("RUNNING", "Running", 5))
    given.put("variable", number(40), name="size", value=3)
    third = imported(log, given)
    assert (third.total.new, third.total.changed) == (1, 1)
    assert FlowRuns(log).get(number(22)).state_name == "Running"
    assert len(log.log(bound, log.bound(), 100)) == 3  # the state, the variable and its name


def test_a_run_that_went_on_in_the_ledger_is_left_as_it_is(log: Ledger, given: Given) -> None:
    imported(log, given)
    FlowRuns(log).set_state(number(22), running(), force=True)
    given.state("flow", number(22), number(22_001), ("FAILED", "Failed", 5))
    assert imported(log, given).total.changed == 0
    assert FlowRuns(log).get(number(22)).state_name == "Running"


def test_a_killed_import_goes_on(log: Ledger, given: Given) -> None:
    """Killed after any page: what was recorded before stays, and the next import adds the rest."""

    class Killed(BaseException):
        pass

    for killed_after in (1, 4, 8, 11, 13):
        seen = 0

        def tell(_: Any, after: int = killed_after) -> None:
            nonlocal seen
            seen += 1
            if seen == after:
                raise Killed

        with pytest.raises(Killed), prefect_database(str(given.path)) as database:
            Import(log, database).run(tell)
    assert imported(log, given).total.left == []
    assert FlowRuns(log).get(number(20)).state_name == "Completed"
    assert log.load(OpenFlowRun, number(20)).version == 5  # created, input, three states: each once


@pytest.mark.slow
def test_an_import_that_is_killed_at_any_moment_loses_and_doubles_nothing(
    log: Ledger, dsn: str, given: Given
) -> None:
    """A process of its own is killed again and again; in the end the ledger has each run once, and whole."""
    for nth in range(100, 500):
        states = ("PENDING", "Pending", 0.0), ("RUNNING", "Running", 1.0), ("COMPLETED", "Completed", 2.0)
        run = given.flow_run(number(nth), number(1), f"run-{nth}", *states)
        given.task_run(number(nth + 1000), run, "load", *states)
    command = [*COMMAND, "--dsn", dsn, "runs", "import", str(given.path)]
    keys = {"LEDGER_BLOCK_KEYS_FILE": os.environ["LEDGER_BLOCK_KEYS_FILE"]}
    chance, kills = random.Random(7), 0
    while True:
        process = subprocess.Popen(
            command, env=environment(**keys), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        with suppress(subprocess.TimeoutExpired):
            if process.wait(chance.uniform(0.3, 0.6) * 1.6**kills) == 0:
                break
        process.kill()
        process.wait()
        kills += 1
        assert kills < 30, "it ends by an error, not by a kill"
    assert kills
    with prefect_database(str(given.path)) as database:
        again = Import(log, database).run()
    assert (again.total.new, again.total.changed, again.total.left) == (0, 0, [])
    versions = {info.stream: info.version for info in log.streams("flow_run/", limit=1000)}
    assert len(versions) == 402
    assert {versions[f"flow_run/{number(nth)}"] for nth in range(100, 500)} == {4}
    assert len(log.streams("task_run/", limit=1000)) == 401
    assert len(RunLogs(log).read()) == 1
    assert verify(log, processes=1).differences == 0


def test_a_record_of_that_name_takes_the_place_of_the_imported_one(log: Ledger, given: Given) -> None:
    own = Records(log).create("flow", {"name": "etl"})
    report = imported(log, given)
    assert (report.tables["flow"].new, report.tables["flow"].known) == (0, 1)
    assert FlowRuns(log).get(number(20)).flow_id == own.id
    assert Records(log).get("deployment", number(4))["flow_id"] == own.id


def test_rows_that_cannot_be_recorded_are_named(log: Ledger, given: Given) -> None:
    given.put("variable", number(50), name="Not A Name", value=1)
    given.flow_run(number(51), number(1), "odd", ("DONE", "Done", 0))
    first, second = imported(log, given).total.left
    assert first.startswith("variable Not A Name: ")
    assert second.startswith(f"flow run odd {number(51)}: state type 'DONE' must be one of")


def test_what_is_no_database_of_prefect_is_refused(log: Ledger, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database at all, only a text", encoding="utf-8")
    for place, says in [
        ("nowhere.db", "does not exist"),
        (str(tmp_path / "text"), "cannot be read as a SQLite"),
    ]:
        with pytest.raises(BadFile, match=says), prefect_database(place):
            pass


def copied(given: Given, target: psycopg.Connection[Any]) -> None:
    """The same rows in PostgreSQL, in the types that Prefect's server uses there."""
    script = TABLES.read_text(encoding="utf-8").replace("total_run_time DATETIME", "total_run_time interval")
    script = script.replace(" CHAR(36)", " uuid").replace(" DATETIME", " timestamptz")
    target.execute("CREATE SCHEMA prefect; SET search_path = prefect; SET TimeZone = 'Europe/Zurich'")
    target.execute(script)
    with prefect_database(str(given.path)) as source:
        for table in sorted(source.tables()):
            for row in (row for page in source.pages(table) for row in page):
                if row.get("total_run_time"):
                    row["total_run_time"] = f"{seconds_of(row['total_run_time'])} seconds"
                values = [Json(row[name]) if name in given.json_columns(table) else row[name] for name in row]
                names = sql.SQL(", ").join(map(sql.Identifier, row))
                places = sql.SQL(", ").join(sql.Placeholder() * len(row))
                statement = sql.SQL("INSERT INTO {} ({}) VALUES ({})")
                target.execute(statement.format(sql.Identifier(table), names, places), values)


def test_postgresql_is_read_as_sqlite(log: Ledger, given: Given, dsn: str) -> None:
    """Every row is the same, whatever the types of its columns are, and so is the import."""
    with psycopg.connect(dsn, autocommit=True) as target:
        copied(given, target)
    url = make_conninfo(dsn, options="-c search_path=prefect")
    parts = conninfo_to_dict(url)
    named = f"postgresql+asyncpg:///{parts['dbname']}?" + urlencode(
        {name: str(value) for name, value in parts.items() if name != "dbname"}, quote_via=quote
    )
    with prefect_database(named) as database, prefect_database(str(given.path)) as source:
        assert database.tables() == source.tables()
        for table in ("flow_run", "task_run", "flow_run_state", "deployment", "block_document"):
            for one, other in zip(*(next(db.pages(table)) for db in (database, source)), strict=True):
                assert {name: normal(name, one[name]) for name in one} == {
                    name: normal(name, other[name]) for name in other
                }
        assert database.rows_with("flow", "id", [number(1), number(99)])[0]["name"] == "etl"
        assert Import(log, database).run().total.left == []
    assert FlowRuns(log).get(number(20)).total_run_time == timedelta(minutes=2)


def normal(name: str, value: Any) -> Any:
    """A value of a row, as both databases mean it."""
    if name == "total_run_time":
        return seconds_of(value)
    if isinstance(value, str) and value.startswith("2026-"):
        return time_of(value)
    return value


def test_spans_of_both_databases_are_read() -> None:
    assert seconds_of("1970-01-01 00:00:01.500000+00:00") == 1.5
    assert seconds_of("00:00:01.5") == 1.5
    assert seconds_of("1 day 02:00:00") == 93600
    assert seconds_of("-00:00:02") == -2
    assert (seconds_of(None), seconds_of(2)) == (0.0, 2.0)


def test_the_command_imports_and_says_what_it_left_out(
    pledger: Callable[..., Ended], log: Ledger, given: Given
) -> None:
    ended = pledger("runs", "import", str(given.path), "--json")
    assert ended.code == 0
    assert {row["table"]: row["new"] for row in ended.objects}["flow_run"] == 2
    assert "not taken over: 1 workers" in ended.err
    given.put("variable", number(50), name="Not A Name", value=1)
    again = pledger("runs", "import", str(given.path))
    assert again.code == Code.REFUSED
    assert ["variable", "0", "0", "1", "1"] in again.rows
    assert "left out: variable Not A Name" in again.err
    assert "hidden-password" not in ended.out + ended.err + again.out + again.err
    wrong = pledger("runs", "import", "nowhere.db")
    assert wrong.code == Code.MISUSE
    assert "nowhere.db: does not exist" in wrong.err
