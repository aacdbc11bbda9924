"""Streams, the log, views, projects and machines over HTTP."""

from __future__ import annotations

import threading

import httpx
import pytest

from gateway.http.problems import STATUSES
from ledger.errors import LedgerError
from tests.gateway.http.conftest import Running, fill
from tests.gateway.timed import Loan
from tests.lamp import LampRead


@pytest.fixture
def job(served: Running) -> str:
    """A ledger with something of everything; the id of a job."""
    return fill(served.log)


def test_streams_their_states_and_histories(served: Running, client: httpx.Client, job: str) -> None:
    page = client.get("/streams", params={"prefix": "job/", "limit": 2})
    rest = client.get(page.links["next"]["url"]).json()
    names = [one["stream"] for one in (*page.json(), *rest)]
    assert (names, len(names)) == (sorted(names), 3)
    now = client.get(f"/streams/job/{job}")
    assert (now.headers["etag"], now.json()["version"], now.json()["as_of"]) == ('"2"', 2, None)
    assert now.json()["state"]["comments"] == 1
    then = client.get(f"/streams/job/{job}", params={"version": 1})
    assert (then.headers["etag"], then.json()["state"]["comments"]) == ('"1"', 0)
    assert then.json()["last_event"]["topic"] == "job.created"
    at = {"position": then.json()["last_event"]["position"]}
    assert client.get(f"/streams/job/{job}", params=at).json()["version"] == 1
    assert client.get(f"/streams/job/{job}", params={"at": "now"}).json()["version"] == 2
    assert client.get(f"/streams/job/{job}", headers={"If-None-Match": '"2"'}).status_code == 304
    history = client.get(f"/history/job/{job}").json()
    assert [(one["version"], one["topic"]) for one in history] == [(1, "job.created"), (2, "job.commented")]
    assert [one["version"] for one in client.get(f"/history/job/{job}", params=at).json()] == [1]
    for path, status in (("streams/job/x", 404), ("history/no/such", 404), ("streams/job", 422)):
        assert client.get(f"/{path}").status_code in (status, 404)
    for wrong in ({"version": 9}, {"position": 0}):
        assert client.get(f"/streams/job/{job}", params=wrong).status_code == 404
    assert client.get(f"/streams/job/{job}", params={"version": 1, "position": 1}).status_code == 422


def test_the_log_is_read_in_pages_without_a_skip(served: Running, client: httpx.Client, job: str) -> None:
    found: list[int] = []
    answer = client.get("/log", params={"limit": 4})
    while True:
        found += [one["position"] for one in answer.json()]
        if "next" not in answer.links:
            break
        answer = client.get(answer.links["next"]["url"])
    assert found == [event.position for event in served.log.log(0, served.log.bound())]


def test_views_their_rows_and_progress(served: Running, client: httpx.Client, job: str) -> None:
    assert {one["view"]: one["state"] for one in client.get("/views").json()}["jobs"] in ("live", "stopped")
    where = {"where": ["category=job", "status=queued"]}
    rows = client.get("/views/in_state/rows", params={**where, "limit": 2})
    assert [one["status"] for one in rows.json()] == ["queued"] * 2
    assert len(client.get(rows.links["next"]["url"]).json()) == 1
    strips = client.get("/progress", params={"category": "lsm.strip"}).json()
    assert [(one["parent"], one["done"]) for one in strips] == [("lsm.channel/mouse/1/1", 1)]
    for path, params, status in (
        ("views/nothing/rows", {}, 404), ("views/jobs/rows", {"table": "x"}, 422),
        ("views/jobs/rows", {"where": "x=1"}, 422), ("views/jobs/rows", {"where": "x"}, 422),
        ("views/progress/rows", {"table": "progress_units"}, 422),
    ):  # fmt: skip
        assert client.get(f"/{path}", params=params).status_code == status, path
    states = client.get("/states", params={"category": "job"})
    assert ([one["status"] for one in states.json()], int(states.headers["as-of"]) > 0) == (
        ["queued"] * 3,
        True,
    )


def test_a_view_that_was_never_made_is_503_with_the_remedy(client: httpx.Client) -> None:
    for path in ("/jobs", "/admin/dlq/summary", "/views/in_state/rows"):
        answer = client.get(path)
        assert (answer.status_code, "pledger" in answer.json()["detail"]) == (503, True)
        assert answer.headers["retry-after"] == "1"


def test_projects_and_their_items(client: httpx.Client, job: str) -> None:
    whole = client.get("/projects/lsm/mouse").json()
    strip = client.get("/projects/lsm/mouse", params={"item": "1/1/1"}).json()
    assert whole["slices"]["1"]["channels"]["1"]["strips"]["1"] == strip
    assert strip["processing_state"] == "completed"
    assert client.get("/projects/lsm/mouse", params={"position": 1}).status_code == 404
    for path, item, status in (
        ("lsm/rat", "", 404),
        ("lsm/mouse", "2", 404),
        ("lsm/mouse", "1/x", 422),
        ("x/y", "", 404),
    ):
        assert client.get(f"/projects/{path}", params={"item": item}).status_code == status


