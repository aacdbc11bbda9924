"""Homes for embedded servers, and client processes that can be killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import psycopg
import pytest
from psycopg import sql

import ledger
from ledger import Ledger
from ledger.embedded import Embedded, throwaway
from ledger.log.install import init
from tests.faults.backup import OLD, Backup, append
from tests.temporary import short_folder

if TYPE_CHECKING:
    from tests.faults.crashes import Proxy

_numbers = count(1)
ROOT = Path(__file__).parents[2]
CHILD_PATH = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
CLIENT = """
import sys
from pathlib import Path
from ledger.embedded import Embedded

server = Embedded(Path(sys.argv[1]), durable=False)
server.acquire(timeout=60)
print(server.postmaster_pid(), flush=True)
sys.stdin.read()
"""


def eventually(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for a condition, or fail."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def nothing_runs(home: Path) -> bool:
    """Neither a process of the server, nor initdb, nor a reaper."""
    for name in ("server.lock", "reaper.lock"):
        if (home / name).exists() and not is_free(home / name):
            return False
    lines = (" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"]))
    ours = [line for line in lines if str(home) in line]
    return not any(word in line for line in ours for word in ("postgres", "initdb", "reaper"))


def is_free(lock_file: Path) -> bool:
    with lock_file.open("r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


class Clients:
    """Processes that acquire a server and keep it until they end."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[str]] = []

    def start(self, home: Path, *interpreter: str) -> subprocess.Popen[str]:
        client = subprocess.Popen(
            [*(interpreter or [sys.executable]), "-c", CLIENT, str(home)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": CHILD_PATH},
        )
        self.started.append(client)
        return client

    def ready(self, client: subprocess.Popen[str]) -> int:
        """Wait until it has its server; the number of the postmaster."""
        assert client.stdout is not None
        return int(client.stdout.readline())

    def end(self) -> None:
        for client in self.started:
            client.kill()
            client.communicate()


@pytest.fixture(scope="module")
def durable() -> Iterator[Embedded]:
    """A server whose commits survive, to be killed."""
    with throwaway(durable=True) as server:
        yield server


@pytest.fixture
def hardy(durable: Embedded) -> Iterator[Ledger]:
    """A ledger in a new database on that server."""
    name = f"hardy_{next(_numbers)}"
    with psycopg.connect(durable.dsn(), autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    with psycopg.connect(durable.dsn(name), autocommit=True) as connection:
        init(connection)
    with ledger.connect(durable.dsn(name), actor="tester") as opened:
        yield opened


@pytest.fixture
def proxy(dsn: str, folder: Path) -> Iterator[Proxy]:
    """A proxy before the server of the tests, which can lose answers."""
    from tests.faults.crashes import between  # it imports this module

    with between(dsn, folder) as proxy:
        yield proxy


@pytest.fixture
def clients() -> Iterator[Clients]:
    ours = Clients()
    yield ours
    ours.end()


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that steers us or libpq, but for the binaries that a developer chose."""
    for name in os.environ:
        if (name.startswith(("PG", "LEDGER_")) and name != "LEDGER_PG_BIN") or name == "XDG_DATA_HOME":
            monkeypatch.delenv(name)


def open_folder() -> Path:
    """A folder that the server's user can reach even when we are root, which pytest's own is not."""
    folder = short_folder("folder")
    folder.chmod(0o711)
    return folder


def clear_folder(folder: Path) -> None:
    for conf in folder.rglob("server.conf"):
        server = Embedded(conf.parent)
        server.stop(immediate=True)
        shutil.rmtree(server.socket_folder, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def folder() -> Iterator[Path]:
    folder = open_folder()
    yield folder
    clear_folder(folder)


@pytest.fixture(scope="session")
def old_home() -> Iterator[Path]:
    folder = open_folder()
    yield folder / "home"
    clear_folder(folder)


@pytest.fixture
def server(old_home: Path) -> Iterator[Embedded]:
    """A server that is not started yet, in a home that many tests share: initdb takes its time."""
    server = Embedded(old_home, durable=False)
    yield server
    server.release()
    eventually(lambda: nothing_runs(old_home))


@pytest.fixture
def home(folder: Path) -> Path:
    return folder / "home"


@pytest.fixture
def backup(postgres: Embedded, database: str, log: Ledger) -> Iterator[Backup]:
    """The log with OLD events, kept for later."""
    append(log, OLD)
    saved = Backup(postgres, database)
    yield saved
    saved.drop()
