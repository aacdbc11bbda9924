"""Ways to hurt a server and a connection: kill -9 of everything, a log kept in memory, lost answers."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ledger.embedded import Embedded
from tests.faults.conftest import eventually

READY = b"Z\x00\x00\x00\x05"
"""How the message begins that ends every answer; a byte with the state of the transaction follows."""
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
    next message does not reach the server either. `lose("end")`: the next answer arrives but for its last
    message, by which the server says that the transaction is over. Each way the connection is then closed;
    what is to be done `then` is done before. While it is `shut`, nobody can connect.
    """

    def __init__(self, dsn: str, folder: Path) -> None:
        server = conninfo_to_dict(dsn)
        self.behind = f"{server['host']}/.s.PGSQL.{server['port']}"
        self.dsn = make_conninfo(dsn, host=str(folder))
        self.before = folder / f".s.PGSQL.{server['port']}"
        self.lost = 0
        self.lose("")
        self.open()

    def open(self) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.before))
        self._listener.listen(20)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def lose(self, what: str, then: Callable[[], object] = lambda: None) -> None:
        self._losing, self._then = what, then

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
            if not ended and self._losing in (("message",) if source is client else ("answer", "end")):
                if self._losing == "end":
                    assert data[-6:-1] == READY, "the answer came in pieces"
                    client.sendall(data[:-6])
                self._losing, self.lost, ended = "", self.lost + 1, True
                self._then()
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
