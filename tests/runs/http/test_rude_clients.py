"""A thousand clients that are slow, cut, strangers or greedy: each gets a defined answer."""

from __future__ import annotations

import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from wsproto.events import TextMessage

from gateway.http import server_sent_events
from gateway.http.bodies import MAX_BODY
from gateway.http.runs import socket_login, socket_sender
from ledger.runs.client_events import ClientEvents
from ledger.tokens import Role
from tests.gateway.conftest import eventually
from tests.gateway.http.conftest import Running
from tests.runs.http.test_events_in import an_event
from tests.runs.raw_socket import RawSocket

MANY: Final = 1000
PROMPT: Final = 10.0
"""Seconds in which another client must have its answer meanwhile."""


@pytest.fixture(autouse=True, scope="module")
def files() -> Iterator[None]:
    """Room for the sockets of both ends in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8192)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def memory() -> int:
    """Bytes of this process, the server's."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@contextmanager
def many(prefect: Running, path: str, begin: Callable[[RawSocket], Any]) -> Iterator[list[RawSocket]]:
    """A thousand clients, of which each has begun."""
    with ExitStack() as stack:
        clients = []
        for _ in range(MANY):
            clients.append(RawSocket(prefect.url, path, room=4096))
            stack.callback(clients[-1].socket.close)
            begin(clients[-1])
        yield clients


def is_served(prefect: Running) -> None:
    """Another client gets its receipt, its events, and its answers by HTTP in time."""
    begun = time.monotonic()
    name = f"served.{begun}"
    with prefect.client() as api:
        assert api.get("/api/health").status_code == 200
        assert api.post("/api/flows/filter", json={"limit": 1}).status_code == 200
    follower, sender = (RawSocket(prefect.url, f"/api/events/{way}") for way in ("out", "in"))
    follower.log_in(prefect.tokens[Role.READER])
    follower.send({"type": "filter", "filter": {"event": {"name": [name]}}})
    sender.log_in(prefect.tokens[Role.OPERATOR])
    sender.send(an_event(name, "a.thing", occurred=datetime.now(UTC).isoformat()))
    sender.ping()
    assert follower.message()["event"]["event"] == name
    assert sender.close() == 1000
    follower.socket.close()
    assert time.monotonic() - begun < PROMPT


def heavy() -> dict[str, Any]:
    now = datetime.now(UTC).isoformat()
    return an_event("heavy", "a.thing", occurred=now, payload={"x": "y" * 20_000})


@pytest.mark.slow
def test_clients_that_never_log_in_are_refused(prefect: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_login, "HANDSHAKE", 5.0)
    with many(prefect, "/api/events/in", lambda one: None) as clients:
        is_served(prefect)
        assert {one.closed() for one in clients} == {1008}


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/api/events/in", "/api/events/out", "/api/logs/out"])
def test_wrong_tokens_are_refused(path: str, prefect: Running) -> None:
    with many(prefect, path, lambda one: one.send({"type": "auth", "token": "u:pledger_x"})) as clients:
        assert {one.closed() for one in clients} == {1008}
    is_served(prefect)


@pytest.mark.slow
def test_halves_of_frames_hold_nobody_up_and_cuts_leave_nothing(prefect: Running) -> None:
    def half(one: RawSocket) -> None:
        one.log_in(prefect.tokens[Role.OPERATOR])
        one.socket.sendall(b"\x81\xfe\x10\x00" + b"mask" + b"x" * 100)

    before = prefect.log.bound()
    with many(prefect, "/api/events/in", half) as clients:
        is_served(prefect)
        for one in clients[::2]:
            one.reset()
    is_served(prefect)
    assert prefect.log.bound() == before + 2, "only what was whole is recorded"


@pytest.mark.slow
def test_followers_that_take_nothing_cost_no_memory_and_are_dropped(
    prefect: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_sender, "PATIENCE", 3.0)

    def follow(one: RawSocket) -> None:
        one.log_in(prefect.tokens[Role.READER])
        one.send({"type": "filter", "filter": {"event": {"name": ["heavy"]}}})

    with many(prefect, "/api/events/out", follow):
        before = memory()
        events = ClientEvents(prefect.log)
        for _ in range(20):
            events.record([heavy() for _ in range(10)])
        is_served(prefect)
        eventually(lambda: not _threads("new events"), 120)
        assert memory() - before < 2**30, "a thousand times four megabytes were told"
    is_served(prefect)


@pytest.mark.slow
def test_bodies_and_frames_of_a_hundred_megabytes(prefect: Running) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(100):
            yield b"x" * 2**20

    before = memory()
    kind = {"Content-Type": "application/json"}
    with prefect.client() as api:
        for path in ("/api/flows/", "/api/logs/", "/api/events", "/jobs"):
            for content in (b"x" * (100 * 2**20), pieces()):
                try:
                    answer = api.post(path, content=content, headers=kind)
                except httpx.TransportError:  # it hung up while the body was on its way
                    continue
                assert answer.status_code == 413, path
    one = RawSocket(prefect.url, "/api/events/in")
    one.log_in(prefect.tokens[Role.OPERATOR])
    one.socket.sendall(b"\x81\xff" + struct.pack("!Q", 100 * 2**20) + b"mask")
    try:
        for _ in range(100):
            one.socket.sendall(b"x" * 2**20)
    except OSError:
        pass
    two = RawSocket(prefect.url, "/api/events/in")
    two.log_in(prefect.tokens[Role.OPERATOR])
    two.put(TextMessage(data="x" * (MAX_BODY + 1)))
    assert two.closed() == 1009
    is_served(prefect)
    assert memory() - before < 2**29


@pytest.mark.slow
def test_streams_of_the_plain_server_that_nobody_reads(
    prefect: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_sent_events, "PATIENCE", 3.0)
    token = prefect.tokens[Role.READER]
    path = f"/log/stream?after={prefect.log.bound()}"
    asked = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    place = httpx.URL(prefect.url)
    with ExitStack() as stack:
        for _ in range(MANY):
            one = stack.enter_context(socket.socket())
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.connect((place.host, place.port or 80))
            one.sendall(asked)
        ClientEvents(prefect.log).record([heavy() for _ in range(15)])
        is_served(prefect)
        eventually(lambda: not _threads("news"), 120)


def _threads(name: str) -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == name]
