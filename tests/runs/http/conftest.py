"""One server with the Prefect-compatible API for all tests here; each looks only at objects of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator

import httpx
import psycopg
import pytest

from gateway.http.app import Settings
from gateway.http.runs.services import PrefectSettings
from ledger.embedded import Embedded
from tests.gateway.http.conftest import Running, running


@pytest.fixture(scope="session")
def prefect(postgres: Embedded, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server as `pledger serve --prefect --no-services` runs it."""
    name = f"of_prefect_{os.getpid()}"
    with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}")  # type: ignore[call-overload]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LEDGER_BLOCK_KEYS_FILE", str(tmp_path_factory.mktemp("keys") / "keys"))
        with running(postgres.dsn(name), Settings(prefect=PrefectSettings(services=False))) as server:
            yield server
    with psycopg.connect(postgres.admin_dsn(), autocommit=True) as admin:
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")  # type: ignore[call-overload]


@pytest.fixture
def api(prefect: Running) -> Iterator[httpx.Client]:
    """A client of the API, as Prefect's is."""
    with prefect.client() as client:
        client.base_url = httpx.URL(f"{prefect.url}/api")
        client.headers["User-Agent"] = "prefect/3.8.8 (API 0.8.4)"
        yield client
