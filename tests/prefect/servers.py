"""The two servers that are compared, each on a database of the session's PostgreSQL."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from ledger.embedded import Embedded, throwaway
from tests.docs.pages import ROOT
from tests.prefect.clients import end_group, python_of, told

_numbers = count(1)
STARTING = 240.0
"""Seconds until a server must answer; Prefect's own makes its tables first."""
OFTEN = {
    f"PREFECT_SERVER_SERVICES_{service}_LOOP_SECONDS": "1"
    for service in ("SCHEDULER", "SCHEDULER_RECENT_DEPLOYMENTS", "PAUSE_EXPIRATIONS", "CANCELLATION_CLEANUP")
}
"""Prefect's services look every second, so that no scenario waits for them."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs: the URL of its API, and its process, which may have children."""

    url: str
    pid: int


@contextlib.contextmanager
def postgres_for_prefect(*, durable: bool = False) -> Iterator[Embedded]:
    """A throw-away PostgreSQL with pg_trgm, which Prefect's own server needs and wheels do not have.

    Raises LookupError where no PostgreSQL of this machine has it.
    """
    known = os.environ.get("LEDGER_PG_BIN")
    places = [
        known,
        *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True),
        shutil.which("postgres"),
    ]
    try:
        for place in filter(None, places):
            os.environ["LEDGER_PG_BIN"] = place if Path(place).is_dir() else str(Path(place).parent)
            with throwaway(durable=durable) as server, psycopg.connect(server.dsn("postgres")) as connection:
                have = "SELECT FROM pg_available_extensions WHERE name = 'pg_trgm'"
                if connection.execute(have).fetchone() is not None:
                    connection.close()
                    yield server
                    return
    finally:
        os.environ.pop("LEDGER_PG_BIN", None)
        os.environ.update({"LEDGER_PG_BIN": known} if known else {})
    raise LookupError("no PostgreSQL here has pg_trgm (on Debian: apt install postgresql-contrib)")


@contextlib.contextmanager
def database(postgres: Embedded, template: str | None = None) -> Iterator[str]:
    """A new database, empty or with an installed ledger: the DSN of its owner."""
    name = f"prefect_{os.getpid()}_{next(_numbers)}"
    copied = f" TEMPLATE {template}" if template else ""
    with psycopg.connect(postgres.dsn("postgres"), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}{copied}")  # type: ignore[call-overload]
    try:
        yield postgres.dsn(name)
    finally:
        with psycopg.connect(postgres.admin_dsn(), autocommit=True) as admin:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")  # type: ignore[call-overload]


@contextlib.contextmanager
def ours(dsn: str, folder: Path, *options: str) -> Iterator[Server]:
    """`pledger serve --prefect` on a ledger."""
    command = [sys.executable, "-m", "gateway.cli.entry", "--dsn", dsn, "serve", "--prefect", "--port", "0"]
    folder.mkdir(parents=True, exist_ok=True)
    keys = {"LEDGER_BLOCK_KEYS_FILE": str(folder / "block-keys")}
    environment = dict(os.environ) | {"PYTHONPATH": str(ROOT)} | keys
    with (folder / "server.log").open("ab") as log:
        server = subprocess.Popen(
            [*command, "--without-token", "operator", "--json", *options], cwd=ROOT, env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            assert server.stdout is not None
            first = server.stdout.readline()
            assert first, f"the server ended:\n{(folder / 'server.log').read_text()[-3000:]}"
            yield Server(json.loads(first)["url"] + "/api", server.pid)
        finally:
            _end(server)
            if server.stdout is not None:
                server.stdout.close()


@contextlib.contextmanager
def own(version: str, database: str, folder: Path) -> Iterator[Server]:
    """Prefect's own server of a version on an empty database: a DSN of PostgreSQL, or its URL."""
    port = _free_port()
    url = f"http://127.0.0.1:{port}/api"
    way = database if "://" in database else asyncpg_url(database)
    settings = told(folder, url) | OFTEN | {"PREFECT_SERVER_DATABASE_CONNECTION_URL": way}
    folder.mkdir(parents=True, exist_ok=True)
    command = [python_of(version), "-m", "prefect", "server", "start", "--no-ui", "--host", "127.0.0.1"]
    with (folder / "server.log").open("ab") as log:
        server = subprocess.Popen(
            [*command, "--port", str(port)], cwd=folder, env=settings, stdin=subprocess.DEVNULL, stdout=log,
            stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            _wait(server, url, folder / "server.log")
            yield Server(url, server.pid)
        finally:
            _end(server)


def asyncpg_url(dsn: str) -> str:
    """The DSN as the database library of Prefect's server reads it."""
    way = {name: str(value) for name, value in conninfo_to_dict(dsn).items()}
    return (
        f"postgresql+asyncpg://{quote(way['user'])}:{quote(way['password'])}@/{way['dbname']}"
        f"?host={quote(way['host'], safe='/')}&port={way['port']}"
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Until it answers; a server of somebody else's can only be asked again and again."""
    deadline = time.monotonic() + STARTING
    while True:
        try:
            urllib.request.urlopen(f"{url}/health", timeout=5).close()
            return
        except OSError:
            said = log.read_text(errors="replace")[-3000:]
            assert server.poll() is None, f"the server ended:\n{said}"
            assert time.monotonic() < deadline, f"the server does not answer:\n{said}"
        time.sleep(0.1)


def _end(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(20)
    end_group(server.pid)
    server.wait()
