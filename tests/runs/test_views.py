"""The views of runs: a row is the state of its stream, whatever happened; a list shows what was appended."""

from __future__ import annotations

import threading
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.rows import dict_row

from ledger import Ledger, SchemaMismatch
from ledger.domain.known import KNOWN
from ledger.runs.flow_run import OpenFlowRun
from ledger.runs.records import Records
from projections.engine.check import ViewCheck
from projections.fold import ALL
from projections.runs import flow_runs, records, wait_for
from tests.runs import given_reads
from tests.runs.given_reads import VIEWS, World, flow_run, projector, state


def rows(log: Ledger, statement: str) -> list[dict[str, Any]]:
    with log.reader() as connection:
        return connection.cursor(row_factory=dict_row).execute(statement).fetchall()


def test_a_row_of_a_flow_run_is_its_state(world: World) -> None:
    (row,) = rows(world.log, "SELECT * FROM ledger_views.flow_runs WHERE name = 'blue-bee'")
    run = world.log.load(OpenFlowRun, world.ids["b"])
    assert (row["id"], row["version"], row["status"]) == (world.ids["b"], run.version, "running")
    shown = {
        name: row[name] for name in row.keys() - {"position", "version", "stream", "state", "tags", "id"}
    }
    assert shown == {name: getattr(run.state, name) for name in shown}
    assert tuple(row["tags"]) == run.state.tags
    assert flow_runs(world.log, {"flow_runs": {"name": {"any_": ["blue-bee"]}}})[0].state == run.state.state


def test_w3_10_the_views_are_the_fold_of_the_log(world: World) -> None:
    """The fields that follow from states are computed by `evolve` only: rows cannot disagree with history."""
    for name in VIEWS:
        view = KNOWN.views[name]
        assert [*ViewCheck(view).differences(world.log, ALL, lambda _: None)] == []


def test_w3_10_manipulated_rows_are_found_and_repaired(log: Ledger, admin_dsn: str) -> None:
    """Columns beside the state may disagree with history in Prefect's tables, and nothing rebuilds them."""
    world = given_reads.make(log)
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute("UPDATE ledger_views.flow_runs_1 SET state_name = 'Completed' WHERE name = 'blue-bee'")
        admin.execute("UPDATE ledger_views.task_runs_1 SET end_time = NULL WHERE name = 'load'")
        admin.execute("DELETE FROM ledger_views.run_records_1 WHERE name = 'apple'")
    wrong = {}
    for name in VIEWS:
        check = ViewCheck(KNOWN.views[name])
        (wrong[name],) = check.differences(log, ALL, lambda _: None)
    assert check.repair(log, wrong["run_records"]) == "repaired"
    assert wrong["flow_runs"].about == f"flow_run/{world.ids['b']}"
    assert wrong["task_runs"].about == f"task_run/{world.ids['t1']}"
    assert [change.name for change in wrong["task_runs"].fields] == ["end_time"]
    assert [one["name"] for one in records(log, "variables")] == ["apple", "banana", "cherry"]


def test_lists_need_the_views(log: Ledger) -> None:
    with pytest.raises(SchemaMismatch, match="pledger views follow flow_runs task_runs run_records"):
        flow_runs(log, {})
    assert not wait_for(log, seconds=0.01)


def test_a_reader_gets_what_was_appended_before(log: Ledger) -> None:
    """While a projector of this process follows the views, a list contains every append before it."""
    flow, following = str(uuid4()), projector(log)
    following.catch_up()
    with following:
        for nth in range(8):
            flow_run(log, str(uuid4()), f"run{nth}", flow, state("RUNNING"))
            assert wait_for(log, projector=following, seconds=30)
            assert len(flow_runs(log, {})) == nth + 1


def test_another_process_may_follow_the_views(log: Ledger) -> None:
    flow, following = str(uuid4()), projector(log)
    following.catch_up()
    flow_run(log, str(uuid4()), "run", flow, state("RUNNING"))
    assert not wait_for(log, seconds=0)
    assert flow_runs(log, {}) == []
    other = threading.Thread(target=following.catch_up)
    other.start()
    assert wait_for(log, seconds=30)
    other.join()
    assert [run.name for run in flow_runs(log, {})] == ["run"]


def test_a_deleted_record_is_not_listed_and_may_come_back(log: Ledger) -> None:
    of, following = Records(log), projector(log)
    made = of.create("variable", {"name": "x", "value": 1})
    of.delete("variable", made.id)
    following.catch_up()
    assert records(log, "variables") == []
    of.create("variable", {"name": "x", "value": 2})
    following.catch_up()
    assert [one["value"] for one in records(log, "variables")] == [2]
