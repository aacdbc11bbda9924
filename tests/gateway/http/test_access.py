"""Who may call what: every route names a role, and every request proves one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import APIRouter

from gateway.http.app import ROUTERS, Settings, make_app
from gateway.http.reference import _of, declared
from gateway.http.runs.services import PrefectSettings
from ledger import BadName, Ledger, TokenExists, TokenNotFound
from ledger.tokens import PREFIX, Role, Tokens
from tests.gateway.conftest import Ended, eventually
from tests.gateway.http.conftest import Running, running
from tests.runs.raw_socket import RawSocket

PAGES = {"/openapi.json", "/docs", "/docs/oauth2-redirect", "/docs-files"}
"""What the framework adds: the description of the routes, for everybody."""
OPEN = {"/health", "/healthz", "/health/ready", "/readyz"}
UUID = "0b6f1c1e-6a0e-4d0b-9a55-3f2f7a1c9e10"
FILLED = {
    "id": UUID,
    "stream": "a/b",
    "view": "jobs",
    "pipeline": "lsm",
    "project": "p",
    "machine": "m",
    "key": "k",
}


TABLE = declared()


def test_every_route_is_in_the_table_and_changes_need_more_than_a_reader() -> None:
    described = make_app().openapi()["paths"]
    assert {(method.upper(), path) for path, ways in described.items() for method in ways} == {
        (one.method, one.path) for one in TABLE
    }
    ours = [one for router in ROUTERS for one in router.routes]
    others = {getattr(one, "path", one) for one in make_app().routes if one not in ours}
    assert others == PAGES, "every other route belongs to a router, so that the table has it"
    assert {one.path for one in TABLE if one.role is None} == OPEN
    for one in TABLE:
        assert one.method == "GET" or one.role in (Role.OPERATOR, Role.ADMIN), one


def test_a_route_without_a_role_is_caught() -> None:
    router = APIRouter()
    router.get("/x")(lambda: None)
    with pytest.raises(TypeError, match="must have one of OPEN"):
        [*_of(router.routes[0])]


@pytest.fixture(scope="module")
def server(postgres: Any, template: str) -> Iterator[Running]:
    """One server for all tests here that change nothing."""
    import psycopg

    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE of_access TEMPLATE {template}")  # type: ignore[call-overload]
    with running(postgres.dsn("of_access")) as one:
        yield one
    with psycopg.connect(postgres.admin_dsn(), autocommit=True) as admin:
        admin.execute("DROP DATABASE of_access WITH (FORCE)")


def test_each_route_refuses_smaller_roles_wrong_tokens_and_nobody(server: Running) -> None:
    clients = {role: server.client(role) for role in (None, *Role)}
    for method, path, needed, _ in TABLE:
        if path == "/log/stream":
            continue  # it does not end; its dependency is the router's, as that of /log
        for role, client in clients.items():
            status = client.request(method, path.format(**FILLED)).status_code
            if needed is not None and role is None:
                assert status == 401, (method, path)
            elif needed is not None and role is not None and not role.covers(needed):
                assert status == 403, (method, path, role)
            else:
                assert status not in (401, 403), (method, path, role, status)
    for client in clients.values():
        client.close()


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer wrong", "Basic eDp5", f"bearer {PREFIX}x", "x" * 9000],
)
def test_a_wrong_token_is_401_with_a_challenge(header: str, server: Running) -> None:
    answer = httpx.get(f"{server.url}/jobs", headers={"Authorization": header.encode("latin-1")})
    assert answer.status_code in (400, 401)  # 400: the header itself is none
    if answer.status_code == 401:
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.json()["title"] == "Unauthorized"


def test_a_revoked_token_is_refused_after_seconds(served: Running) -> None:
    with served.client(Role.READER) as client:
        assert client.get("/streams").status_code == 200
        Tokens(served.log).revoke("the reader")
        eventually(lambda: client.get("/streams").status_code == 401)


def test_without_tokens_only_pages_of_allowed_origins_may_call(dsn: str) -> None:
    origins, prefect = ["http://front.example"], PrefectSettings(services=False)
    settings = Settings(Role.OPERATOR, {"127.0.0.1", "localhost"}, origins, prefect)
    with running(dsn, settings) as server, server.client(None) as nobody:
        assert nobody.get("/streams").status_code == 200
        assert nobody.post("/admin/dlq/purge", json={}).status_code == 403
        for origin, status in (
            ("http://front.example", 200),
            (server.url, 200),
            ("http://evil.example", 403),
        ):
            assert nobody.get("/streams", headers={"Origin": origin}).status_code == status
        rebound = nobody.get("/streams", headers={"Host": "evil.example"})
        assert (rebound.status_code, rebound.json()["title"]) == (403, "ForeignPage")
        allowed = nobody.options(
            "/jobs", headers={"Origin": "http://front.example", "Access-Control-Request-Method": "POST"}
        )
        assert allowed.headers["access-control-allow-origin"] == "http://front.example"
        for origin, status in ((server.url, 101), ("http://evil.example", 403)):
            page = RawSocket(server.url, "/api/events/in", Origin=origin)
            assert page.status == status, "a page could send events through a socket"
            page.socket.close()


# Tokens


def test_only_a_hash_of_a_token_is_stored_and_its_name_is_used_once(log: Ledger, connection: Any) -> None:
    tokens = Tokens(log)
    secret, made = tokens.add("night shift", Role.OPERATOR)
    assert secret.startswith(PREFIX)
    assert (made.name, made.role, made.added_by, made.revoked_at) == (
        "night shift",
        "operator",
        "tester",
        None,
    )
    assert tokens.valid(secret) == made
    ((stored,),) = connection.execute("SELECT t::text FROM ledger.tokens t").fetchall()
    assert secret.removeprefix(PREFIX) not in stored
    revoked = tokens.revoke("night shift")
    assert revoked.revoked_at is not None
    assert tokens.revoke("night shift") == revoked
    assert (tokens.valid(secret), tokens.all()) == (None, [revoked])
    with pytest.raises(TokenExists):
        tokens.add("night shift", Role.READER)
    with pytest.raises(TokenNotFound):
        tokens.revoke("day shift")
    for name in ("", " x", "a" * 64, "a\nb"):
        with pytest.raises(BadName):
            tokens.add(name, Role.READER)


def test_tokens_from_the_command_line(pledger: Any) -> None:
    added: Ended = pledger("token", "add", "dashboard", "--json")
    (made,) = added.objects
    assert (added.code, made["role"], made["revoked_at"]) == (0, "reader", None)
    assert pledger("token", "add", "dashboard").code == 5
    assert pledger("token", "add", "x", "--role", "king").code == 2
    assert [row[:2] for row in pledger("token", "list").rows] == [["dashboard", "reader"]]
    assert pledger("token", "revoke", "dashboard").code == 0
    assert pledger("token", "revoke", "other").code == 3
    (listed,) = pledger("token", "list", "--json").objects
    assert listed["revoked_at"] is not None
    assert made["token"] not in str(listed)


def test_wrong_options_of_serve(pledger: Any) -> None:
    assert pledger("serve", "--without-token", "king").code == 2
    far = pledger("serve", "--host", "0.0.0.0", "--without-token", "reader")
    assert (far.code, "loopback" in far.err) == (2, True)


def test_a_stop_before_the_first_request_ends_the_server(dsn: str) -> None:
    before = threading.active_count()
    with running(dsn):
        pass
    eventually(lambda: threading.active_count() <= before + 2)
