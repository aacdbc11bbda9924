"""Flow runs over HTTP, as Prefect's client creates, moves, lists and resumes them."""

from __future__ import annotations

import csv
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest

from ledger.tokens import Role
from tests.gateway.http.conftest import Running

PENDING, RUNNING, FAILED = ({"type": type} for type in ("PENDING", "RUNNING", "FAILED"))


def given_flow(api: httpx.Client) -> str:
    """A flow of this test's own; its id."""
    return str(api.post("/flows/", json={"name": f"flow {uuid4()}"}).json()["id"])


def given_run(api: httpx.Client, **fields: Any) -> dict[str, Any]:
    """A flow run that is pending, unless another state is given."""
    body = {"flow_id": fields.pop("flow_id", None) or given_flow(api), "state": PENDING, **fields}
    answer = api.post("/flow_runs/", json=body)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def proposed(api: httpx.Client, run: dict[str, Any], state: dict[str, Any], **more: Any) -> httpx.Response:
    return api.post(f"/flow_runs/{run['id']}/set_state", json={"state": state, **more})


def test_a_flow_is_created_once(api: httpx.Client) -> None:
    name = f"flow {uuid4()}"
    first, second = (api.post("/flows/", json={"name": name, "unknown": 1}) for _ in "ab")
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["id"] == second.json()["id"]
    assert api.get(f"/flows/name/{name}").json()["id"] == first.json()["id"]
    assert api.patch(f"/flows/{first.json()['id']}", json={"tags": ["a"]}).status_code == 204
    assert api.get(f"/flows/{first.json()['id']}").json()["tags"] == ["a"]


def test_a_run_is_shown_with_its_new_state_at_once(api: httpx.Client) -> None:
    run = given_run(api, parameters={"x": float(1)}, tags=["t"])
    accepted = proposed(api, run, RUNNING)
    assert (accepted.status_code, accepted.json()["status"]) == (201, "ACCEPT")
    assert accepted.json()["details"] == {"type": "accept_details"}
    shown = api.get(f"/flow_runs/{run['id']}").json()
    assert (shown["state"]["type"], shown["run_count"], shown["parameters"]) == ("RUNNING", 1, {"x": 1.0})
    (listed,) = api.post("/flow_runs/filter", json={"flow_runs": {"id": {"any_": [run["id"]]}}}).json()
    assert listed["state_name"] == "Running"
    states = api.get("/flow_run_states/", params={"flow_run_id": run["id"]}).json()
    assert [one["type"] for one in states] == ["PENDING", "RUNNING"]
    assert api.get(f"/flow_run_states/{states[0]['id']}").json() == states[0]
    assert api.get(f"/flow_run_states/{uuid4()}").status_code == 404
    for kind in ("flow_run", "task_run"):
        assert api.get(f"/{kind}_states/", params={f"{kind}_id": str(uuid4())}).json() == []


def test_the_dance_of_a_retry(api: httpx.Client) -> None:
    """Prefect's client proposes the failure, waits as told, and runs again (prefect-client.md, A)."""
    run = given_run(api, empirical_policy={"retries": 1, "retry_delay": 30})
    proposed(api, run, RUNNING)
    rejected = proposed(api, run, FAILED)
    assert (rejected.status_code, rejected.json()["status"]) == (201, "REJECT")
    assert rejected.json()["state"]["name"] == "AwaitingRetry"
    assert rejected.json()["details"]["type"] == "reject_details"
    early = proposed(api, run, RUNNING)
    assert (early.status_code, early.json()["status"]) == (200, "WAIT")
    assert 28 <= early.json()["details"]["delay_seconds"] <= 30
    assert type(early.json()["details"]["delay_seconds"]) is int


def test_a_second_worker_is_told_to_leave_a_run_alone(api: httpx.Client) -> None:
    run = given_run(api)
    aborted = proposed(api, run, PENDING)
    assert (aborted.status_code, aborted.json()["status"]) == (200, "ABORT")
    assert aborted.json()["details"]["reason"]


def test_an_idempotency_key_creates_one_run(api: httpx.Client) -> None:
    body = {"flow_id": given_flow(api), "idempotency_key": "slot 1", "state": {"type": "SCHEDULED"}}
    first, second = (api.post("/flow_runs/", json=body) for _ in "ab")
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["id"] == second.json()["id"]


