"""Lists of runs and records by the filters of Prefect's API."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import BadInput
from projections.runs import (
    count_flow_runs,
    count_records,
    count_task_runs,
    counts_by_state,
    flow_runs,
    lateness,
    records,
    run_history,
    scheduled_runs,
    task_runs,
)
from projections.runs.criteria import Field
from projections.runs.fields import FIELDS, TREES
from tests.runs.given_reads import START, World, number


@pytest.mark.parametrize(
    ("filter", "found"),
    [
        ({}, "abcde"),
        ({"id": {"any_": [number(1), number(2).upper()]}}, "ab"),
        ({"id": {"any_": []}}, ""),
        ({"id": {"not_any_": [number(1)]}}, "bcde"),
        ({"id": {"not_any_": []}}, "abcde"),
        ({"name": {"any_": ["red-ant"]}}, "a"),
        ({"name": {"like_": "RED"}}, "a"),
        ({"name": {"like_": ""}}, "abcde"),
        ({"tags": {"all_": ["x", "y"]}}, "b"),
        ({"tags": {"any_": ["y", "z"]}}, "b"),
        ({"tags": {"is_null_": True}}, "cde"),
        ({"tags": {"is_null_": False}}, "ab"),
        ({"deployment_id": {"is_null_": False}}, "bc"),
        ({"work_queue_name": {"any_": ["slow"]}}, "b"),
        ({"state": {"type": {"any_": ["RUNNING", "COMPLETED"]}}}, "abd"),
        ({"state": {"type": {"not_any_": ["RUNNING"]}}}, "ace"),
        ({"state": {"name": {"any_": ["Late"]}}}, "c"),
        ({"state": {"operator": "or_", "type": {"any_": ["COMPLETED"]}, "name": {"any_": ["Late"]}}}, "ac"),
        ({"flow_version": {"any_": ["7"]}}, "a"),
        ({"start_time": {"is_null_": True}}, "ce"),
        ({"start_time": {"after_": str(START + timedelta(minutes=5))}}, "b"),
        ({"start_time": {"before_": START.isoformat()}}, "ce"),
        ({"end_time": {"is_null_": False}}, "a"),
        ({"expected_start_time": {"before_": "2026-03-01 12:00:00"}}, "ace"),
        ({"next_scheduled_start_time": {"before_": "2026-03-01T12:00:00Z"}}, "ce"),
        ({"parent_flow_run_id": {"any_": [number(2)]}}, "d"),
        ({"parent_task_run_id": {"any_": [number(102)]}}, "d"),
        ({"idempotency_key": {"any_": ["k1"]}}, "c"),
        ({"created_by": {"type_": ["DEPLOYMENT"]}}, "e"),
        ({"created_by": {"is_null_": True}}, "abcd"),
        ({"operator": "or_", "name": {"any_": ["red-ant"]}, "id": {"any_": [number(2)]}}, "ab"),
        ({"operator": "or_", "name": {}, "id": {"any_": [number(2)]}}, "abcde"),
        ({"name": None, "id": {"any_": None}}, "abcde"),
    ],
)
def test_flow_runs_are_found(world: World, filter: dict[str, Any], found: str) -> None:
    body = {"flow_runs": filter}
    assert sorted(world.names(flow_runs(world.log, body))) == list(found)
    assert count_flow_runs(world.log, body) == len(found)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({"flows": {"name": {"any_": ["etl"]}}}, "ab"),
        ({"flows": {"tags": {"all_": ["nightly"]}}, "flow_runs": {"tags": {"all_": ["y"]}}}, "b"),
        ({"deployments": {}}, "bc"),
        ({"deployments": {"name": {"like_": "RO"}}}, "bc"),
        ({"work_pools": {"name": {"any_": ["local"]}}}, "bce"),
        ({"work_pool_queues": {"name": {"startswith_": ["FA"]}}}, "e"),
        ({"work_pool_queues": {"name": {"any_": ["slow"]}}, "work_pools": {"type": {"any_": ["k8s"]}}}, ""),
        ({"task_runs": {"state": {"type": {"any_": ["FAILED"]}}}}, "b"),
        ({"task_runs": {"name": {"any_": ["load"]}}, "flows": {"name": {"any_": ["etl"]}}}, "a"),
    ],
)
def test_flow_runs_are_found_by_what_goes_with_them(world: World, body: dict[str, Any], found: str) -> None:
    assert sorted(world.names(flow_runs(world.log, body))) == list(found)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({}, ["alone", "t1", "t2", "t3"]),
        ({"task_runs": {"flow_run_id": {}}}, ["t1", "t2", "t3"]),
        ({"task_runs": {"flow_run_id": {"is_null_": True, "any_": [number(1)]}}}, ["alone"]),
        ({"task_runs": {"flow_run_id": {"any_": [number(2)]}}}, ["t2", "t3"]),
        ({"task_runs": {"subflow_runs": {"exists_": True}}}, ["t2"]),
        ({"task_runs": {"subflow_runs": {"exists_": False}}}, ["alone", "t1", "t3"]),
        ({"flow_runs": {"id": {"any_": [number(2)]}}}, ["t2", "t3"]),
        ({"flow_runs": {}, "flows": {"name": {"any_": ["etl"]}}}, ["t1", "t2", "t3"]),
        ({"deployments": {"name": {"any_": ["prod"]}}}, ["t2", "t3"]),
    ],
)
def test_task_runs_are_found(world: World, body: dict[str, Any], found: list[str]) -> None:
    assert sorted(world.names(task_runs(world.log, body))) == found
    assert count_task_runs(world.log, body) == len(found)


@pytest.mark.parametrize(
    ("kind", "body", "found"),
    [
        ("flows", {}, ["Report_1", "etl"]),
        ("flows", {"flows": {"deployment": {"is_null_": False}}}, ["etl"]),
        ("flows", {"flows": {"deployment": {"is_null_": True}}}, ["Report_1"]),
        ("flows", {"flow_runs": {"state": {"name": {"any_": ["Late"]}}}}, ["Report_1"]),
        ("flows", {"work_pools": {"name": {"any_": ["local"]}}}, ["etl"]),
        ("flows", {"task_runs": {"name": {"any_": ["load"]}}}, ["etl"]),
        ("deployments", {"flows": {"name": {"any_": ["etl"]}}}, ["prod"]),
        ("deployments", {"deployments": {"paused": {"eq_": False}}}, []),
        ("deployments", {"deployments": {"flow_or_deployment_name": {"like_": "ET"}}}, ["prod"]),
        ("deployments", {"deployments": {"concurrency_limit": {"ge_": 3}}}, ["prod"]),
        ("deployments", {"work_pool_queues": {"name": {"any_": ["fast"]}}}, []),
        ("work_pool_queues", {}, ["fast", "slow"]),
        ("variables", {"variables": {"name": {"like_": "an"}}}, ["banana"]),
        ("variables", {"variables": {"tags": {"all_": ["fruit"]}}}, ["apple", "banana", "cherry"]),
    ],
)
def test_records_are_found(world: World, kind: str, body: dict[str, Any], found: list[str]) -> None:
    assert [one["name"] for one in records(world.log, kind, body)] == found
    assert count_records(world.log, kind, body) == len(found)


def test_a_record_is_listed_as_its_stream_shows_it(world: World) -> None:
    (pool,) = records(world.log, "work_pools", {"work_pools": {"name": {"any_": ["local"]}}})
    assert (pool.id, pool.kind, pool.version, pool["type"]) == (world.ids["pool"], "work_pool", 1, "process")
    assert [one["name"] for one in records(world.log, "work_pool_queues", parent=pool.id)] == ["fast", "slow"]


def test_a_list_is_sorted_and_has_pages(world: World) -> None:
    def names(sort: str, **page: int) -> str:
        return "".join(world.names(flow_runs(world.log, {}, sort, **page)))

    assert names("ID_DESC") == "edcba"
    assert names("NAME_ASC") == "bcdea"[0] + "cdea"
    assert names("START_TIME_ASC") == "ceadb"  # runs that have not begun by when they are expected to
    assert names("START_TIME_DESC") == "bdaec"
    assert names("END_TIME_DESC")[0] == "a"
    assert names("ID_DESC", offset=1, limit=2) == "dc"
    assert names("ID_DESC", limit=0) == ""


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"flow_runs": {"nam": {}}}, "flow_runs has no field 'nam'"),
        ({"flow_runs": {"name": {"any": []}}}, "flow_runs.name has no criterion 'any'"),
        ({"flow_runs": {"id": {"any_": ["7"]}}}, "flow_runs.id.any_"),
        ({"flow_runs": {"id": {"any_": "7"}}}, "must be a list"),
        ({"flow_runs": {"state": {"type": {"any_": ["DONE"]}}}}, "flow_runs.state.type.any_"),
        ({"flow_runs": {"name": {"like_": "a\0"}}}, "must not contain NUL"),
        ({"flow_runs": {"name": {"any_": ["\ud800"]}}}, "flow_runs.name.any_"),
        ({"flow_runs": {"start_time": {"before_": "soon"}}}, "must be a time"),
        ({"flow_runs": {"start_time": {"before_": "0001-01-01T00:00:00+23:00"}}}, "must be a time"),
        ({"flow_runs": {"operator": "xor_"}}, "flow_runs.operator"),
        ({"flow_runs": []}, "flow_runs must be an object"),
        ({"logs": {}}, "flow_runs have no filter 'logs'"),
    ],
)
def test_a_wrong_filter_names_its_place(world: World, wrong: dict[str, Any], place: str) -> None:
    with pytest.raises(BadInput) as caught:
        flow_runs(world.log, wrong)
    assert place in str(caught.value)


@pytest.mark.parametrize("page", [{"limit": 1001}, {"limit": -1}, {"offset": -1}, {"sort": "id"}])
def test_a_wrong_page_is_refused(world: World, page: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        flow_runs(world.log, {}, **page)


def test_workers_get_what_is_scheduled_by_the_priority_of_queues(world: World) -> None:
    pool, ids = world.ids["pool"], world.ids
    # the pool's limit is 2, and one of its runs is running: one slot is free
    assert world.names(scheduled_runs(world.log, pool=pool)) == ["e"]
    assert world.names(scheduled_runs(world.log, pool=pool, queues=[ids["slow"]])) == ["c"]
    assert scheduled_runs(world.log, pool=pool, before=START - timedelta(seconds=1)) == []
    assert world.names(scheduled_runs(world.log, deployments=[ids["prod"]], before=START)) == ["c"]
    assert scheduled_runs(world.log, deployments=[]) == []


def test_states_are_counted(world: World) -> None:
    counted = counts_by_state(world.log, "flow_runs", {"flow_runs": {"deployment_id": {"is_null_": False}}})
    assert counted == [("RUNNING", "Running", 1), ("SCHEDULED", "Late", 1)]
    late = lateness(world.log, {"flow_runs": {"id": {"any_": [number(1)]}}})
    assert late == 60.0
    assert lateness(world.log, {"flow_runs": {"id": {"any_": []}}}) is None


def test_runs_are_counted_by_intervals_of_time(world: World) -> None:
    def history(minutes: float, end: float, kind: str = "flow_runs") -> list[dict[str, Any]]:
        return run_history(
            world.log, kind, {}, START, START + timedelta(minutes=end), timedelta(minutes=minutes)
        )

    first, second = history(1, 1.5)
    assert (first["interval_start"], first["interval_end"]) == (
        "2026-03-01T12:00:00Z",
        "2026-03-01T12:01:00Z",
    )
    counted = {(one["state_name"], one["count_runs"]) for one in first["states"]}
    assert counted == {("Completed", 1), ("Late", 1), ("Scheduled", 1)}  # a, c, e were expected at 12:00
    (done,) = [one for one in first["states"] if one["state_name"] == "Completed"]
    assert (done["sum_estimated_run_time"], done["sum_estimated_lateness"]) == (8 * 60, 60)
    assert [one["count_runs"] for one in second["states"]] == [1]  # d
    assert [one["count_runs"] for one in history(5, 5, "task_runs")[0]["states"]] == [1, 1, 2]
    assert len(history(1, 100_000)) == 500
    assert history(1, 0) == []
    with pytest.raises(BadInput):
        history(0.001, 1)


# Laws


VALUES = st.one_of(
    st.text(max_size=12), st.sampled_from(["'; DROP TABLE x; --", '"', "%s", "%(v0)s", "{table}", "a\\"]),
    st.booleans(), st.integers(-9, 9), st.none(), st.lists(st.text(max_size=4), max_size=3),
    st.just([number(1)]), st.just("2026-03-01T00:00:00Z"), st.just(["RUNNING"]),
)  # fmt: skip


@st.composite
def bodies(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    """Filters with fields and criteria that exist, and any values."""

    def filled(fields: Any) -> dict[str, Any]:
        told: dict[str, Any] = {}
        for name in draw(st.lists(st.sampled_from(list(fields)), max_size=2, unique=True)):
            field = fields[name]
            if not isinstance(field, Field):
                told[name] = filled(field)
            elif name in field.criteria:
                told[name] = draw(VALUES)
            else:
                chosen = draw(st.sampled_from(list(field.criteria)))
                told[name] = {chosen: draw(VALUES), "operator": draw(st.sampled_from(["and_", "or_", None]))}
        return told

    others = [kind, *TREES.get(kind, {})]
    return {
        name: filled(FIELDS[name])
        for name in draw(st.lists(st.sampled_from(others), max_size=2, unique=True))
    }


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_no_value_becomes_sql(world: World, data: st.DataObject) -> None:
    """Any filter is answered, or refused as bad input; the server never sees wrong SQL."""
    kind = data.draw(
        st.sampled_from(["flow_runs", "task_runs", "flows", "deployments", "artifacts", "block_types"])
    )
    body = data.draw(bodies(kind))
    try:
        if kind == "flow_runs":
            assert count_flow_runs(world.log, body) <= 5
        elif kind == "task_runs":
            assert count_task_runs(world.log, body) <= 4
        else:
            assert count_records(world.log, kind, body) <= 2
    except BadInput:
        return


@settings(max_examples=20, deadline=None)
@given(
    names=st.sets(st.sampled_from(["red-ant", "blue-bee", "none"])),
    types=st.sets(st.sampled_from(["RUNNING", "SCHEDULED", "COMPLETED"])),
    tags=st.sets(st.sampled_from(["x", "y"])),
    operator=st.sampled_from(["and_", "or_"]),
)
def test_a_filter_means_what_it_says(
    world: World, names: set[str], types: set[str], tags: set[str], operator: str
) -> None:
    body = {
        "operator": operator, "name": {"any_": sorted(names)}, "state": {"type": {"any_": sorted(types)}},
        "tags": {"any_": sorted(tags)},
    }  # fmt: skip
    join = all if operator == "and_" else any
    every = flow_runs(world.log, {})
    right = {
        run.id
        for run in every
        if join((run.name in names, run.state_type in types, bool(tags & set(run.tags))))
    }
    assert {run.id for run in flow_runs(world.log, {"flow_runs": body})} == right
