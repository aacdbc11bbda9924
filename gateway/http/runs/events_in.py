"""
`/events/in`: clients send their events, and a pong or the answered close is the receipt of what is committed.

Prefect's client keeps events until a pong has come after them, and sends them again on a new connection; at
its own end it closes and waits for the answer. So both are given only when all frames before are recorded.

How a connection ends: 1000 as the client wished; 1007 after a frame that is no event, where Prefect's server
cuts the connection; 1009 after a frame beyond the server's limit; 1013 where the ledger could not be reached
for `PATIENCE` seconds. All but the first make the client send again what has no receipt.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from typing import Final

from starlette.websockets import WebSocket, WebSocketDisconnect

from ledger import LedgerError
from ledger.tokens import Role

from ..socket_protocol import Answer, OrderedProtocol, protocol_of
from .events_intake import PATIENCE, Intake
from .socket_login import admitted

LOG: Final = logging.getLogger("gateway.http")
AHEAD: Final = 2000
"""Frames of one socket that may wait for their commit before no more are read from it."""
LOOK: Final = 5.0
"""Seconds between two looks whether a socket waits in vain."""
NO_EVENT: Final = 1007
LATER: Final = 1013


class Incoming:
    """The frames of one socket, a source of the intake, and the receipts that the client waits for."""

    def __init__(self, intake: Intake, protocol: OrderedProtocol, actor: str) -> None:
        self.actor = actor
        self.over: asyncio.Future[tuple[int, str] | None] = asyncio.get_running_loop().create_future()
        self._intake, self._protocol = intake, protocol
        self._taken = self._safe = 0
        self._held = False
        self._receipts: deque[tuple[int, Answer]] = deque()

    @property
    def waits(self) -> bool:
        """Whether frames wait for their commit."""
        return self._safe < self._taken

    def frame(self, data: str | bytes) -> None:
        """Take a frame, unless one before it was refused."""
        if self.over.done():
            return
        self._taken += 1
        if not self._intake.put(self, data, len(data)) or self._taken - self._safe >= AHEAD:
            self._held = True
            self._protocol.hold()

    def control(self, answer: Answer) -> None:
        """Answer when all frames before are committed; never after one that was refused."""
        if self.waits:
            self._receipts.append((self._taken, answer))
            self._intake.hurry()
        elif not self.over.done():
            answer()

    def settled(self, refused: LedgerError | None) -> None:
        """The oldest frame is committed, or refused."""
        self._safe += 1
        if refused is not None and not self.over.done():
            LOG.warning("%s sent no event: %s", self.actor, refused)
            self._receipts.clear()
            self.over.set_result((NO_EVENT, _reason(str(refused))))
        while self._receipts and self._receipts[0][0] <= self._safe:
            self._receipts.popleft()[1]()
        if self._held and self._taken - self._safe <= AHEAD // 2:
            self.go_on()

    def go_on(self) -> None:
        """There is room: read again."""
        self._held = False
        self._protocol.go_on()

    def gone(self) -> None:
        """The connection is over; what it sent is recorded all the same."""
        self._receipts.clear()
        if not self.over.done():
            self.over.set_result(None)

    async def wait(self) -> tuple[int, str] | None:
        """Wait for the end: the code and the reason with which to close; None: the client has closed."""
        while not self.over.done():
            await asyncio.wait({self.over}, timeout=LOOK)
            if self.waits and not self.over.done() and self._intake.oldest() > PATIENCE:
                self._receipts.clear()
                self.over.set_result((LATER, "the ledger cannot be reached; send the events again"))
        return self.over.result()


async def events_in(websocket: WebSocket) -> None:
    """Take the events of a client until it closes, or sends what is no event."""
    caller = await admitted(websocket, Role.OPERATOR)
    if caller is None:
        return
    protocol = protocol_of(websocket)
    incoming = Incoming(websocket.app.state.sockets.intake, protocol, caller.name)
    protocol.take(incoming)
    if (end := await incoming.wait()) is not None:
        with suppress(WebSocketDisconnect):
            await websocket.close(*end)


def _reason(text: str) -> str:
    """What fits into a close frame: 123 bytes of UTF-8."""
    return text.encode()[:120].decode(errors="ignore")
