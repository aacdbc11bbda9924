"""Variables, artifacts, pools, queues, workers, deployments, limits and the like over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest

from ledger.tokens import Role
from tests.gateway.http.conftest import Running
from tests.runs.http.test_flow_runs import given_flow, given_run


def word() -> str:
    """A name that no other test uses."""
    return f"x{uuid4().hex[:12]}"


def test_a_variable_by_name_and_by_id(api: httpx.Client) -> None:
    name = word()
    made = api.post("/variables/", json={"name": name, "value": {"a": 1}, "tags": ["t"], "new": "field"})
    assert made.status_code == 201
    assert api.post("/variables/", json={"name": name, "value": 1}).status_code == 409
    assert api.patch(f"/variables/name/{name}", json={"value": [1]}).status_code == 204
    assert api.get(f"/variables/name/{name}").json()["value"] == [1]
    assert api.get(f"/variables/{made.json()['id']}").json()["name"] == name
    filters = {"variables": {"name": {"any_": [name]}}}
    assert [one["name"] for one in api.post("/variables/filter", json=filters).json()] == [name]
    assert api.post("/variables/count", json=filters).json() == 1
    assert api.delete(f"/variables/name/{name}").status_code == 204
    assert api.get(f"/variables/name/{name}").status_code == 404
    assert api.post("/variables/", json={"name": "Not Allowed", "value": 1}).status_code == 422


def test_the_latest_artifact_of_a_key(api: httpx.Client) -> None:
    key, run = word(), given_run(api)
    first, second = (
        api.post("/artifacts/", json={"key": key, "type": "markdown", "data": n, "flow_run_id": run["id"]})
        for n in (1, 2)
    )
    assert (first.status_code, second.status_code) == (201, 201)
    assert api.get(f"/artifacts/{key}/latest").json()["data"] == 2
    mine = {"artifacts": {"key": {"any_": [key]}}}
    assert len(api.post("/artifacts/filter", json=mine).json()) == 2
    (latest,) = api.post("/artifacts/latest/filter", json=mine).json()
    assert (latest["latest_id"], latest["data"]) == (second.json()["id"], 2)
    assert api.patch(f"/artifacts/{second.json()['id']}", json={"description": "new"}).status_code == 204
    assert api.delete(f"/artifacts/{second.json()['id']}").status_code == 204
    assert api.get(f"/artifacts/{key}/latest").json()["id"] == first.json()["id"]


def given_pool(api: httpx.Client, **fields: Any) -> dict[str, Any]:
    answer = api.post("/work_pools/", json={"name": f"pool-{word()}", "type": "process", **fields})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_pool_has_a_queue_and_workers(api: httpx.Client) -> None:
    pool = given_pool(api)
    path = f"/work_pools/{pool['name']}"
    assert api.post("/work_pools/", json={"name": pool["name"], "type": "x"}).status_code == 409
    assert api.post("/work_pools/", json={"name": "prefect-x", "type": "x"}).status_code == 403
    default = api.get(f"{path}/queues/default").json()
    assert (default["id"], default["work_pool_name"]) == (pool["default_queue_id"], pool["name"])
    assert api.post(f"{path}/queues", json={"name": "fast", "priority": 1}).status_code == 201
    assert [one["name"] for one in api.post(f"{path}/queues/filter").json()] == ["fast", "default"]
    assert api.patch(f"{path}/queues/fast", json={"is_paused": True}).status_code == 204
    assert api.get(f"{path}/queues/fast").json()["status"] == "PAUSED"
    by_id = api.get(f"/work_queues/{default['id']}").json()
    assert (by_id["name"], by_id["work_pool_name"]) == ("default", pool["name"])
    assert api.delete(f"{path}/queues/fast").status_code == 204
    heartbeat = {"name": "w", "heartbeat_interval_seconds": 30}
    assert api.post(f"{path}/workers/heartbeat", json=heartbeat).status_code == 204
    (worker,) = api.post(f"{path}/workers/filter").json()
    assert (worker["name"], worker["status"]) == ("w", "ONLINE")
    assert api.get(path).json()["status"] == "READY"
    assert api.post("/work_pools/none/workers/heartbeat", json={"name": "w"}).status_code == 404
    assert api.delete(f"{path}/workers/w").status_code == 204
    assert api.patch(path, json={"concurrency_limit": 3}).status_code == 204
    pools = {"work_pools": {"name": {"any_": [pool["name"]]}}}
    assert [one["concurrency_limit"] for one in api.post("/work_pools/filter", json=pools).json()] == [3]
    assert api.delete(path).status_code == 204
    assert api.get(path).status_code == 404


def given_deployment(api: httpx.Client, **fields: Any) -> dict[str, Any]:
    body = {"name": f"d {word()}", "flow_id": given_flow(api), **fields}
    answer = api.post("/deployments/", json=body)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def before(seconds: float) -> str:
    """A time as Prefect's runner sends it: with a space."""
    return str(datetime.now(UTC) + timedelta(seconds=seconds))


