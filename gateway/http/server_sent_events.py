"""
The log as server-sent events: each client at its own pace, with its own follower.

One thread watches the end of the log for all clients, while there are any, and wakes those that wait. A
client that takes nothing for 30 seconds is dropped; it comes again with the id of the last event that it saw.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from anyio import CapacityLimiter, to_thread
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ledger import Cursor, CursorMismatch, Ledger, LedgerError, Recorded, ServerUnavailable
from projections import Follower

from ..cli.output import event_json

THREADS: Final = 4
"""Threads that read for all clients, so that these never take those of other requests."""
ALIVE: Final = 15.0
"""Seconds without an event after which a comment shows that the connection lives."""
PART: Final = 64 * 1024
"""Characters of a part, after which the client must have taken it before the next one is sent."""
PATIENCE: Final = 30.0
"""Seconds that a client may need to take a part of the stream."""
AGAIN: Final = 0.5
"""Seconds before the ledger is read again while it cannot be reached."""


class News:
    """Wakes the clients of one server when the log has grown. To be made in the server's event loop."""

    def __init__(self, ledger: Ledger, stop: threading.Event) -> None:
        self.ledger, self.stop = ledger, stop
        self.limiter = CapacityLimiter(THREADS)
        self.count = 0
        self._loop = asyncio.get_running_loop()
        self._waiting: set[asyncio.Future[None]] = set()
        self._clients = 0
        self._quiet = threading.Event()

    @contextmanager
    def client(self) -> Iterator[None]:
        """Count a client while the block runs; the first one starts the thread, the last one ends it."""
        self._clients += 1
        if self._clients == 1:
            self._quiet = threading.Event()
            threading.Thread(target=self._watch, args=(self._quiet,), name="news", daemon=True).start()
        try:
            yield
        finally:
            self._clients -= 1
            if not self._clients:
                self._quiet.set()

    async def wait(self, seen: int, gone: asyncio.Future[None], seconds: float) -> None:
        """Wait until the log has grown since `count` was `seen`, the client is gone, or the time is over."""
        if self.count != seen:
            return
        news: asyncio.Future[None] = self._loop.create_future()
        self._waiting.add(news)
        try:
            await asyncio.wait({news, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._waiting.discard(news)

    def _watch(self, quiet: threading.Event) -> None:
        """Watch the end of the log until no client is left, or the server stops."""
        end = -1
        while not quiet.is_set() and not self.stop.is_set():
            seen = self.ledger.wakeup.seen()
            with suppress(LedgerError):
                if (now := self.ledger.bound()) != end:
                    end = now
                    self._tell()
            self.ledger.wakeup.wait(seen, 0.05, quiet)
        self._tell()

    def _tell(self) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self.count += 1
        for one in self._waiting:
            if not one.done():
                one.set_result(None)


class EventStream(Response):
    """The answer that sends events as they come. prefix: only of streams whose names begin so."""

    media_type = "text/event-stream"

    def __init__(self, follower: Follower, news: News, prefix: str = "") -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._follower, self._news, self._prefix = follower, news, prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the client is gone, the server stops, or the history turns out to be another."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        gone = asyncio.ensure_future(_gone(receive))
        try:
            with self._news.client(), suppress(TimeoutError, OSError):
                await self._send_all(send, gone)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()

    async def _send_all(self, send: Send, gone: asyncio.Future[None]) -> None:
        news = self._news
        await _send(send, f"retry: {int(AGAIN * 1000)}\n\n")
        while not gone.done() and not news.stop.is_set():
            seen = news.count
            try:
                parts = await to_thread.run_sync(self._next, limiter=news.limiter)
            except CursorMismatch as error:
                return await _send(send, f"event: error\ndata: {' '.join(str(error).split())}\n\n")
            except ServerUnavailable:
                await asyncio.sleep(AGAIN)
                continue
            if parts is not None:
                for part in parts:
                    await _send(send, part)
                continue
            await news.wait(seen, gone, ALIVE)
            if news.count == seen:
                await _send(send, ": alive\n\n")
        return None

    def _next(self) -> list[str] | None:
        """The next events, in parts that a client can take one by one; None at the end of the log."""
        events = self._follower.poll()
        if not events:
            return None
        parts, part, size = [], list[str](), 0
        for event in events:
            if event.stream.startswith(self._prefix):
                part.append(self._told(event))
                size += len(part[-1])
            if size > PART:
                parts.append("".join(part))
                part, size = [], 0
        return [*parts, "".join(part)] if part else parts

    def _told(self, event: Recorded) -> str:
        """An event as a message: its topic, its cursor, and itself as JSON on one line."""
        cursor = Cursor.after(self._follower.ledger.identity.ledger, event)
        return f"event: {event.topic}\nid: {cursor}\ndata: {event_json(event)}\n\n"


async def _send(send: Send, text: str) -> None:
    """Send a part. Raises TimeoutError if the client does not take it."""
    message = {"type": "http.response.body", "body": text.encode(), "more_body": True}
    await asyncio.wait_for(send(message), PATIENCE)


async def _gone(receive: Receive) -> None:
    """Wait until the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
