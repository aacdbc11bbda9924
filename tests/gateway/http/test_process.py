"""`pledger serve` as a process: ready, stopped by SIGTERM, started again, and against rude clients."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest

from gateway.http import bodies, serve
from gateway.http.bodies import MAX_BODY
from ledger import Ledger
from ledger.tokens import Role, Tokens
from tests.gateway.conftest import eventually
from tests.gateway.http.conftest import Running
from tests.gateway.http.test_events import connected, messages
from tests.lamp import LampRead

Started = Callable[..., subprocess.Popen[str]]


def ready(process: subprocess.Popen[str]) -> str:
    """The address that the server prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_a_stream_goes_on_across_a_restart_without_loss(log: Ledger, started: Started) -> None:
    token, _ = Tokens(log).add("x", Role.READER)
    log.append("lamp/a", LampRead(value=1))
    headers = {"Authorization": f"Bearer {token}"}
    port, got = "0", list[int]()
    for value in (2, 3):
        server = started("serve", "--port", port)
        url = ready(server)
        port = str(urlsplit(url).port)
        with httpx.stream("GET", f"{url}/log/stream", headers=headers, timeout=60) as answer:
            for one in messages(answer.iter_lines()):
                got.append(json.loads(one["data"])["data"]["value"])
                headers["Last-Event-ID"] = one["id"]
                if got[-1] == value - 1:
                    server.send_signal(signal.SIGTERM)  # the stream ends with the server
        assert server.wait(30) == 0, "SIGTERM ends it in peace"
        log.append("lamp/a", LampRead(value=value))
    assert got == [1, 2]


def test_a_request_under_way_ends_before_the_server_does(
    log: Ledger, admin_dsn: str, started: Started
) -> None:
    token, _ = Tokens(log).add("x", Role.READER)
    server = started("serve", "--port", "0", "--json")
    assert server.stdout is not None
    url = json.loads(server.stdout.readline())["url"]
    answers: list[httpx.Response] = []

    def ask() -> None:
        answers.append(httpx.get(f"{url}/streams", headers={"Authorization": f"Bearer {token}"}, timeout=60))

    with psycopg.connect(admin_dsn) as connection:
        connection.execute("LOCK TABLE ledger.heads IN ACCESS EXCLUSIVE MODE")
        asking = threading.Thread(target=ask)
        asking.start()
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'ledger.heads'::regclass"
        eventually(lambda: connection.execute(waiting).fetchall()[0][0], 30)
        server.send_signal(signal.SIGTERM)
    asking.join(60)
    assert [one.status_code for one in answers] == [200]
    assert server.wait(30) == 0


def test_a_taken_port_is_a_sentence(pledger: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = pledger("serve", "--port", str(taken.getsockname()[1]))
    assert (ended.code, "cannot be used" in ended.err) == (2, True)


# Rude clients


def said(served: Running, *parts: bytes) -> bytes:
    """What the server answers to bytes."""
    with connected(served) as one:
        try:
            for part in parts:
                one.sendall(part)
            one.shutdown(socket.SHUT_WR)
        except OSError:  # it has answered and hung up
            pass
        found = b""
        try:
            while got := one.recv(65536):
                found += got
        except ConnectionResetError:
            pass
        return found


def head(served: Running, *more: str) -> bytes:
    token = served.tokens[Role.ADMIN]
    lines = [
        "POST /jobs HTTP/1.1",
        "Host: x",
        f"Authorization: Bearer {token}",
        "Content-Type: application/json",
    ]
    return "\r\n".join([*lines, *more, "", ""]).encode()


def test_bodies_that_are_too_large_are_413_and_nothing_is_recorded(
    served: Running, client: httpx.Client
) -> None:
    whole = client.post("/jobs", content=b"x" * (MAX_BODY + 1), headers={"Content-Type": "application/json"})
    assert (whole.status_code, whole.json()["title"]) == (413, "BodyTooLarge")
    declared = said(served, head(served, f"Content-Length: {100 * 2**20}"))
    assert declared.startswith(b"HTTP/1.1 413 ")

    def pieces() -> Any:
        for _ in range(MAX_BODY // 65536 + 2):
            yield b"x" * 65536

    chunked = client.post("/jobs", content=pieces(), headers={"Content-Type": "application/json"})
    assert chunked.status_code == 413
    assert client.get("/healthz").status_code == 200
    assert served.log.bound() == 0


@pytest.mark.parametrize(
    "body", [b"", b"{", b"null", b"[]", b'"x"', b"\xff\xfe", b'{"operation":' + b"[" * 100_000, b"NaN"]
)
def test_bodies_that_are_no_job_are_refused(body: bytes, client: httpx.Client) -> None:
    answer = client.post("/jobs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"


def test_what_is_no_http_is_400_and_cut_requests_leave_nothing(served: Running, client: httpx.Client) -> None:
    assert said(served, b"\x16\x03\x01nonsense\r\n\r\n").startswith(b"HTTP/1.1 400")
    assert said(served, b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n").startswith(b"HTTP/1.1 400")
    said(served, head(served, "Content-Length: 100") + b'{"operation"')
    assert client.get("/healthz").status_code == 200
    assert served.log.bound() == 0


def test_a_slow_client_does_not_hold_the_others_up(served: Running, client: httpx.Client) -> None:
    with connected(served) as slow, connected(served) as slower:
        for one in (slow, slower):
            one.sendall(head(served, "Content-Length: 100")[:-2])
        assert client.get("/streams").status_code == 200


def test_clients_that_do_not_go_on_are_told_so(
    served: Running, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "PROMPT", 0.2)
    monkeypatch.setattr(bodies, "PATIENCE", 0.2)
    whole, half = head(served, "Content-Length: 100"), head(served)[:-2]
    for begin in (b"", b"GET /", half, whole, whole + b'{"operation"'):
        with connected(served) as slow:
            slow.sendall(begin)
            assert slow.recv(65536).startswith(b"HTTP/1.1 408 "), begin
    with connected(served) as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert slow.recv(65536).startswith(b"HTTP/1.1 200 ")
        slow.sendall(b"GET /hea")
        assert slow.recv(65536).startswith(b"HTTP/1.1 408 "), "the second request as well"
    assert client.get("/healthz").status_code == 200
