"""A server that only takes events: the real protocol, sockets and intake; each is a reading of a lamp."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from socket import socket
from typing import Any

import uvicorn
from starlette.applications import Starlette

import ledger
from gateway.http.access import Access
from gateway.http.bodies import MAX_BODY
from gateway.http.runs import events_intake
from gateway.http.runs.socket_routes import ROUTES, Sockets
from gateway.http.serve import Server, listening
from gateway.http.socket_protocol import OrderedProtocol
from ledger import BadInput, Ledger, LedgerError
from ledger.log.append import append_to
from ledger.tokens import Role
from tests.lamp import LampRead


class Readings:
    """Records each event as a reading of the lamp that it names, once; an event without a lamp is refused."""

    def __init__(self, log: Ledger) -> None:
        self.log = log
        self.commits: list[int] = []
        self.actors: list[str] = []

    def __call__(self, events: Sequence[Mapping[str, Any]], actor: str) -> Sequence[LedgerError | None]:
        """Record in one commit."""
        good = [one for one in events if "lamp" in one]
        readings: dict[str, list[LampRead]] = {}
        for one in good:
            if one["value"] == "defect":
                raise ZeroDivisionError
            readings.setdefault(f"lamp/{one['lamp']}", []).append(LampRead(value=one["value"]))
        if readings:
            self.log.append_all([append_to(stream, read) for stream, read in readings.items()])
        self.commits.append(len(events))
        self.actors.append(actor)
        return [None if "lamp" in one else BadInput("there is no lamp in it") for one in events]


class EagerProtocol(OrderedProtocol):
    """A wrong protocol: it answers when a ping or the close arrives, whatever was committed."""

    def _in_turn(self, answer: Callable[[], None]) -> None:
        answer()


def serve_events(
    record: Readings,
    place: socket,
    stop: threading.Event,
    protocol: type[OrderedProtocol] = OrderedProtocol,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve until `stop` is set."""

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        app.state.access = Access(record.log, Role.OPERATOR)
        with Sockets(record.log, record) as app.state.sockets:
            ready()
            yield

    app = Starlette(routes=list(ROUTES), lifespan=life)
    config = uvicorn.Config(
        app, loop="uvloop", ws=protocol, log_config=None, ws_max_size=MAX_BODY, ws_per_message_deflate=False
    )
    Server(config, stop).run([place])


def main(dsn: str, manner: str, tell: Connection) -> None:
    """Serve as a process until it is killed; its address is told. Nothing is recorded within a second,
    unless somebody asks for a receipt.
    """
    events_intake.GATHER = 1.0  # type: ignore[misc]
    protocol = {"ordered": OrderedProtocol, "eager": EagerProtocol}[manner]
    with ledger.connect(dsn, actor="server") as log, listening("127.0.0.1", 0) as place:
        url = f"http://127.0.0.1:{place.getsockname()[1]}"
        serve_events(Readings(log), place, threading.Event(), protocol, lambda: tell.send(url))
