"""Ways to hurt a server and a connection: kill -9 of everything, a log kept in memory, lost answers."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ledger.store.embedded import Embedded
from tests.faults.conftest import eventually

FLUSHERS = ("walwriter", "background writer", "checkpointer")


def processes(server: Embedded) -> list[psutil.Process]:
    """The postmaster and all its children."""
    pid = server.postmaster_pid()
    assert pid is not None
    postmaster = psutil.Process(pid)
    return [postmaster, *postmaster.children(recursive=True)]


def kill(server: Embedded) -> None:
    """kill -9 of the postmaster and of every process of the server."""
    victims = processes(server)
    for victim in victims:
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.kill()
    psutil.wait_procs(victims, timeout=30)


def keep_log_in_memory(connection: psycopg.Connection[Any]) -> None:
    """Stop the processes that flush the write-ahead log unasked; now only a commit does."""
    query = "SELECT pid FROM pg_stat_activity WHERE backend_type = ANY (%s)"
    for (pid,) in connection.execute(query, [list(FLUSHERS)]).fetchall():
        psutil.Process(pid).suspend()


class Proxy:
    """Stands between libpq and the server's socket, and can lose one exchange.

    `lose("answer")`: the next message reaches the server, its answer reaches nobody. `lose("message")`: the
    next message does not reach the server either. Both ways the connection is then closed. While it is
    `shut`, nobody can connect.
    """

    def __init__(self, dsn: str, folder: Path) -> None:
        server = conninfo_to_dict(dsn)
        self.behind = f"{server['host']}/.s.PGSQL.{server['port']}"
        self.dsn = make_conninfo(dsn, host=str(folder))
        self.before = folder / f".s.PGSQL.{server['port']}"
        self.lost, self._losing = 0, ""
        self.open()

    def open(self) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.before))
        self._listener.listen(20)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def lose(self, what: str) -> None:
        self._losing = what

    def shut(self) -> None:
        self.before.unlink()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server, contextlib.suppress(OSError):
            server.connect(self.behind)
            while self._pass_on(client, server):
                pass

    def _pass_on(self, client: socket.socket, server: socket.socket) -> bool:
        """Carry what there is from one to the other. False where the connection ends."""
        for source in select.select([client, server], [], [])[0]:
            data = source.recv(65536)
            ended = not data or (source is client and data[:1] == b"X")  # a client's farewell
            if not ended and self._losing == ("message" if source is client else "answer"):
                self._losing, self.lost, ended = "", self.lost + 1, True
            if ended:
                return False
            (server if source is client else client).sendall(data)
        return True


@contextlib.contextmanager
def between(dsn: str, folder: Path) -> Iterator[Proxy]:
    """A proxy before the server; `folder` must have a short path."""
    proxy = Proxy(dsn, folder)
    try:
        yield proxy
    finally:
        proxy.shut()


def crash(server: Embedded) -> None:
    """kill -9, and start again."""
    kill(server)
    server.acquire()
    eventually(lambda: server.postmaster_pid() is not None)