def test_fields_labels_and_inputs_change(api: httpx.Client) -> None:
    run = given_run(api, labels={"a": 1})
    path = f"/flow_runs/{run['id']}"
    assert api.patch(path, json={"infrastructure_pid": "7", "tags": ["x"]}).status_code == 204
    assert api.patch(f"{path}/labels", json={"b": "two"}).status_code == 204
    shown = api.get(path).json()
    assert (shown["infrastructure_pid"], shown["tags"]) == ("7", ["x"])
    assert {"a": 1, "b": "two"}.items() <= shown["labels"].items()
    given = {"key": "k/1", "value": '{"n": 1}', "sender": "prefect.flow-run.x"}
    assert api.post(f"{path}/input", json=given).status_code == 201
    assert api.post(f"{path}/input", json=given).status_code == 409
    assert api.get(f"{path}/input/k/1").text == '{"n": 1}'
    (one,) = api.post(f"{path}/input/filter", json={"prefix": "k", "limit": 5}).json()
    assert (one["key"], one["sender"]) == ("k/1", "prefect.flow-run.x")
    assert api.delete(f"{path}/input/k/1").status_code == 204
    assert api.get(f"{path}/input/k/1").status_code == 404


def test_a_paused_run_is_resumed(api: httpx.Client) -> None:
    run = given_run(api)
    proposed(api, run, RUNNING)
    paused = {"type": "PAUSED", "name": "Paused", "state_details": {"pause_key": "1"}}
    assert proposed(api, run, paused).json()["status"] == "ACCEPT"
    resumed = api.post(f"/flow_runs/{run['id']}/resume", json={})
    assert (resumed.status_code, resumed.json()["state"]["type"]) == (201, "RUNNING")
    again = api.post(f"/flow_runs/{run['id']}/resume")
    assert again.json()["status"] == "ABORT"


def test_lists_counts_and_bulk_changes(api: httpx.Client) -> None:
    flow = given_flow(api)
    ids = {given_run(api, flow_id=flow)["id"] for _ in range(3)}
    mine = {"flows": {"id": {"any_": [flow]}}}
    assert {one["id"] for one in api.post("/flow_runs/filter", json=mine).json()} == ids
    assert api.post("/flow_runs/count", json=mine).json() == 3
    page = api.post("/flow_runs/paginate", json={**mine, "limit": 2, "page": 2}).json()
    assert (len(page["results"]), page["count"], page["pages"], page["page"]) == (1, 3, 2, 2)
    now, day = datetime.now(UTC), timedelta(days=1)
    hours = {
        "history_start": str(now - day),
        "history_end": str(now + day),
        "history_interval_seconds": 172_800,
    }
    (interval,) = api.post("/flow_runs/history", json={**mine, **hours}).json()
    assert [(one["state_name"], one["count_runs"]) for one in interval["states"]] == [("Pending", 3)]
    chosen = {"flow_runs": {"id": {"any_": sorted(ids)[:2]}}}
    told = api.post("/flow_runs/bulk_set_state", json={**chosen, "state": {"type": "CANCELLED"}}).json()
    assert [one["status"] for one in told["results"]] == ["ACCEPT", "ACCEPT"]
    assert set(api.post("/flow_runs/bulk_delete", json=chosen).json()["deleted"]) == set(sorted(ids)[:2])
    assert api.post("/flow_runs/count", json=mine).json() == 1
    gone = sorted(ids)[0]
    assert api.get(f"/flow_runs/{gone}").status_code == 404


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({}, "flow_id"), ({"flow_id": "no uuid"}, ""), ({"flow_id": str(uuid4()), "tags": "x"}, "tags"),
        ({"flow_id": str(uuid4()), "state": {"type": "RUNS"}}, ""), ([], ""), ("x", ""),
    ],
)  # fmt: skip
def test_a_body_that_does_not_fit_is_422_in_prefect_s_form(
    api: httpx.Client, body: object, place: str
) -> None:
    answer = api.post("/flow_runs/", json=body)
    assert (answer.status_code, answer.json()["exception_message"]) == (422, "Invalid request received.")
    assert place in str(answer.json()["exception_detail"])


