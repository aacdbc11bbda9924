"""The graph of a flow run over HTTP: who took the results of whom."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx

from tests.runs.http.test_flow_runs import given_flow, given_run, proposed


def given_task(api: httpx.Client, run: str, name: str, **inputs: list[dict[str, str]]) -> str:
    """A task run that is expected to begin now; its id."""
    state = {"type": "SCHEDULED"}
    keys = {"task_key": name, "dynamic_key": "0", "name": name, "flow_run_id": run}
    answer = api.post("/task_runs/", json={**keys, "state": state, "task_inputs": inputs})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def of(*tasks: str, kind: str = "task_run") -> list[dict[str, str]]:
    return [{"input_type": kind, "id": one} for one in tasks]


def edges(*ids: str) -> list[dict[str, str]]:
    return [{"id": one} for one in ids]


def test_the_graph_of_a_flow_run(api: httpx.Client) -> None:
    run = given_run(api)
    proposed(api, run, {"type": "RUNNING"})
    first = given_task(api, run["id"], "first")
    second = given_task(api, run["id"], "second", x=of(first, first), y=of(str(uuid4())))
    stand_in = given_task(api, run["id"], "sub", x=of(second))
    flow = given_flow(api)
    child = given_run(api, flow_id=flow, name="child", parent_task_run_id=stand_in)
    inside = given_task(api, run["id"], "inside", __parents__=of(first), z=of(child["id"], kind="flow_run"))
    artifact = {"key": f"k{uuid4().hex}", "type": "progress", "data": 0.5, "flow_run_id": run["id"]}
    made = api.post("/artifacts/", json={**artifact, "task_run_id": first}).json()
    api.post("/artifacts/", json={"type": "result", "data": 1, "flow_run_id": run["id"]})

    found = api.get(f"/flow_runs/{run['id']}/graph-v2").json()
    nodes: dict[str, dict[str, Any]] = dict(found["nodes"])
    assert list(nodes) == [first, second, child["id"], inside]
    assert found["root_node_ids"] == [first]
    assert [one["name"] for one in found["states"]] == ["Pending", "Running"]
    assert (found["start_time"] is not None, found["end_time"], found["artifacts"]) == (True, None, [])
    assert nodes[second]["parents"] == edges(first)
    assert nodes[first]["children"] == edges(second)
    assert (nodes[inside]["parents"], nodes[inside]["encapsulating"]) == (edges(child["id"]), edges(first))
    assert (nodes[child["id"]]["kind"], nodes[first]["kind"]) == ("flow-run", "task-run")
    assert nodes[child["id"]]["label"].endswith(" / child")
    (shown,) = nodes[first]["artifacts"]
    assert (shown["id"], shown["data"], shown["is_latest"]) == (made["id"], 0.5, True)

    late = api.get(f"/flow_runs/{run['id']}/graph-v2", params={"since": "2100-01-01T00:00:00Z"}).json()
    assert len(late["nodes"]) == 4  # they go on
    assert api.get(f"/flow_runs/{run['id']}/graph-v2", params={"since": "today"}).status_code == 422
    assert api.get(f"/flow_runs/{uuid4()}/graph-v2").status_code == 404

    told = {one["name"]: one for one in api.get(f"/flow_runs/{run['id']}/graph").json()}
    assert told["second"]["upstream_dependencies"][0] == of(first)[0]
    assert len(told["second"]["upstream_dependencies"]) == 2
    assert (told["first"]["untrackable_result"], told["first"]["state"]["type"]) == (False, "SCHEDULED")