def test_a_worker_takes_a_run_of_a_deployment(api: httpx.Client) -> None:
    pool = given_pool(api)
    deployment = given_deployment(api, work_pool_name=pool["name"], parameters={"x": 1}, tags=["a"])
    path = f"/deployments/{deployment['id']}"
    made = api.post(f"{path}/create_flow_run", json={"parameters": {"y": 2}, "tags": ["b"]})
    run = made.json()
    assert (made.status_code, run["state"]["type"], run["parameters"]) == (201, "SCHEDULED", {"x": 1, "y": 2})
    assert (run["work_pool_name"], set(run["tags"])) == (pool["name"], {"a", "b"})
    assert pool["active_slots"] is None
    assert api.patch(f"/work_pools/{pool['name']}", json={"concurrency_limit": 5}).status_code == 204
    assert api.get(f"/work_pools/{pool['name']}").json()["active_slots"] == 0
    ask = {"work_queue_names": ["default"], "scheduled_before": before(10)}
    (found,) = api.post(f"/work_pools/{pool['name']}/get_scheduled_flow_runs", json=ask).json()
    assert (found["flow_run"]["id"], found["work_pool_id"]) == (run["id"], pool["id"])
    assert found["work_queue_id"] == pool["default_queue_id"]
    ask = {"deployment_ids": [deployment["id"]], "scheduled_before": before(10)}
    (polled,) = api.post("/deployments/get_scheduled_flow_runs", json=ask).json()
    assert polled["id"] == run["id"]
    api.post(f"/flow_runs/{run['id']}/set_state", json={"state": {"type": "PENDING"}})
    assert api.get(f"/work_pools/{pool['name']}").json()["active_slots"] == 1
    slots = api.post(f"/work_pools/{pool['name']}/concurrency_status", json={}).json()
    (queue,) = slots["queues"]
    assert (slots["active_slots"], [one["id"] for one in queue["flow_runs"]]) == (1, [run["id"]])
    by_queue = api.post(f"/work_queues/{queue['queue_id']}/concurrency_status", json={}).json()
    assert (by_queue["count"], by_queue["flow_runs"][0]["state_name"]) == (1, "Pending")
    status = api.get(f"/work_queues/{queue['queue_id']}/status").json()
    assert (status["late_runs_count"], status["healthy"], bool(status["last_polled"])) == (0, True, True)
    assert api.get(path).json()["status"] == "READY"


