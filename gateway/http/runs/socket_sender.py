"""What a socket that tells news is made of: the history first, then what is new, until the client is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Generic, NamedTuple, TypeVar

from anyio import CapacityLimiter, to_thread
from starlette.websockets import WebSocket, WebSocketDisconnect

from ledger import LedgerError, ServerUnavailable

from .socket_feed import Feed, Subscription

F = TypeVar("F")
PATIENCE: Final = 30.0
"""Seconds that a client may need to take a message."""
AGAIN: Final = 0.5
"""Seconds before the ledger is read again while it cannot be reached."""
DEFECT: Final = 1011


class Past(NamedTuple):
    """A part of the history, as texts for the client. next: where the next part begins; None: at the end."""

    texts: list[str]
    next: int | None


class Sender(Generic[F]):
    """Tells one client what its filter lets in, each thing once and in order.

    past: reads a part of the history after one place and up to another.
    """

    def __init__(
        self,
        websocket: WebSocket,
        feed: Feed[F, str],
        wanted: F,
        past: Callable[[int, int], Past],
        limiter: CapacityLimiter,
    ) -> None:
        self._websocket, self._feed, self._wanted = websocket, feed, wanted
        self._past, self._limiter = past, limiter

        self._begin: Callable[[], int] | None = None
        self._place: int | None = None

    async def run(self, begin: Callable[[], int] | None) -> None:
        """Tell everything after a place, None: from now on; until the client is gone or takes nothing."""
        self._begin = begin
        await gone(self._websocket, asyncio.ensure_future(self._tell_all()))

    async def _tell_all(self) -> None:
        while True:
            try:
                await self._tell()
            except ServerUnavailable:
                await asyncio.sleep(AGAIN)
            except LedgerError as error:
                return await self._websocket.close(DEFECT, str(error)[:100])

    async def _tell(self) -> None:
        """Tell the history and what is new, until the client did not keep up."""
        new: Subscription[F, str] = Subscription(self._wanted)
        try:
            await self._in_thread(self._feed.subscribe, new)
            begins = new.place
            if self._place is None:
                self._place = begins if self._begin is None else await self._in_thread(self._begin)
            while self._place < begins:
                part: Past = await self._in_thread(self._past, self._place, begins)
                await self._send(part.texts)
                self._place = begins if part.next is None else part.next
            while (texts := await new.next()) is not None:
                await self._send(texts)
            self._place = new.place
        finally:
            self._feed.leave(new)

    async def _in_thread(self, act: Callable[..., Any], *given: Any) -> Any:
        return await to_thread.run_sync(act, *given, limiter=self._limiter)

    async def _send(self, texts: list[str]) -> None:
        async with asyncio.timeout(PATIENCE):
            for text in texts:
                await self._websocket.send_text(text)
                await asyncio.sleep(0)  # others have their turn


async def gone(websocket: WebSocket, telling: asyncio.Future[None]) -> None:
    """Wait until the client is gone, or `telling` has ended because it takes nothing; then end both."""
    leaving = asyncio.ensure_future(_left(websocket))
    try:
        await asyncio.wait({telling, leaving}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()
        telling.cancel()
        with suppress(asyncio.CancelledError, TimeoutError, WebSocketDisconnect):
            await telling


async def _left(websocket: WebSocket) -> None:
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass
