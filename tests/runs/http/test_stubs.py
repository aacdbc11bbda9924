"""What is not there: a flow run's process gets an answer for its events, everybody else learns it."""

from __future__ import annotations

from uuid import uuid4

import httpx
import pytest

INSIDE = {"X-Prefect-Flow-Id": str(uuid4())}
"""What Prefect's client sends from inside a flow run."""


@pytest.mark.parametrize("kind", ["flows", "deployments", "work_queues"])
def test_what_never_was_is_unknown_but_to_a_flow_run(api: httpx.Client, kind: str) -> None:
    path = f"/{kind}/{uuid4()}"
    assert api.get(path).status_code == 404
    answer = api.get(path, headers=INSIDE)
    assert (answer.status_code, answer.json()["id"]) == (200, path.rpartition("/")[2])


def test_a_pool_that_never_was_is_unknown_but_to_a_flow_run(api: httpx.Client) -> None:
    assert api.get("/work_pools/never").status_code == 404
    answer = api.get("/work_pools/never", headers=INSIDE).json()
    assert (answer["name"], bool(answer["type"])) == ("never", True)


def test_a_deleted_flow_is_answered_by_id_as_it_was_and_not_by_name(api: httpx.Client) -> None:
    flow = api.post("/flows/", json={"name": f"flow {uuid4()}", "tags": ["a"]}).json()
    assert api.delete(f"/flows/{flow['id']}").status_code == 204
    assert api.get(f"/flows/{flow['id']}").json()["name"] == flow["name"]
    assert api.get(f"/flows/name/{flow['name']}").status_code == 404
    assert api.delete(f"/flows/{flow['id']}").status_code == 404
    assert api.post("/flows/filter", json={"flows": {"id": {"any_": [flow["id"]]}}}).json() == []


def test_a_deleted_deployment_is_answered_by_id_as_it_was_and_not_by_name(api: httpx.Client) -> None:
    flow = api.post("/flows/", json={"name": f"flow {uuid4()}"}).json()
    deployment = api.post("/deployments/", json={"name": "nightly", "flow_id": flow["id"]}).json()
    assert api.get(f"/deployments/name/{flow['name']}/nightly").json()["id"] == deployment["id"]
    assert api.delete(f"/deployments/{deployment['id']}").status_code == 204
    assert api.get(f"/deployments/{deployment['id']}").json()["name"] == "nightly"
    assert api.get(f"/deployments/name/{flow['name']}/nightly").status_code == 404
    assert api.post(f"/deployments/{deployment['id']}/create_flow_run", json={}).status_code == 404