def test_no_numbers_become_null_and_what_is_no_json_is_refused(api: httpx.Client) -> None:
    body = f'{{"flow_id": "{given_flow(api)}", "parameters": {{"x": NaN, "y": -Infinity}}}}'
    assert api.post("/flow_runs/", content=body).json()["parameters"] == {"x": None, "y": None}
    for broken in ("{", "\ud800".encode("utf-8", "surrogatepass"), "[" * 20_000):
        assert api.post("/flow_runs/", content=broken).status_code == 422
    for limit in (201, -1):
        assert api.post("/flow_runs/filter", json={"limit": limit}).status_code == 422


def test_who_acts_is_recorded_with_what_its_client_says(prefect: Running, api: httpx.Client) -> None:
    headers = {"X-Prefect-Worker-Id": str(uuid4()), "X-Prefect-Worker-Name": "worker 1"}
    body = {"flow_id": given_flow(api), "state": PENDING}
    run = api.post("/flow_runs/", json=body, headers=headers).json()
    (created, *_) = prefect.log.read(f"flow_run/{run['id']}")
    assert created.meta.actor == f"the {Role.ADMIN}, worker worker 1"


def test_logs_are_kept_and_paged(api: httpx.Client) -> None:
    run = given_run(api)
    line = {"name": "prefect.flow_runs", "level": 20, "timestamp": "2026-11-21 04:58:08.41+00:00"}
    lines = [{**line, "message": f"line {n}", "flow_run_id": run["id"]} for n in range(3)]
    assert api.post("/logs/", json=lines).status_code == 201
    mine = {"logs": {"flow_run_id": {"any_": [run["id"]]}}}
    first = api.post("/logs/filter", json={**mine, "limit": 2}).json()
    rest = api.post("/logs/filter", json={**mine, "limit": 2, "offset": 2}).json()
    assert {one["message"] for one in [*first, *rest]} == {"line 0", "line 1", "line 2"}
    assert api.post("/logs/", json=[{"message": "x"}]).status_code == 422
    whole = api.get(f"/flow_runs/{run['id']}/logs/download")
    rows = list(csv.DictReader(whole.text.splitlines()))
    assert [one["message"] for one in rows] == [one["message"] for one in first + rest]
    assert whole.headers["content-disposition"].startswith('attachment; filename="flow-run-logs.csv"')
    assert api.get(f"/flow_runs/{uuid4()}/logs/download").status_code == 404


def test_events_of_a_run_are_read_back_and_counted(api: httpx.Client) -> None:
    run = given_run(api)
    proposed(api, run, RUNNING)
    wanted = {"filter": {"any_resource": {"id": [f"prefect.flow-run.{run['id']}"]}}}
    page = api.post("/events/filter", json=wanted).json()
    assert {one["event"] for one in page["events"]} == {
        "prefect.flow-run.Pending",
        "prefect.flow-run.Running",
    }
    assert (page["total"], page["next_page"]) == (2, None)
    first = api.post("/events/filter", json={**wanted, "limit": 1}).json()
    second = api.get(first["next_page"]).json()
    assert first["events"] + second["events"] == page["events"]
    counts = api.post("/events/count-by/event", json=wanted).json()
    assert {one["label"]: one["count"] for one in counts} == {one["event"]: 1 for one in page["events"]}
    assert api.get("/events/filter/next", params={"page-token": "x"}).status_code == 403
    assert api.post("/events/count-by/colour", json=wanted).status_code == 422


def test_events_that_clients_send_are_recorded_when_the_answer_comes(api: httpx.Client) -> None:
    event = {
        "id": str(uuid4()), "occurred": "2026-11-21T04:58:08Z", "event": "made.of.this.test", "payload": {},
        "resource": {"prefect.resource.id": f"thing.{uuid4()}"}, "related": [],
    }  # fmt: skip
    assert api.post("/events", json=[event, event]).status_code == 204
    wanted = {"filter": {"event": {"name": ["made.of.this.test"]}}}
    assert [one["id"] for one in api.post("/events/filter", json=wanted).json()["events"]] == [event["id"]]
    assert api.post("/events", json=[{**event, "occurred": "yesterday"}]).status_code == 422