def test_a_deployment_is_changed_by_who_serves_it(api: httpx.Client) -> None:
    every = {"schedule": {"interval": 3600}, "slug": "hourly"}
    deployment = given_deployment(api, schedules=[every], concurrency_limit=None, entrypoint="a.py:f")
    path = f"/deployments/{deployment['id']}"
    body = {"name": deployment["name"], "flow_id": deployment["flow_id"], "entrypoint": "b.py:f"}
    again = api.post("/deployments/", json=body)
    assert (again.status_code, again.json()["id"]) == (200, deployment["id"])
    added = api.post(f"{path}/schedules", json=[{"schedule": {"cron": "0 5 * * *"}, "slug": "early"}])
    assert (added.status_code, added.json()[0]["active"]) == (201, True)
    early = added.json()[0]["id"]
    assert api.patch(f"{path}/schedules/{early}", json={"active": False}).status_code == 204
    assert {one["slug"]: one["active"] for one in api.get(f"{path}/schedules").json()}["early"] is False
    assert api.delete(f"{path}/schedules/{early}").status_code == 204
    assert api.post(f"{path}/pause_deployment").status_code == 200
    assert api.get(path).json()["paused"] is True
    assert api.post(f"{path}/resume_deployment").status_code == 200
    assert api.patch(path, json={"paused": True, "tags": None}).status_code == 204
    mine = {"deployments": {"id": {"any_": [deployment["id"]]}}}
    assert [one["entrypoint"] for one in api.post("/deployments/filter", json=mine).json()] == ["b.py:f"]
    assert api.post("/deployments/paginate", json=mine).json()["count"] == 1


def test_the_runs_of_a_time_that_is_over_are_made_on_demand(api: httpx.Client) -> None:
    hourly = {"schedule": {"interval": 3600, "anchor_date": "2020-01-01T00:00:00Z"}, "active": True}
    made = given_deployment(api, schedules=[hourly], paused=True)
    wanted = {"start_time": "2020-05-01T00:00:00Z", "end_time": "2020-05-01T05:00:00Z", "min_runs": 10}
    for _ in "ab":  # the second time, they are there
        assert api.post(f"/deployments/{made['id']}/schedule", json=wanted).status_code == 200
        mine = {"deployments": {"id": {"any_": [made["id"]]}}, "sort": "EXPECTED_START_TIME_ASC"}
        found = [one["expected_start_time"] for one in api.post("/flow_runs/filter", json=mine).json()]
        assert found[0] == "2020-05-01T00:00:00Z"
        assert found[-1] == "2020-05-01T05:00:00Z"
        assert len(found) == 6
    assert api.post(f"/deployments/{uuid4()}/schedule", json={}).status_code == 404
    late = api.post(f"/deployments/{made['id']}/schedule", json={"start_time": "9999-12-31T00:00:00Z"})
    assert late.status_code == 422
    by_hand = api.post(f"/deployments/{made['id']}/create_flow_run", json={}).json()["id"]
    assert api.delete(f"/deployments/{made['id']}").status_code == 204
    assert api.get(f"/flow_runs/{by_hand}").status_code == 404
    mine = {"flow_runs": {"deployment_id": {"any_": [made["id"]]}}}
    assert api.post("/flow_runs/filter", json=mine).json() == []


def test_parameters_that_do_not_fit_are_409(api: httpx.Client) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    deployment = given_deployment(api, parameter_openapi_schema=schema, enforce_parameter_schema=True)
    path = f"/deployments/{deployment['id']}/create_flow_run"
    wrong = api.post(path, json={"parameters": {"x": "one"}})
    assert (wrong.status_code, "x" in wrong.json()["detail"]) == (409, True)
    assert api.post(path, json={"parameters": {"x": 1}}).status_code == 201


