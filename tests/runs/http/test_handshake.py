"""The first requests of every Prefect client: versions, protections that are off, and who it is."""

from __future__ import annotations

from base64 import b64encode
from typing import Final
from uuid import UUID

import httpx
import pytest

from gateway.http.app import make_app
from ledger.tokens import Role
from tests.gateway.http.conftest import Running

CLIENT: Final = {"User-Agent": "prefect/3.8.8 (API 0.8.4)", "X-PREFECT-API-VERSION": "0.8.4"}


def test_a_client_is_told_its_own_version_and_others_the_newest(prefect: Running) -> None:
    with prefect.client(None) as nobody:
        assert nobody.get("/api/admin/version", headers=CLIENT).json() == "3.8.8"
        assert nobody.get("/api/admin/version").json() == "3.9.1"
        assert nobody.get("/api/health").json() is True
        assert nobody.get("/api/ready").json() == {"message": "OK"}


def test_protections_by_cookies_are_off(prefect: Running) -> None:
    with prefect.client(None) as nobody:
        answer = nobody.get("/api/csrf-token", params={"client": "x"})
        assert (answer.status_code, answer.json()) == (404, {"detail": "CSRF protection is disabled."})


def test_the_plain_server_has_no_route_of_prefect() -> None:
    assert [one for one in make_app().routes if getattr(one, "path", "").startswith("/api")] == []


@pytest.mark.parametrize(("role", "look", "make"), [(Role.READER, 200, 403), (Role.OPERATOR, 200, 201)])
@pytest.mark.parametrize("scheme", ["Basic", "Bearer"])
def test_a_token_is_the_password(prefect: Running, scheme: str, role: Role, look: int, make: int) -> None:
    login = f"laptop:{prefect.tokens[role]}"
    given = b64encode(login.encode()).decode() if scheme == "Basic" else prefect.tokens[role]
    with httpx.Client(base_url=prefect.url, headers={"Authorization": f"{scheme} {given}"}) as client:
        assert client.post("/api/flows/filter", json={}).status_code == look
        name = f"{scheme} {role}"
        assert client.post("/api/flows/", json={"name": name}).status_code == make


@pytest.mark.parametrize(
    "given", ["", "Basic", "Basic !", "Basic eDp5", "Basic /w==", "Bearer x", "Digest x"]
)
def test_who_has_no_valid_token_is_unauthorized(prefect: Running, given: str) -> None:
    with prefect.client(None) as nobody:
        headers = {"Authorization": given} if given else {}
        answer = nobody.post("/api/flows/filter", json={}, headers=headers)
        assert (answer.status_code, answer.json()) == (401, {"exception_message": "Unauthorized"})
        assert answer.headers["www-authenticate"].startswith("Basic")


def test_results_go_where_the_client_keeps_them_unless_a_block_is_set(api: httpx.Client) -> None:
    nowhere = {"default_result_storage_block_id": None}
    assert api.get("/admin/storage").json().items() >= nowhere.items()
    unknown = api.put("/admin/storage", json={"default_result_storage_block_id": str(UUID(int=1))})
    assert unknown.status_code == 404
    assert api.delete("/admin/storage").status_code == 204


def test_what_is_no_route_is_404_in_prefect_s_form(prefect: Running) -> None:
    with prefect.client() as client:
        assert client.get("/api/nothing").json() == {"detail": "Not Found"}
        assert client.get("/api/flow_runs/no-uuid").status_code == 404
        assert client.put("/api/health").status_code == 405
