"""
The process that serves: uvicorn with one event loop, and threads for the routes.

Which server: a WebSocket application must answer a ping, and the close, only after a commit (Prefect's
`/events/in`: its client takes the pong for a receipt). ASGI has no message for pings, so the server's
protocol must be open to change:

- uvicorn takes the class of its WebSocket protocol as a parameter. Its protocol on wsproto gets each ping as
  an event and answers in `handle_ping`, and a close in `handle_close`: a subclass overrides both. Taken:
  `socket_protocol`.
- uvicorn on websockets' sans-I/O protocol: that library queues the pong itself when it reads a ping frame.
- hypercorn also uses wsproto, but answers pings inside its stream class, which no parameter replaces.
- granian answers pings in Rust.

HTTP is read by httptools and the loop is uvloop's, both in C.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ledger import Ledger

from .app import Settings, make_app
from .bodies import MAX_BODY
from .socket_protocol import OrderedProtocol

GRACE: Final = 10
"""Seconds that requests have to end after a stop."""
CONNECTIONS: Final = 4096
"""Connections at once; further requests get 503."""
PROMPT: Final = 30.0
"""Seconds in which a client must send a request, up to its body."""
UNSENT: Final = 30_000
"""Milliseconds after which the system drops a connection whose other end takes nothing."""


class PromptRequests(HttpToolsProtocol):
    """uvicorn's protocol of HTTP, which ends connections whose request does not come, with 408."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._waiting = self.loop.call_later(PROMPT, self._end)

    def on_message_begin(self) -> None:
        """A request begins, the first or a further one."""
        self._waiting.cancel()
        self._waiting = self.loop.call_later(PROMPT, self._end)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The request is there."""
        self._waiting.cancel()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._waiting.cancel()
        super().connection_lost(exc)

    def _end(self) -> None:
        self.transport.write(
            b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        )
        self.transport.close()


class Server(uvicorn.Server):
    """uvicorn, stopped by an event instead of by signals, which belong to the command line."""

    def __init__(self, config: uvicorn.Config, stop: Event) -> None:
        super().__init__(config)
        self._stop = stop

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals as they are."""
        yield

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: whether to stop."""
        self.should_exit = self.should_exit or self._stop.is_set()
        return await super().on_tick(counter)


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0: any free one. Raises OSError if it cannot be used."""
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    opened = socket.create_server((host, port), family=family, backlog=1024)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNSENT)
    return opened


def serve(
    ledger: Ledger, place: socket.socket, stop: Event, settings: Settings, ready: Callable[[], None]
) -> None:
    """Serve the ledger until `stop` is set; then requests under way may end. ready: called once."""
    app = make_app(ledger, stop, settings)
    config = uvicorn.Config(
        app, http=PromptRequests, loop="uvloop", ws=OrderedProtocol, log_config=None, access_log=False,
        timeout_graceful_shutdown=GRACE, limit_concurrency=CONNECTIONS, server_header=False,
        ws_max_size=MAX_BODY, ws_per_message_deflate=False,  # which costs 300 KB a socket
    )  # fmt: skip
    server = Server(config, stop)
    ready()
    server.run([place])
