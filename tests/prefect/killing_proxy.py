"""Between a client and its server: passes all on, and acts the moment the server answers a socket's close."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import urlsplit

EVENTS: Final = b"GET /api/events/in "
STARTING: Final = 60.0
"""Seconds for which a server may be away."""
_CLOSE: Final = 0x8


class KillingProxy:
    """Listens at `url`. act: called once, before the client gets the answer to its close of /events/in."""

    def __init__(self, upstream: str, act: Callable[[], None]) -> None:
        self._act = act
        self.to(upstream)
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}{urlsplit(upstream).path}"
        self.acted = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def to(self, upstream: str) -> None:
        """Pass further connections on to this server."""
        place = urlsplit(upstream)
        self._upstream = place.hostname or "", place.port or 80

    def close(self) -> None:
        """Take no further connections."""
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._join, args=(client,), daemon=True).start()

    def _join(self, client: socket.socket) -> None:
        if (server := self._connected()) is None:
            client.close()
            return
        with client, server, contextlib.suppress(OSError):  # an end may be killed at any moment
            first = client.recv(65536)
            server.sendall(first)
            threading.Thread(target=_pass, args=(client, server), daemon=True).start()
            if first.startswith(EVENTS):
                with contextlib.suppress(OSError):
                    self._watch(server, client)
            _pass(server, client)

    def _connected(self) -> socket.socket | None:
        """A connection to the server; one that is started again is waited for."""
        deadline = time.monotonic() + STARTING
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                return socket.create_connection(self._upstream)
            time.sleep(0.05)
        return None

    def _watch(self, server: socket.socket, client: socket.socket) -> None:
        """Pass on what the server sends on a socket of events, up to its close."""
        read = b""
        while b"\r\n\r\n" not in read:
            read += _more(server)
        head, _, read = read.partition(b"\r\n\r\n")
        client.sendall(head + b"\r\n\r\n")
        while True:
            while len(read) < 2 or len(read) < 2 + read[1]:  # the server sends short frames only
                read += _more(server)
            frame, read = read[: 2 + read[1]], read[2 + read[1] :]
            if frame[0] & 0xF == _CLOSE and not self.acted.is_set():
                self._act()
                self.acted.set()
            client.sendall(frame)


def _more(server: socket.socket) -> bytes:
    if not (got := server.recv(65536)):
        raise ConnectionResetError
    return got


def _pass(one: socket.socket, other: socket.socket) -> None:
    """Pass on all bytes until an end closes."""
    with contextlib.suppress(OSError):
        while got := one.recv(65536):
            other.sendall(got)
    for end in (one, other):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def killing_proxy(upstream: str, act: Callable[[], None]) -> Iterator[KillingProxy]:
    """A proxy for the block."""
    proxy = KillingProxy(upstream, act)
    try:
        yield proxy
    finally:
        proxy.close()