def test_a_machine_is_shown_and_moved(served: Running, client: httpx.Client, job: str) -> None:
    (listed,) = client.get("/machines").json()
    assert (listed["machine"], listed["objects"]) == ("timed_loan", 1)
    shown = client.get("/machines/timed_loan").json()
    assert {"from": "shelf", "to": "lent"} in shown["transitions"]
    (book,) = client.get("/machines/timed_loan/objects", params={"state": "lent"}).json()
    assert (book["key"], book["version"]) == (["book"], 1)
    path = "/machines/timed_loan/objects/pen"
    fresh = client.get(path)
    assert (fresh.json()["state"], fresh.json()["allowed"], fresh.headers["etag"]) == (
        "shelf",
        ["lent"],
        '"0"',
    )
    move = {"to": "lent", "metadata": {"who": "mina"}}
    moved = client.post(path, json=move, headers={"If-Match": fresh.headers["etag"]})
    assert (moved.status_code, moved.headers["etag"], moved.json()["metadata"]) == (
        200,
        '"1"',
        {"who": "mina"},
    )
    assert served.log.read("timed_loan/pen")[0].meta.actor == "the admin"
    assert client.get(path, headers={"If-None-Match": moved.headers["etag"]}).status_code == 304
    assert client.get("/machines/nothing").status_code == 404
    assert client.post("/machines/nothing/objects/x", json=move, headers={"If-Match": "*"}).status_code == 404


@pytest.mark.parametrize(
    ("headers", "to", "status"),
    [
        ({}, "overdue", 428), ({"If-Match": '"7"'}, "overdue", 412), ({"If-Match": 'W/"1"'}, "overdue", 412),
        ({"If-Match": "1"}, "overdue", 412), ({"If-Match": '"1"'}, "shelf", 409),
        ({"If-Match": "*"}, "x", 422),
        ({"If-Match": "*"}, "overdue", 200),
    ],
)  # fmt: skip
def test_a_move_needs_the_version_that_it_rests_on(
    headers: dict[str, str], to: str, status: int, served: Running, client: httpx.Client
) -> None:
    Loan(served.log, "book").move("lent")
    answer = client.post("/machines/timed_loan/objects/book", json={"to": to}, headers=headers)
    assert answer.status_code == status, answer.text
    assert len(served.log.read("timed_loan/book")) == (2 if status == 200 else 1)


def test_of_clients_that_decide_on_one_version_one_moves(served: Running) -> None:
    statuses: list[int] = []
    begin = threading.Barrier(8)

    def decide(nth: int) -> None:
        with served.client() as client:
            begin.wait()
            answer = client.post(
                "/machines/timed_loan/objects/book", json={"to": "lent"}, headers={"If-Match": '"0"'}
            )
            statuses.append(answer.status_code)

    threads = [threading.Thread(target=decide, args=(nth,)) for nth in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200] + [412] * 7
    assert len(served.log.read("timed_loan/book")) == 1


def test_a_move_with_an_idempotency_key_is_recorded_once(served: Running, client: httpx.Client) -> None:
    headers = {"If-Match": '"0"', "Idempotency-Key": "lend the book"}
    answers = [
        client.post("/machines/timed_loan/objects/book", json={"to": "lent"}, headers=headers) for _ in "ab"
    ]
    assert [one.status_code for one in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()
    assert len(served.log.read("timed_loan/book")) == 1


def test_metrics_are_the_house_s(client: httpx.Client, job: str) -> None:
    text = client.get("/metrics").text
    assert 'pledger_view_position{schema="ledger",view="jobs"}' in text


def test_numbers_of_any_size_and_names_of_any_letters_are_shown(
    served: Running, client: httpx.Client
) -> None:
    served.log.append("lamp/é %2F", LampRead(value=2**53 + 1))
    (one,) = client.get("/streams").json()
    shown = client.get(f"/history/{one['stream'].replace('%', '%25')}")
    assert shown.json()[0]["data"]["value"] == 2**53 + 1


def every_error(kind: type[LedgerError] = LedgerError) -> list[type[LedgerError]]:
    return [kind, *(found for sub in kind.__subclasses__() for found in every_error(sub))]


def test_every_error_has_a_status() -> None:
    for kind in every_error():
        status = next(STATUSES[one] for one in kind.__mro__ if one in STATUSES)
        assert 400 <= status < 600
    assert [kind.__name__ for kind in STATUSES if not issubclass(kind, LedgerError)] == []


def test_a_ledger_that_is_away_is_503_and_comes_back(
    served: Running, client: httpx.Client, admin_dsn: str, database: str
) -> None:
    import psycopg

    with psycopg.connect(admin_dsn.replace(database, "postgres"), autocommit=True) as admin:
        admin.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS false")  # type: ignore[call-overload]
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [database])
        assert client.get("/healthz").status_code == 200
        assert client.get("/readyz").status_code == 503
        admin.execute(f"ALTER DATABASE {database} ALLOW_CONNECTIONS true")  # type: ignore[call-overload]
    assert client.get("/readyz").status_code == 200
