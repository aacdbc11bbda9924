"""The job endpoints of the original, as `jobs.md` 2.7 has them: a front end of it polls these."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import httpx
import pytest

from ledger.jobs import Jobs
from ledger.jobs.job import OpenJob
from projections.jobs import newest
from tests.gateway.http.conftest import Running

NEW = {"operation": " count ", "queue_name": " line ", "payload": {"n": 1}}


def submit(client: httpx.Client, **more: object) -> str:
    answer = client.post("/jobs", json={**NEW, **more})
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"id": answer.json()["id"], "status": "queued"}
    return str(answer.json()["id"])


def test_a_job_is_submitted_and_shown_with_all_its_fields(served: Running, client: httpx.Client) -> None:
    id = submit(client, meta={"by": "hand"}, description="a try", tags=["x"])
    shown = client.get(f"/jobs/{id}").json()
    assert (shown["operation"], shown["queue_name"]) == ("count", "line")
    assert (shown["payload"], shown["meta"], shown["tags"]) == ({"n": 1}, {"by": "hand"}, ["x"])
    assert (shown["status"], shown["parent_job_id"], shown["error_code"]) == ("queued", None, None)
    assert served.log.read(f"job/{id}")[0].meta.actor == "the admin"


@pytest.mark.parametrize(
    "wrong",
    [{"operation": " "}, {"queue_name": ""}, {"payload": 7}, {"surprise": 1}, {"payload": {"x": "\0"}}],
)
def test_an_invalid_job_is_refused_and_nothing_recorded(
    wrong: dict[str, object], served: Running, client: httpx.Client
) -> None:
    answer = client.post("/jobs", json={**NEW, **wrong})
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert served.log.bound() == 0


def test_the_same_job_again_is_a_duplicate_while_it_waits(client: httpx.Client) -> None:
    id = submit(client)
    again = client.post("/jobs", json=NEW)
    assert again.status_code == 409
    assert (again.json()["error"], again.json()["existing_job_id"]) == ("duplicate_active_job", id)
    assert id in again.json()["message"]
    assert client.post(f"/jobs/{id}/cancel").status_code == 200
    assert submit(client) != id


def test_an_idempotency_key_submits_once(served: Running, client: httpx.Client) -> None:
    key = {"Idempotency-Key": str(uuid4())}
    first = client.post("/jobs", json=NEW, headers=key).json()
    assert client.post("/jobs", json=NEW, headers=key).json() == first
    other = client.post("/jobs", json={**NEW, "payload": {"n": 2}}, headers=key)
    assert (other.status_code, other.json()["title"]) == (422, "CommandReused")
    assert len(served.log.streams("job/")) == 1


def test_lists_page_filter_and_leave_children_out(served: Running, client: httpx.Client) -> None:
    jobs = Jobs(served.log)
    ids = [jobs.submit("count", {"n": n}) for n in range(5)]
    child = jobs.submit("part", parent=ids[0])
    served.project()
    page = client.get("/jobs", params={"limit": 3})
    assert [one["id"] for one in page.json()] == ids[:1:-1]
    rest = client.get(page.links["next"]["url"])
    assert [one["id"] for one in rest.json()] == ids[1::-1]
    assert "next" not in rest.links
    of_parent = client.get("/jobs", params={"parent_job_id": ids[0]}).json()
    assert [(one["id"], one["parent_job_id"]) for one in of_parent] == [(child, ids[0])]
    assert len(client.get("/jobs", params={"include_children": True}).json()) == 6
    assert client.get("/jobs", params={"status": "RUNNING"}).json() == []
    assert (
        client.get("/jobs", params={"operation": "part", "include_children": True}).json()[0]["id"] == child
    )
    assert client.get("/jobs", params={"status": "asleep"}).status_code == 400


def test_after_is_a_position_or_a_time(served: Running, client: httpx.Client) -> None:
    jobs = Jobs(served.log)
    first, second = jobs.submit("a"), jobs.submit("b")
    served.project()
    (position,) = [one["position"] for one in client.get("/jobs").json() if one["id"] == first]
    assert [one["id"] for one in client.get("/jobs", params={"after": position}).json()] == [second]
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    for after, many in (("2001-01-01T00:00:00Z", 2), (later, 0)):
        assert len(client.get("/jobs", params={"after": after}).json()) == many
    assert client.get("/jobs", params={"after": "soon"}).status_code == 422


def test_events_are_newest_first_and_only_new_ones_are_read_again(
    served: Running, client: httpx.Client
) -> None:
    id = submit(client)
    for expected in (["job.created"], ["job.created"]):
        assert [one["event"] for one in client.get(f"/jobs/{id}/events").json()] == expected
    with served.log.open(OpenJob, id) as job:
        job.start("w")
        job.report("half", message="so far", fields={"part": 1}, level="warning")
    found = client.get(f"/jobs/{id}/events").json()
    assert [one["event"] for one in found] == ["half", "job.started", "job.created"]
    assert {k: found[0][k] for k in ("level", "message")} == {"level": "warning", "message": "so far"}
    assert found[0]["fields"]["part"] == 1
    assert [one["id"] for one in found] == [one.position for one in newest(served.log, id)]
    newer = client.get(f"/jobs/{id}/events", params={"after": found[1]["id"]}).json()
    assert newer == found[:1]
    page = client.get(f"/jobs/{id}/events", params={"limit": 2})
    assert page.json() == found[:2]
    assert client.get(page.links["next"]["url"]).json() == found[2:]


def test_a_cancel_counts_children_and_is_final(served: Running, client: httpx.Client) -> None:
    id = submit(client)
    Jobs(served.log).submit("part", parent=id)
    cancelled = {"id": id, "status": "cancelled"}
    assert client.post(f"/jobs/{id}/cancel").json() == {**cancelled, "children_cancelled": 1}
    assert client.post(f"/jobs/{id}/cancel").json() == cancelled
    assert [event.topic for event in served.log.read(f"job/{id}")][-1] == "job.cancelled"


def test_a_deleted_job_is_in_no_list_and_keeps_its_history(served: Running, client: httpx.Client) -> None:
    id = submit(client)
    with served.log.open(OpenJob, id) as job:
        job.start("w")
    refused = client.delete(f"/jobs/{id}")
    assert (refused.status_code, refused.json()["title"]) == (409, "MoveNotAllowed")
    with served.log.open(OpenJob, id) as job:
        job.fail("Broken")
    served.project()
    assert client.get("/admin/dlq/summary").json()["total"] == 1
    assert client.delete(f"/jobs/{id}").json() == {"deleted": id}
    served.project()
    assert (client.get("/jobs").json(), client.get("/admin/dlq/summary").json()["total"]) == ([], 0)
    for answer in (
        client.get(f"/jobs/{id}"),
        client.delete(f"/jobs/{id}"),
        client.post(f"/jobs/{id}/cancel"),
    ):
        assert answer.status_code == 404
    assert client.get(f"/jobs/{id}/events").json()[0]["event"] == "job.deleted"


def test_a_deleted_job_that_waited_is_cancelled(served: Running, client: httpx.Client) -> None:
    id = submit(client)
    client.delete(f"/jobs/{id}").raise_for_status()
    assert Jobs(served.log).status(id) == "cancelled"


def test_comments_are_oldest_first(client: httpx.Client) -> None:
    id = submit(client)
    made = [client.post(f"/jobs/{id}/comments", json={"body": f" {n} "}) for n in ("one", "two")]
    assert [one.status_code for one in made] == [201, 201]
    named = client.post(f"/jobs/{id}/comments", json={"body": "three", "author": "mina"}).json()
    found = client.get(f"/jobs/{id}/comments").json()
    assert found == [*(one.json() for one in made), named]
    assert [(one["author"], one["body"]) for one in found] == [
        ("the admin", "one"), ("the admin", "two"), ("mina", "three"),
    ]  # fmt: skip
    after = {"after": found[0]["id"], "limit": 1}
    assert client.get(f"/jobs/{id}/comments", params=after).json() == found[1:2]
    assert client.post(f"/jobs/{id}/comments", json={"body": " "}).status_code == 422


def test_what_is_not_there_is_404(client: httpx.Client) -> None:
    for path in ("", "/events", "/comments"):
        assert client.get(f"/jobs/{uuid4()}{path}").status_code == 404
    assert client.post(f"/jobs/{uuid4()}/cancel").status_code == 404
    assert client.get("/jobs/7").status_code == 422


def test_dead_letters_are_redriven_and_discarded_only_when_told(
    served: Running, client: httpx.Client
) -> None:
    ids = [Jobs(served.log).submit("count", {"n": n}) for n in range(2)]
    for id in ids:
        with served.log.open(OpenJob, id) as job:
            job.start("w")
            job.fail("Broken", "it broke")
    served.project()
    group = {"queue": "default", "operation": "count", "kind": "job", "count": 2}
    assert client.get("/admin/dlq/summary").json() == {"total": 2, "groups": [group]}
    assert client.get("/admin/dlq/summary", params={"operation": "x"}).json() == {"total": 0, "groups": []}
    looked = client.post("/admin/dlq/replay", json={}).json()
    assert looked == {"dry_run": True, "matched": 2, "done": 0, "refused": []}
    done = client.post("/admin/dlq/replay", json={"dry_run": False, "max_messages": 1}).json()
    assert done == {"dry_run": False, "matched": 1, "done": 1, "refused": []}
    served.project()
    assert client.post("/admin/dlq/purge", json={"dry_run": False}).json()["done"] == 1
    assert sorted(Jobs(served.log).status(id) for id in ids) == ["failed", "queued"]
    assert client.post("/admin/dlq/purge", json={"max_messages": 10_001}).status_code == 422


def test_health_is_for_everybody_and_ready_says_when_the_ledger_is_away(served: Running) -> None:
    with served.client(None) as nobody:
        for path in ("/health", "/healthz", "/health/ready", "/readyz"):
            assert nobody.get(path).status_code == 200
