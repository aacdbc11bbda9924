"""A WebSocket client of few lines, which sends what it is told: frames, pings, halves of frames, nothing."""

from __future__ import annotations

import json
import socket
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    CloseConnection,
    Event,
    Message,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)


class RawSocket:
    """A connection to a server at `url` and what came of it. All waits end after `seconds`.

    room: bytes that wait in the system for this client to read them; by default as many as it likes.
    """

    def __init__(
        self,
        url: str,
        path: str,
        *,
        protocol: str | None = "prefect",
        seconds: float = 30,
        room: int | None = None,
        **headers: str,
    ) -> None:
        place = urlsplit(url)
        self.socket = socket.socket()
        self.socket.settimeout(seconds)
        if room is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        self.socket.connect((place.hostname or "", place.port or 80))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._machine = WSConnection(ConnectionType.CLIENT)
        self._text = ""
        self._came = deque[Event]()
        more = [(name.encode(), value.encode()) for name, value in headers.items()]
        asked = Request(
            host=place.netloc, target=path, subprotocols=[protocol] if protocol else [], extra_headers=more
        )
        self.put(asked)
        answer = self.event()
        self.status = answer.status_code if isinstance(answer, RejectConnection) else 101
        self.subprotocol = answer.subprotocol if isinstance(answer, AcceptConnection) else None

    def put(self, *events: Event) -> None:
        """Send these in one piece."""
        self.socket.sendall(b"".join(self._machine.send(event) for event in events))

    def send(self, *messages: Any) -> None:
        """Send JSON messages, or texts as they are, in one piece."""
        texts = [one if isinstance(one, str) else json.dumps(one) for one in messages]
        self.put(*[Message(data=text) for text in texts])

    def event(self) -> Event:
        """The next thing that the server sent; CloseConnection 1006 where the connection was cut."""
        if self._came:
            return self._came.popleft()
        while True:
            for event in self._machine.events():
                if isinstance(event, TextMessage) and not event.message_finished:
                    self._text += event.data
                    continue
                if isinstance(event, Ping):
                    self.put(event.response())
                    continue
                if isinstance(event, TextMessage):
                    event, self._text = TextMessage(data=self._text + event.data), ""
                if not isinstance(event, RejectData):
                    return event
            try:
                got = self.socket.recv(65536)
            except ConnectionResetError:
                got = b""
            if not got:
                return CloseConnection(code=1006)
            self._machine.receive_data(got)

    def message(self) -> Any:
        """The next message. Fails where something else comes."""
        event = self.event()
        assert isinstance(event, TextMessage), event
        return json.loads(event.data)

    def log_in(self, token: str | None = None) -> None:
        """Send the message that proves who this is; it must be welcome."""
        self.send({"type": "auth", "token": token})
        assert self.message() == {"type": "auth_success"}

    def ping(self, payload: bytes = b"here") -> None:
        """Ask for a receipt and wait for it; what comes before it is kept for `event`."""
        self.put(Ping(payload=payload))
        came = list[Event]()
        while not isinstance(event := self.event(), Pong):
            assert not isinstance(event, CloseConnection), event
            came.append(event)
        self._came.extend(came)
        assert bytes(event.payload) == payload

    def close(self) -> int:
        """Close in order, and wait for the answer: its code; 1006 if the connection was cut instead."""
        self.put(CloseConnection(code=1000))
        return self.closed()

    def closed(self) -> int:
        """Wait until the server closes, past whatever it sends before: the code; 1006 for a cut."""
        while not isinstance(event := self.event(), CloseConnection):
            pass
        return event.code

    def reset(self) -> None:
        """Cut the connection at once, without a farewell."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        self.socket.close()


@contextmanager
def raw_socket(url: str, path: str, **how: Any) -> Iterator[RawSocket]:
    """A connection for the block."""
    one = RawSocket(url, path, **how)
    try:
        yield one
    finally:
        one.socket.close()