def test_slots_of_a_limit_are_leased(api: httpx.Client) -> None:
    name = word()
    made = api.post("/v2/concurrency_limits/", json={"name": name, "limit": 1})
    assert made.status_code == 201
    ask = {"names": [name], "slots": 1, "mode": "concurrency", "lease_duration": 300}
    taken = api.post("/v2/concurrency_limits/increment-with-lease", json=ask)
    assert [one["name"] for one in taken.json()["limits"]] == [name]
    full = api.post("/v2/concurrency_limits/increment-with-lease", json=ask)
    assert full.status_code == 423
    assert float(full.headers["retry-after"]) > 0
    assert api.get(f"/v2/concurrency_limits/{name}").json()["active_slots"] == 1
    lease = taken.json()["lease_id"]
    renewal = f"/v2/concurrency_limits/leases/{lease}/renew"
    assert api.post(renewal, json={"lease_duration": 300}).status_code == 204
    for _ in "ab":
        ended = api.post("/v2/concurrency_limits/decrement-with-lease", json={"lease_id": lease})
        assert ended.status_code == 204
    assert api.post(renewal, json={"lease_duration": 300}).status_code == 410
    assert api.get(f"/v2/concurrency_limits/{made.json()['id']}").json()["active_slots"] == 0
    unknown = api.post("/v2/concurrency_limits/increment-with-lease", json={**ask, "names": ["tag:none"]})
    assert (unknown.status_code, unknown.json()["limits"]) == (200, [])
    assert api.patch(f"/v2/concurrency_limits/{name}", json={"limit": 5}).status_code == 204
    assert name in [one["name"] for one in api.post("/v2/concurrency_limits/filter", json={}).json()]
    assert api.delete(f"/v2/concurrency_limits/{name}").status_code == 204


def test_the_limit_of_a_tag_names_the_task_runs_that_hold_it(api: httpx.Client) -> None:
    tag, run = word(), str(uuid4())
    assert api.post("/concurrency_limits/", json={"tag": tag, "concurrency_limit": 1}).status_code == 201
    assert api.post("/concurrency_limits/", json={"tag": tag, "concurrency_limit": 2}).status_code == 200
    take = {"names": [tag, "free"], "task_run_id": run}
    assert api.post("/concurrency_limits/increment", json=take).status_code == 200
    shown = api.get(f"/concurrency_limits/tag/{tag}").json()
    assert (shown["active_slots"], shown["concurrency_limit"]) == ([run], 2)
    assert api.post(f"/concurrency_limits/tag/{tag}/reset", json={}).status_code == 200
    assert api.get(f"/concurrency_limits/{shown['id']}").json()["active_slots"] == []
    assert api.delete(f"/concurrency_limits/tag/{tag}").status_code == 200
    assert api.get(f"/concurrency_limits/tag/{tag}").status_code == 404


def test_automations_belong_to_what_they_name(api: httpx.Client) -> None:
    owner = f"prefect.deployment.{uuid4()}"
    body = {"name": "tell", "trigger": {"type": "event"}, "actions": [], "owner_resource": owner}
    made = api.post("/automations/", json=body)
    assert made.status_code == 201
    path = f"/automations/{made.json()['id']}"
    assert api.patch(path, json={"enabled": False}).status_code == 204
    assert [one["enabled"] for one in api.get(f"/automations/related-to/{owner}").json()] == [False]
    assert api.delete(f"/automations/owned-by/{owner}").status_code == 202
    assert api.get(path).status_code == 404


@pytest.mark.parametrize("path", ["/collections/views/aggregate-worker-metadata", "/csrf-token"])
def test_what_clients_do_without_is_404(api: httpx.Client, path: str) -> None:
    assert api.get(path).status_code == 404


def test_a_saved_search_is_replaced(api: httpx.Client) -> None:
    body = {"name": word(), "filters": []}
    assert [api.put("/saved_searches/", json=body).status_code for _ in "ab"] == [201, 200]


def given_block_type(api: httpx.Client) -> tuple[dict[str, Any], dict[str, Any]]:
    """A type of this test's own with a schema that has a secret."""
    slug = word()
    made = api.post("/block_types/", json={"name": slug, "slug": slug})
    assert made.status_code == 201, made.text
    fields = {
        "type": "object", "title": "Login", "secret_fields": ["password"], "block_type_slug": slug,
        "properties": {"user": {"type": "string"}, "password": {"type": "string", "format": "password"}},
    }  # fmt: skip
    body = {"block_type_id": made.json()["id"], "fields": fields, "capabilities": ["login"]}
    schema, again = (api.post("/block_schemas/", json=body) for _ in "ab")
    assert (schema.status_code, again.status_code) == (201, 200)
    return made.json(), schema.json()


