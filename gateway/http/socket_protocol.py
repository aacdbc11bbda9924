"""
WebSockets whose pings and close are answered in turn: after the frames that came before them.

A client takes the pong for a receipt of all that it sent before its ping, and the answered close likewise.
uvicorn answers both when they arrive, which says only that the bytes came. Here they stand in the queue of
the connection behind the frames:

- an application that receives messages has a ping answered when it has taken every message before it;
- an application that calls `take` gets frames, pings and the close of the connection at once, and decides
  itself when a ping and the close are answered: after a commit.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol, cast

from starlette.websockets import WebSocket
from uvicorn._types import WebSocketEvent
from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from wsproto import events
from wsproto.utilities import LocalProtocolError

_OWN: Final = "http.socket_protocol"
"""The key of the protocol in the state of a connection."""
_CONTROL: Final = "control"
"""The type of a ping or close in the queue of a connection; applications never see it."""

Answer = Callable[[], None]


class Sink(Protocol):
    """What takes the frames of a connection. All is called in the event loop and must not block."""

    def frame(self, data: str | bytes) -> None:
        """A frame of the client."""

    def control(self, answer: Answer) -> None:
        """A ping, or the close: `answer` sends the reply, which says that all frames before are safe."""

    def gone(self) -> None:
        """The connection is over: answered, cut, or ended by the server."""


class OrderedProtocol(WSProtocol):
    """uvicorn's protocol on wsproto, which answers pings and the close in turn."""

    _sink: Sink | None = None
    _held = False

    def handle_connect(self, event: events.Request) -> None:
        """Start the application, and let it find this protocol."""
        super().handle_connect(event)
        self.scope["state"][_OWN] = self

    def handle_events(self) -> None:
        """Handle what arrived; frames go to the sink if there is one."""
        super().handle_events()
        self._pass_on()

    def handle_ping(self, event: events.Ping) -> None:
        """Answer a ping after the frames before it."""
        self._in_turn(lambda: self._pong(event))

    def handle_close(self, event: events.CloseConnection) -> None:
        """Answer the close after the frames before it; the answer to a close of ours needs none."""
        if self.close_sent:
            super().handle_close(event)
        else:
            self._in_turn(lambda: self._answer_close(event))

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is over."""
        super().connection_lost(exc)
        self._pass_on()

    def shutdown(self) -> None:
        """End the connection because the server stops; a sink first secures what it has taken."""
        if self._sink is None:
            return super().shutdown()
        self.hold()
        return self._sink.control(self._end)

    async def receive(self) -> WebSocketEvent:
        """The next message of the client; answers the pings and the close before it."""
        while True:
            message = await super().receive()
            if cast(str, message["type"]) != _CONTROL:
                return message
            cast(Any, message)["answer"]()

    def take(self, sink: Sink) -> None:
        """From now on all that arrives goes to the sink, first what has arrived already."""
        self._sink = sink
        self._pass_on()

    def hold(self) -> None:
        """Read no more from the client, until `go_on`."""
        self._held = True
        self._read(False)

    def go_on(self) -> None:
        """Read again."""
        self._held = False
        self._read(True)

    def _in_turn(self, answer: Answer) -> None:
        if self._sink is None and self.queue.empty():
            answer()
        else:
            self.queue.put_nowait(cast(WebSocketEvent, {"type": _CONTROL, "answer": answer}))

    def _pass_on(self) -> None:
        """Give the sink all that is in the queue."""
        if self._sink is None:
            return
        while not self.queue.empty():
            message = cast(Any, self.queue.get_nowait())
            match message["type"]:
                case "websocket.receive":
                    self._sink.frame(message["text"] if "text" in message else message["bytes"])
                case "websocket.disconnect":
                    self._sink.gone()
                case _:
                    self._sink.control(message["answer"])
        if self.read_paused and not self._held:
            self._read(True)

    def _read(self, on: bool) -> None:
        self.read_paused = not on
        if not self.transport.is_closing():
            (self.transport.resume_reading if on else self.transport.pause_reading)()

    def _end(self) -> None:
        super().shutdown()
        self._pass_on()

    def _pong(self, event: events.Ping) -> None:
        if not (self.close_sent or self.transport.is_closing()):
            with suppress(LocalProtocolError):  # the client closes: its close is the receipt
                super().handle_ping(event)

    def _answer_close(self, event: events.CloseConnection) -> None:
        if not (self.close_sent or self.transport.is_closing()):
            super().handle_close(event)
            self._pass_on()


def protocol_of(websocket: WebSocket) -> OrderedProtocol:
    """The protocol of a connection. Raises LookupError under a server that answers pings by itself."""
    own = websocket.scope.get("state", {}).get(_OWN)
    if not isinstance(own, OrderedProtocol):
        raise LookupError("the server does not run with gateway.http.socket_protocol")
    return own
