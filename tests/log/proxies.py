"""Proxies for tests: one that only makes up process ids, and a real PgBouncer where it is installed."""

from __future__ import annotations

import re
import select
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ledger.embedded.account import account_for
from tests.log.scopes import eventually
from tests.temporary import short_folder


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


PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


@contextmanager
def bouncers(dsn: str) -> Iterator[Callable[[str], str]]:
    """Starts a real PgBouncer with a way of pooling; gives its DSN."""
    if PROGRAM is None:
        pytest.skip("pgbouncer is not installed; the relay stands for it")
    folder = short_folder("bouncer")
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
        started.append(subprocess.Popen([PROGRAM, str(folder / "bouncer.ini")], **ways))
        proxied = make_conninfo(f"host=127.0.0.1 port={port} dbname=proxied user=x sslmode=disable")
        eventually(lambda: pq.PGconn.ping(proxied.encode()) == pq.Ping.OK)
        return proxied

    yield start
    for process in started:
        process.terminate()
        process.wait(30)
    shutil.rmtree(folder)