def test_the_secrets_of_a_block_are_shown_only_to_who_asks_as_operator(
    api: httpx.Client, prefect: Running
) -> None:
    type, schema = given_block_type(api)
    found = api.get(f"/block_schemas/checksum/{schema['checksum']}", params={"version": schema["version"]})
    assert (found.json()["id"], found.json()["block_type"]["slug"]) == (schema["id"], type["slug"])
    body = {
        "name": "mine", "block_type_id": type["id"], "block_schema_id": schema["id"],
        "data": {"user": "mina", "password": "sesame"},
    }  # fmt: skip
    made = api.post("/block_documents/", json=body)
    assert (made.status_code, "sesame" in made.text) == (201, False)
    assert api.post("/block_documents/", json=body).status_code == 409
    path = f"/block_types/slug/{type['slug']}/block_documents/name/mine"
    assert "sesame" not in api.get(path).text
    shown = api.get(path, params={"include_secrets": "true"}).json()
    assert (shown["data"]["password"], shown["block_schema"]["id"]) == ("sesame", schema["id"])
    filters = {"block_documents": {"name": {"any_": ["mine"]}}, "include_secrets": True}
    assert "sesame" in api.post("/block_documents/filter", json=filters).text
    with prefect.client(Role.READER) as reader:
        assert reader.get(f"/api{path}", params={"include_secrets": "true"}).status_code == 403
        assert reader.post("/api/block_documents/filter", json=filters).status_code == 403
        assert "sesame" not in reader.get(f"/api{path}").text
    document = f"/block_documents/{made.json()['id']}"
    assert api.patch(document, json={"data": {"user": "jo"}}).status_code == 204
    changed = api.get(document, params={"include_secrets": "true"}).json()["data"]
    assert changed == {"user": "jo", "password": "sesame"}
    assert "login" in api.get("/block_capabilities/").json()
    assert api.delete(document).status_code == 204
    assert api.delete(f"/block_types/{type['id']}").status_code == 204
    assert api.get(f"/block_schemas/{schema['id']}").status_code == 404


def test_a_task_run_is_the_one_of_its_keys(api: httpx.Client) -> None:
    run = given_run(api)
    body = {"flow_run_id": run["id"], "task_key": "sub", "dynamic_key": "0", "task_inputs": {}}
    made, again = (api.post("/task_runs/", json=body) for _ in "ab")
    assert (made.status_code, again.status_code) == (201, 200)
    path = f"/task_runs/{made.json()['id']}"
    assert again.json()["id"] == made.json()["id"]
    api.post(f"/flow_runs/{run['id']}/set_state", json={"state": {"type": "RUNNING"}})
    accepted = api.post(f"{path}/set_state", json={"state": {"type": "RUNNING"}})
    assert (accepted.status_code, accepted.json()["status"]) == (201, "ACCEPT")
    assert api.patch(path, json={"name": "renamed"}).status_code == 204
    assert (api.get(path).json()["name"], api.get(path).json()["run_count"]) == ("renamed", 1)
    mine = {"flow_runs": {"id": {"any_": [run["id"]]}}}
    assert [one["name"] for one in api.post("/task_runs/filter", json=mine).json()] == ["renamed"]
    assert api.post("/task_runs/count", json=mine).json() == 1
    states = api.get("/task_run_states/", params={"task_run_id": made.json()["id"]}).json()
    assert [one["type"] for one in states] == ["PENDING", "RUNNING"]
    assert api.delete(path).status_code == 204
    assert api.get(path).status_code == 404
