"""Ways to the locks: their keys, the roles that may take them, LEDGER_LOCK_DSN, and proxies."""

from __future__ import annotations

import re
import select
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import ledger
from ledger import AdvisoryLocks, Ledger, LockTimeout, ServerUnavailable
from ledger.store import reading
from ledger.store.embedded.account import account_for
from ledger.store.locks import key_of
from tests.lamp import LampRead
from tests.store.scopes import (
    PROJECT,
    STRIP,
    Connection,
    elsewhere,
    eventually,
    held_by_scopes,
    is_free,
    sessions,
    waits,
)

pytestmark = pytest.mark.usefixtures("no_locks_left")


# Keys


def test_keys_are_never_those_of_marks_or_commands(log: Ledger, connection: Connection) -> None:
    keys = {key_of(log.identity.ledger, f"lsm.strip/p/1/1/{number}") for number in range(20_000)}
    parts = [tuple(map(int, key.split(b","))) for key in keys]
    assert len(keys) == 20_000
    assert all(-(2**31) <= high < 0 and -(2**31) <= low < 2**31 for high, low in parts)
    assert log.identity.lock_class >= 0


def test_an_open_scope_is_no_open_append(log: Ledger, connection: Connection) -> None:
    with log.locks.exclusive(STRIP, timeout_seconds=None):
        assert held_by_scopes(connection) == 4
        assert reading.query(connection, "ledger", "open_appends") == []
        last = log.append("lamp/a", LampRead()).last_position
        assert log.bound() == last


# Roles


def test_the_readers_role_is_enough_for_locks(
    only: Callable[[str], str], locks: AdvisoryLocks, connection: Connection
) -> None:
    with ledger.connect(only("ledger_reader"), actor="reader") as log:
        with log.locks.shared(STRIP, timeout_seconds=5):
            with pytest.raises(LockTimeout, match="by reader"), locks.exclusive(STRIP, timeout_seconds=0):
                pass
        with elsewhere(locks.exclusive(STRIP, timeout_seconds=5)):
            with pytest.raises(LockTimeout, match="by tester"), log.locks.shared(STRIP, timeout_seconds=0):
                pass


# Another way to the server


def test_a_way_to_another_ledger_is_refused(
    log: Ledger, dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEDGER_LOCK_DSN", make_conninfo(dsn, application_name="ours"))
    with log.locks.exclusive(STRIP, timeout_seconds=5):
        eventually(lambda: len(sessions(connection)) == 1)
    other = AdvisoryLocks(dsn, "ledger", type(log.identity.ledger)(int=7), actor="tester", patience=5)
    with pytest.raises(ServerUnavailable, match="LEDGER_LOCK_DSN leads to another ledger"):
        with other.exclusive(STRIP, timeout_seconds=None):
            pass
    eventually(lambda: len(sessions(connection)) == 1)


# Proxies


class Relay:
    """Stands between libpq and the server as a pooling proxy does, which makes up the pid that libpq is told.

    It does no more than that: it pools nothing. The real proxy below is run where it is installed.
    """

    def __init__(self, dsn: str) -> None:
        server = conninfo_to_dict(dsn)
        self.behind = f"{server['host']}/.s.PGSQL.{server['port']}"
        self.listener = socket.create_server(("127.0.0.1", 0))
        ways = {"host": "127.0.0.1", "hostaddr": "127.0.0.1", "port": self.listener.getsockname()[1]}
        self.dsn = make_conninfo(dsn, **ways, sslmode="disable", gssencmode="disable")
        self.threads = [threading.Thread(target=self._accept, daemon=True)]
        self.threads[0].start()

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join(30)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                self.threads.append(threading.Thread(target=self._serve, args=(client,), daemon=True))
                self.threads[-1].start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server, suppress(OSError):
            server.connect(self.behind)
            while True:
                for source in select.select([client, server], [], [])[0]:
                    data = source.recv(65536)
                    if not data:
                        return
                    (server if source is client else client).sendall(
                        KEY_DATA.sub(b"\\1\x00\x00\x00\x07", data)
                    )


KEY_DATA = re.compile(rb"(K\x00\x00\x00[\x0c-\xff])....", re.DOTALL)
"""BackendKeyData: how long it is, and the pid, which other messages do not look like here."""


@pytest.fixture
def relay(dsn: str) -> Iterator[Relay]:
    relay = Relay(dsn)
    yield relay
    relay.close()


def test_a_proxy_is_refused_unless_it_is_named_for_locks(
    relay: Relay, dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ledger.connect(relay.dsn) as log:
        last = log.append("lamp/a", LampRead()).last_position
        assert log.bound() == last
        with pytest.raises(
            ServerUnavailable, match=r"goes through a proxy.*set LEDGER_LOCK_DSN to the server"
        ):
            with log.locks.exclusive(STRIP, timeout_seconds=None):
                pass
        eventually(lambda: sessions(connection) == [])
        for way in (dsn, relay.dsn):
            monkeypatch.setenv("LEDGER_LOCK_DSN", way)
            with log.locks.exclusive(STRIP, timeout_seconds=None):
                assert held_by_scopes(connection) == 4
            log.locks.close()


@pytest.fixture
def bouncer(dsn: str, tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Starts a real PgBouncer with a way of pooling; gives its DSN."""
    program = shutil.which("pgbouncer")
    if program is None:
        pytest.skip("pgbouncer is not installed; the relay above stands for it")
    folder = Path(tempfile.mkdtemp(prefix="ledger-bouncer-", dir="/tmp"))
    started: list[subprocess.Popen[bytes]] = []

    def start(pooling: str) -> str:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        server = conninfo_to_dict(dsn)
        way = {name: server[name] for name in ("host", "port", "user", "password", "dbname")}
        (folder / "bouncer.ini").write_text(
            f"[databases]\nproxied = {make_conninfo('', **way)}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = any\npool_mode = {pooling}\nignore_startup_parameters = extra_float_digits\n"
        )
        account = account_for(Path(str(server["host"])))
        for path in (folder, folder / "bouncer.ini"):
            account.give(path)
        ways = account.process() | {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        started.append(subprocess.Popen([program, str(folder / "bouncer.ini")], **ways))
        proxied = make_conninfo(f"host=127.0.0.1 port={port} dbname=proxied user=x sslmode=disable")
        eventually(lambda: pq.PGconn.ping(proxied.encode()) == pq.Ping.OK)
        return proxied

    yield start
    for process in started:
        process.terminate()
        process.wait(30)
    shutil.rmtree(folder)


def test_pgbouncer_by_transaction_is_refused(
    bouncer: Callable[[str], str], log: Ledger, connection: Connection
) -> None:
    proxied = bouncer("transaction")
    locks = AdvisoryLocks(proxied, "ledger", log.identity.ledger, actor="tester", patience=5)
    for _ in range(2):
        with pytest.raises(ServerUnavailable, match="goes through a proxy"):
            with locks.exclusive(STRIP, timeout_seconds=None):
                pass
    locks.close()
    with psycopg.connect(proxied, autocommit=True) as other:  # nothing of us is left in the proxy's sessions
        assert other.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
        assert other.execute("SHOW client_connection_check_interval").fetchone() == ("0",)


def test_pgbouncer_by_session_is_fit_for_locks(
    bouncer: Callable[[str], str], log: Ledger, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEDGER_LOCK_DSN", bouncer("session"))
    with log.locks.exclusive(STRIP, timeout_seconds=None) as held:
        assert not is_free(log.locks.exclusive(PROJECT, timeout_seconds=0))
        waits(connection, log.locks.exclusive(STRIP, timeout_seconds=30))
        assert not held.lost
    log.locks.close()
