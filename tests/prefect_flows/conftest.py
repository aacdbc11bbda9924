"""A real Prefect server on this machine, in a folder of its own; the block that leads to a test's ledger."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from psycopg.conninfo import conninfo_to_dict

from consumers.prefect_flows import PrefectLocks

ROOT = Path(__file__).parents[2]
STARTING = 180.0
"""Seconds until the server must answer; with a new folder it takes about 20 on two cores."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def settings(home: Path, port: int) -> dict[str, str]:
    """What the server and its clients are told: this folder and port, and nothing goes out."""
    return {
        "PREFECT_HOME": str(home), "PREFECT_PROFILES_PATH": str(home / "profiles.toml"),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false", "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1", "PREFECT_SERVER_SERVICES_REPOSSESSOR_LOOP_SECONDS": "1",
        "PREFECT_LOGGING_LEVEL": "WARNING", "PREFECT_LOGGING_TO_API_ENABLED": "false",
    }  # fmt: skip


def wait_for(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + STARTING
    while True:
        try:
            urllib.request.urlopen(f"{url}/health", timeout=5).close()
            return
        except (OSError, urllib.error.URLError):
            assert server.poll() is None, f"the server ended:\n{log.read_text()[-3000:]}"
            assert time.monotonic() < deadline, f"the server does not answer:\n{log.read_text()[-3000:]}"
        time.sleep(0.2)


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Prefect's settings, in the environment of this process before it imports Prefect."""
    if importlib.util.find_spec("prefect_sqlalchemy") is None:
        pytest.skip("Prefect is not installed: it comes with the extra [prefect]")
    found = settings(tmp_path_factory.mktemp("prefect"), free_port())
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("PREFECT")]:
            patch.delenv(name)
        for name, value in found.items():
            patch.setenv(name, value)
        yield found


@pytest.fixture(scope="session")
def environment(told: dict[str, str]) -> Iterator[dict[str, str]]:
    """The environment for processes of these tests, with a server that answers."""
    home, url = Path(told["PREFECT_HOME"]), told["PREFECT_API_URL"]
    port = url.removesuffix("/api").rpartition(":")[2]
    command = [sys.executable, "-m", "prefect", "server", "start", "--no-ui", "--host", "127.0.0.1"]
    ours = dict(os.environ) | {"PYTHONPATH": str(ROOT)}
    with (home / "server.log").open("wb") as log:
        server = subprocess.Popen([*command, "--port", port], env=ours, stdout=log, stderr=log, cwd=home)
        try:
            wait_for(server, url, home / "server.log")
            yield ours
        finally:
            server.terminate()
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


@pytest.fixture(scope="session")
def flows(environment: dict[str, str]) -> ModuleType:
    """The flows of these tests; Prefect is imported here first, when it has been told where to look."""
    return importlib.import_module("tests.prefect_flows.flows")


@pytest.fixture
def tidy() -> Iterator[None]:
    """What a flow leaves to the garbage collector (Prefect does not close all of its sockets) ends here."""
    yield
    gc.collect()


@pytest.fixture
def block(flows: ModuleType, dsn: str) -> str:
    """The block `opticstream-db` leads to this test's database."""
    from prefect_sqlalchemy import ConnectionComponents, SqlAlchemyConnector, SyncDriver

    way = {name: str(value) for name, value in conninfo_to_dict(dsn).items()}
    parts = ConnectionComponents(
        driver=SyncDriver.POSTGRESQL_PSYCOPG2,
        username=way["user"],
        password=way["password"],
        database=way["dbname"],
        query={"host": way["host"], "port": way["port"]},
    )
    SqlAlchemyConnector(connection_info=parts).save("opticstream-db", overwrite=True)
    return way["password"]


@pytest.fixture
def locks(flows: ModuleType) -> PrefectLocks:
    """The lock of project p, which exists."""
    locks = PrefectLocks("lsm")
    locks.ensure_lock("p")
    return locks
