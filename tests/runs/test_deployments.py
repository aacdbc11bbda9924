"""Deployments: upserts, schedules and the runs that they made, parameters that fit, runs made from them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

from ledger import BadParameters, BadRecord, Ledger, RecordNotFound, RunNotFound
from ledger.runs.deployments import AGENT_POOL, Deployments
from ledger.runs.flow_run import FlowRun
from ledger.runs.parameters import checked_parameters, filled_in, prepared
from ledger.runs.records import Record
from ledger.runs.scheduled_runs import key_of
from ledger.runs.states import pending, running, scheduled

_numbers = count(1)
HOURLY = {"schedule": {"interval": 3600.0, "anchor_date": "2026-01-01T00:00:00Z", "timezone": "UTC"}}
DAILY = {"schedule": {"cron": "0 9 * * *", "timezone": "UTC"}}
SCHEMA = {
    "type": "object",
    "properties": {"day": {"type": "string"}, "count": {"type": "integer", "default": 1}},
    "required": ["day"],
}
OPTIONAL = {"properties": {"y": {"type": "string"}}}


@pytest.fixture
def deployments(shared: Ledger) -> Deployments:
    return Deployments(shared)


@pytest.fixture
def flow(deployments: Deployments) -> Record:
    return deployments.records.create("flow", {"name": f"flow-{next(_numbers)}", "labels": {"team": "a"}})


def make(deployments: Deployments, flow: Record, **fields: Any) -> Record:
    made, _ = deployments.upsert({"name": "nightly", "flow_id": flow.id, **fields})
    return made


def made_by_scheduler(deployments: Deployments, deployment: Record, *, hours: float, nth: int = 0) -> FlowRun:
    """A run as the scheduler makes it, at so many hours from now."""
    schedule, at = deployment["schedules"][nth], datetime.now(UTC) + timedelta(hours=hours)
    run, _ = deployments.flow_runs.create(
        state=scheduled(at), idempotency_key=key_of(deployment.id, schedule["id"], at), auto_scheduled=True,
        **deployments.run_fields(deployment, schedule),
    )  # fmt: skip
    return run


def is_there(deployments: Deployments, run: FlowRun) -> bool:
    try:
        return deployments.flow_runs.get(run.id).id == run.id
    except RunNotFound:
        return False


def test_an_upsert_creates_by_flow_and_name_and_then_changes_what_is_given(
    deployments: Deployments, flow: Record
) -> None:
    first, new = deployments.upsert({"name": "a", "flow_id": flow.id, "version": "1", "tags": ["x"]})
    second, again = deployments.upsert({"name": "a", "flow_id": flow.id.upper(), "version": "2"})
    assert (new, again, first.id) == (True, False, second.id)
    assert (second["version"], second["tags"]) == ("2", ("x",))
    assert second["labels"] == {"team": "a", "prefect.flow.id": flow.id}
    assert deployments.named(flow["name"], "a").id == first.id
    deployments.delete(first.id)
    with pytest.raises(RecordNotFound):
        deployments.named(flow["name"], "a")
    assert deployments.upsert({"name": "a", "flow_id": flow.id})[1]
    with pytest.raises(RecordNotFound):
        deployments.upsert({"name": "a", "flow_id": first.id})


def test_of_two_upserts_at_the_same_time_one_creates(deployments: Deployments, flow: Record) -> None:
    start, found = threading.Barrier(3), []

    def upsert(nth: int) -> None:
        start.wait()
        found.append(deployments.upsert({"name": "a", "flow_id": flow.id, "version": str(nth)}))

    threads = [threading.Thread(target=upsert, args=[nth]) for nth in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(new for _, new in found) == [False, False, True]
    assert len({made.id for made, _ in found}) == 1


# Schedules


def test_schedules_stand_inside_and_their_slugs_are_unique(deployments: Deployments, flow: Record) -> None:
    made = make(deployments, flow, schedules=[{**HOURLY, "slug": "hourly"}, DAILY])
    hourly, daily = made["schedules"]
    assert (hourly["deployment_id"], hourly["active"], daily["slug"]) == (made.id, True, None)
    (added,) = deployments.add_schedules(made.id, [{**DAILY, "slug": "daily", "active": False}])
    assert added["active"] is False
    with pytest.raises(BadRecord, match="slug hourly"):
        deployments.add_schedules(made.id, [{**DAILY, "slug": "hourly"}])
    changed = deployments.change_schedule(made.id, added["id"], {"active": True, "slug": None})
    assert (changed["schedules"][2]["active"], changed["schedules"][2]["slug"]) == (True, "daily")
    assert len(deployments.delete_schedule(made.id, daily["id"])["schedules"]) == 2
    with pytest.raises(RecordNotFound):
        deployments.delete_schedule(made.id, daily["id"])
    for wrong in ({"schedule": {"cron": "nonsense"}}, {}, {**HOURLY, "max_scheduled_runs": 101}):
        with pytest.raises(BadRecord):
            deployments.add_schedules(made.id, [wrong])


def test_an_upsert_replaces_all_schedules_and_keeps_the_ids_of_equal_ones(
    deployments: Deployments, flow: Record
) -> None:
    made = make(deployments, flow, schedules=[HOURLY, DAILY])
    again = make(deployments, flow, schedules=[HOURLY, DAILY])
    assert again == made
    other = make(deployments, flow, schedules=[DAILY])
    assert [one["id"] for one in other["schedules"]] == [made["schedules"][1]["id"]]
    assert make(deployments, flow)["schedules"] == ()


def test_a_patch_changes_schedules_by_their_slugs(deployments: Deployments, flow: Record) -> None:
    made = make(deployments, flow, schedules=[{**HOURLY, "slug": "a"}, {**DAILY, "slug": "b"}])
    ids = [one["id"] for one in made["schedules"]]
    patch = [{"slug": "a", "active": False}, {"slug": "c", "replaces": "b"}, {**DAILY, "slug": "d"}]
    after = deployments.change(made.id, {"schedules": patch})["schedules"]
    assert [(one["slug"], one["active"]) for one in after] == [("a", False), ("c", True), ("d", True)]
    assert [one["id"] for one in after[:2]] == ids
    with pytest.raises(BadRecord, match="slug"):
        deployments.change(made.id, {"schedules": [HOURLY]})
    with pytest.raises(BadRecord, match="schedule of one slug"):
        deployments.change(made.id, {"schedules": [{"slug": "a"}, {"slug": "x", "replaces": "a"}]})
    with pytest.raises(BadRecord, match="interval, cron or rrule"):
        deployments.change(made.id, {"schedules": [{"slug": "new"}]})
    without = make(deployments, flow, schedules=[HOURLY])
    assert len(deployments.change(without.id, {"schedules": [DAILY, HOURLY]})["schedules"]) == 2


# Runs that schedules made


def test_a_change_deletes_future_runs_that_schedules_made_in_the_same_append(
    deployments: Deployments, flow: Record
) -> None:
    made = make(deployments, flow, schedules=[HOURLY, DAILY])
    future = [made_by_scheduler(deployments, made, hours=hours, nth=hours % 2) for hours in (1, 2)]
    late = made_by_scheduler(deployments, made, hours=-1)
    by_hand, _ = deployments.create_flow_run(made.id, state=scheduled(datetime.now(UTC) + timedelta(hours=3)))
    started = made_by_scheduler(deployments, made, hours=4)
    deployments.flow_runs.set_state(started.id, pending())
    deployments.change(made.id, {"tags": ["new"]})
    assert [is_there(deployments, run) for run in future] == [False, False]
    assert all(is_there(deployments, run) for run in (late, by_hand, started))
    last = deployments.ledger.read(f"deployment/{made.id}", backwards=True, limit=1)[0]
    streams = {event.stream.split("/")[0] for event in deployments.ledger.recorded_with(last)}
    assert streams == {"deployment", "flow_run", "run_name"}


def test_a_change_without_a_difference_deletes_no_runs(deployments: Deployments, flow: Record) -> None:
    made = make(deployments, flow, schedules=[HOURLY])
    run = made_by_scheduler(deployments, made, hours=1)
    deployments.change(made.id, {"tags": []})
    deployments.polled([made.id])
    assert is_there(deployments, run)


def test_pausing_deletes_late_runs_too_and_their_instants_can_be_made_again(
    deployments: Deployments, flow: Record
) -> None:
    made = make(deployments, flow, schedules=[HOURLY])
    late, future = (made_by_scheduler(deployments, made, hours=hours) for hours in (-1, 1))
    deployments.flow_runs.mark_late(late.id)
    by_hand, _ = deployments.create_flow_run(made.id)
    assert deployments.pause(made.id)["paused"] is True
    assert [is_there(deployments, run) for run in (late, future, by_hand)] == [False, False, True]
    assert deployments.resume(made.id)["paused"] is False
    again, new = deployments.flow_runs.create(
        flow.id, idempotency_key=future.idempotency_key, state=scheduled(), deployment_id=made.id
    )
    assert (new, again.id != future.id) == (True, True)


def test_a_deleted_deployment_takes_all_runs_with_it_that_have_not_begun(
    deployments: Deployments, flow: Record
) -> None:
    made = make(deployments, flow, schedules=[HOURLY], concurrency_limit=2)
    auto, (by_hand, _) = made_by_scheduler(deployments, made, hours=1), deployments.create_flow_run(made.id)
    begun, _ = deployments.create_flow_run(made.id)
    for state in (pending(), running()):
        deployments.flow_runs.set_state(begun.id, state, force=True)
    deployments.delete(made.id)
    assert [is_there(deployments, run) for run in (auto, by_hand, begun)] == [False, False, True]
    with pytest.raises(RecordNotFound):
        deployments.records.get("concurrency_limit", made["concurrency_limit_id"])


def test_nominated_runs_are_deleted_only_where_their_streams_say_that_they_wait(
    shared: Ledger, deployments: Deployments, flow: Record
) -> None:
    """Whoever nominates may be wrong; who cannot nominate says so, and nothing is forgotten."""
    made, other = (make(deployments, flow, name=name) for name in ("mine", "other's"))
    runs = [deployments.create_flow_run(made.id)[0] for _ in range(2)]
    waits, begun = runs
    others, _ = deployments.create_flow_run(other.id)
    deployments.flow_runs.set_state(begun.id, running(), force=True)
    asked: list[str] = []

    def nominate(deployment: str) -> list[str] | None:
        asked.append(deployment)
        return None if deployment == other.id else [waits.id, begun.id, others.id]

    nominating = Deployments(shared, nominate=nominate)
    nominating.delete(made.id)
    assert [is_there(deployments, run) for run in (waits, begun, others)] == [False, True, True]
    nominating.delete(other.id)
    assert (asked, is_there(deployments, others)) == ([made.id, other.id], False)


def test_a_deleted_flow_takes_its_deployments_with_it(deployments: Deployments, flow: Record) -> None:
    made = make(deployments, flow)
    deployments.delete_flow(flow.id)
    for kind, id in (("deployment", made.id), ("flow", flow.id)):
        with pytest.raises(RecordNotFound):
            deployments.records.get(kind, id)


# Parameters


def test_parameters_must_fit_the_schema_unless_told_otherwise(deployments: Deployments, flow: Record) -> None:
    fields = {"parameter_openapi_schema": SCHEMA, "enforce_parameter_schema": True}
    with pytest.raises(BadParameters, match='count: "x" is not of type'):
        make(deployments, flow, parameters={"count": "x"}, **fields)
    made = make(deployments, flow, parameters={"count": 3}, **fields)
    with pytest.raises(BadParameters, match='"day" is a required property'):
        deployments.create_flow_run(made.id)
    run, _ = deployments.create_flow_run(made.id, parameters={"day": "monday"})
    assert run.parameters == {"day": "monday", "count": 3}
    deployments.create_flow_run(made.id, parameters={"day": 7}, enforce_parameter_schema=False)
    with pytest.raises(BadParameters):
        deployments.change(made.id, {"parameters": {"count": None}})
    loose = deployments.change(made.id, {"parameters": {"count": "y"}, "enforce_parameter_schema": False})
    assert deployments.create_flow_run(loose.id)[0].parameters == {"count": "y"}
    with pytest.raises(BadParameters, match="no valid schema"):
        make(deployments, flow, parameter_openapi_schema={"type": "nothing"}, enforce_parameter_schema=True)


@pytest.mark.parametrize(
    ("schema", "parameters", "fits"),
    [
        ({"properties": {"x": {"type": "integer"}}}, {"x": None}, True),
        ({"properties": {"x": {"type": "integer"}}, "required": ["x"]}, {"x": None}, False),
        ({"properties": {"x": {"type": "integer", "default": 3}}}, {"x": None}, False),
        (
            {"properties": {"x": {"$ref": "#/definitions/M"}}, "definitions": {"M": OPTIONAL}},
            {"x": {"y": None}},
            True,
        ),
        ({"properties": {"x": {"type": "array", "items": [{"type": "integer"}]}}}, {"x": ["a"]}, False),
        ({"$ref": "#"}, {"x": 1}, True),
        ({"$ref": "https://example.org/schema.json"}, {}, False),
        (None, {}, False),
    ],
)  # fmt: skip
def test_a_schema_is_read_as_prefect_reads_it_and_fetches_nothing(
    schema: Mapping[str, Any] | None, parameters: dict[str, Any], fits: bool
) -> None:
    if fits:
        checked_parameters(parameters, schema)
    else:
        with pytest.raises(BadParameters):
            checked_parameters(parameters, schema)


def test_a_property_that_is_named_required_stays() -> None:
    schema = {"properties": {"required": {"type": "string"}}, "required": ["required"]}
    assert prepared(schema, partial=True)["properties"] == {"required": {"type": "string"}}


def test_values_that_stand_for_others_are_filled_in(deployments: Deployments, flow: Record) -> None:
    name = f"limit_{next(_numbers)}"
    deployments.records.create("variable", {"name": name, "value": {"a": [1]}})
    given = {
        "x": {"__prefect_kind": "workspace_variable", "variable_name": name},
        "y": {"__prefect_kind": "json", "value": '{"z": 2}'},
        "n": {"__prefect_kind": None, "value": 3},
    }
    made = make(deployments, flow, enforce_parameter_schema=False)
    run, _ = deployments.create_flow_run(made.id, parameters=given)
    assert run.parameters == {"x": {"a": (1,)}, "y": {"z": 2}, "n": 3}
    with pytest.raises(BadParameters, match="no variable"):
        deployments.create_flow_run(
            made.id, parameters={"x": {"__prefect_kind": "workspace_variable", "variable_name": "none"}}
        )
    for wrong in (
        {"__prefect_kind": "jinja", "template": "{{ 1 }}"},
        {"__prefect_kind": "json", "value": "{"},
    ):
        with pytest.raises(BadParameters):
            filled_in([wrong], lambda _: None)


# Pools, limits, runs, polls


def test_a_deployment_has_the_queue_of_its_pool(deployments: Deployments, flow: Record) -> None:
    pool = f"pool-{next(_numbers)}"
    schema = {"type": "object", "properties": {"cpu": {"type": "integer"}}}
    template = {"job_configuration": {"cpu": "{{ cpu }}"}, "variables": schema}
    deployments.pools.create({"name": pool, "type": "process", "base_job_template": template})
    made = make(deployments, flow, work_pool_name=pool)
    assert (made["work_queue_name"], made["work_pool_name"]) == ("default", pool)
    fast = make(deployments, flow, work_pool_name=pool, work_queue_name="fast")
    assert deployments.pools.queue(pool, "fast").id == fast["work_queue_id"]
    with pytest.raises(BadParameters, match="cpu"):
        make(deployments, flow, work_pool_name=pool, job_variables={"cpu": "many"})
    run, _ = deployments.create_flow_run(made.id, work_queue_name="slow", job_variables={"cpu": 2})
    assert (run.work_pool_name, run.work_queue_name) == (pool, "slow")
    assert deployments.change(made.id, {"work_pool_name": None})["work_queue_id"] is None
    with pytest.raises(BadParameters, match="no work pool"):
        deployments.create_flow_run(made.id, work_queue_name="slow")
    with pytest.raises(RecordNotFound):
        make(deployments, flow, work_pool_name="no such pool")
    assert make(deployments, flow, work_queue_name="old")["work_pool_name"] == AGENT_POOL


def test_a_concurrency_limit_of_its_own_comes_changes_and_goes(
    deployments: Deployments, flow: Record
) -> None:
    options = {"collision_strategy": "CANCEL_NEW", "grace_period_seconds": 60}
    made = make(deployments, flow, concurrency_limit=2, concurrency_options=options)
    (shown,) = deployments.shown(made)
    assert shown["global_concurrency_limit"]["limit"] == 2
    assert shown["concurrency_options"] == options
    assert (shown["concurrency_limit"], "work_pool_id" in shown) == (None, False)
    changed = deployments.change(made.id, {"concurrency_limit": 5})
    assert deployments.shown(changed)[0]["global_concurrency_limit"]["limit"] == 5
    own = made["concurrency_limit_id"]
    assert deployments.change(made.id, {"concurrency_limit": None})["concurrency_limit_id"] is None
    with pytest.raises(RecordNotFound):
        deployments.records.get("concurrency_limit", own)
    for wrong in ({"concurrency_options": {"collision_strategy": "WAIT"}}, {"concurrency_limit": -1}):
        with pytest.raises(BadRecord):
            deployments.change(made.id, wrong)


def test_a_shared_limit_outlives_its_deployments(deployments: Deployments, flow: Record) -> None:
    limit = deployments.records.create("concurrency_limit", {"name": f"db-{next(_numbers)}", "limit": 3})
    made = make(deployments, flow, global_concurrency_limit_id=limit.id)
    other, _ = deployments.upsert({"name": "b", "flow_id": flow.id})
    assert [one["global_concurrency_limit"] is None for one in deployments.shown(made, other)] == [
        False,
        True,
    ]
    deployments.delete(made.id)
    assert deployments.records.get("concurrency_limit", limit.id)["limit"] == 3
    with pytest.raises(BadRecord, match="together"):
        make(deployments, flow, global_concurrency_limit_id=limit.id, concurrency_limit=1)
    with pytest.raises(RecordNotFound):
        make(deployments, flow, global_concurrency_limit_id=flow.id)


def test_a_run_takes_what_its_deployment_has(deployments: Deployments, flow: Record) -> None:
    made = make(deployments, flow, tags=["a", "b"], version="7", parameters={"x": 1}, schedules=[DAILY])
    run, new = deployments.create_flow_run(
        made.id, tags=["b", "c"], labels={"k": 1}, idempotency_key="once", name="mine", parameters={"y": 2}
    )
    assert (new, run.name, run.tags, run.deployment_version) == (True, "mine", ("a", "b", "c"), "7")
    assert (run.parameters, run.state_name) == ({"x": 1, "y": 2}, "Scheduled")
    assert run.labels["prefect.deployment.id"] == made.id
    assert run.labels["k"] == 1
    same, again = deployments.create_flow_run(made.id, idempotency_key="once")
    assert (same.id, again) == (run.id, False)
    auto = made_by_scheduler(deployments, made, hours=1)
    assert auto.tags[0] == "auto-scheduled"
    assert auto.created_by == {
        "id": made["schedules"][0]["id"], "type": "SCHEDULE", "display_value": "CronSchedule",
    }  # fmt: skip


def test_polls_make_it_ready_by_one_fact(deployments: Deployments, flow: Record) -> None:
    made = make(deployments, flow)
    deployments.polled([made.id, flow.id])
    ready = deployments.get(made.id)
    deployments.polled([made.id])
    assert (ready["status"], deployments.get(made.id).version) == ("READY", ready.version)
    assert deployments.shown(ready)[0]["last_polled"] is not None
    deployments.not_ready(made.id)
    assert deployments.get(made.id)["status"] == "NOT_READY"
