"""The log as server-sent events: in order, each once, resumed by Last-Event-ID, at each client's own pace."""

from __future__ import annotations

import gc
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import pytest

from gateway.http import server_sent_events
from ledger import Body, Cursor, Ledger
from ledger.tokens import Role
from tests.gateway.conftest import eventually
from tests.gateway.http.conftest import Running
from tests.lamp import LampRead


@contextmanager
def following(client: httpx.Client, **how: Any) -> Iterator[Iterator[dict[str, str]]]:
    """The messages of a stream of events."""
    with client.stream("GET", "/log/stream", **how) as answer:
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield messages(answer.iter_lines())


def messages(lines: Iterator[str]) -> Iterator[dict[str, str]]:
    """Messages with data, each as its fields."""
    found: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if name:
            found[name] = value
        elif line == "":
            if "data" in found:
                yield found
            found = {}


def read(log: Ledger, *values: int, stream: str = "lamp/a") -> None:
    for value in values:
        log.append(stream, LampRead(value=value))


def values(found: Iterator[dict[str, str]], many: int) -> list[int]:
    return [json.loads(one["data"])["data"]["value"] for one in islice(found, many)]


def test_events_come_in_order_first_old_ones_then_new_ones(served: Running, client: httpx.Client) -> None:
    read(served.log, 1, 2)
    with following(client) as found:
        assert values(found, 2) == [1, 2]
        read(served.log, 3)
        (one,) = islice(found, 1)
    shown = json.loads(one["data"])
    assert (one["event"], shown["data"]["value"], shown["position"]) == ("lamp.read", 3, 3)
    assert one["id"] == str(Cursor.after(served.log.identity.ledger, served.log.read("lamp/a")[-1]))


def test_a_client_chooses_where_to_begin_and_what_it_gets(served: Running, client: httpx.Client) -> None:
    read(served.log, 1)
    read(served.log, 2, stream="lamp/b")
    read(served.log, 3)
    with following(client, params={"after": 1, "prefix": "lamp/a"}) as found:
        assert values(found, 1) == [3]
    with following(client, params={"topic": "lamp.read", "after": 2}) as found:
        assert values(found, 1) == [3]


def test_a_client_that_comes_again_misses_nothing(served: Running, client: httpx.Client) -> None:
    read(served.log, *range(10))
    got: list[int] = []
    last: dict[str, str] = {}
    while len(got) < 10:
        with following(client, headers=last) as found:
            for one in islice(found, min(3, 10 - len(got))):
                got += [json.loads(one["data"])["data"]["value"]]
                last = {"Last-Event-ID": one["id"]}
    assert got == [*range(10)]


def test_an_id_of_another_history_is_gone(served: Running, client: httpx.Client) -> None:
    read(served.log, 1)
    good = Cursor.after(served.log.identity.ledger, served.log.read("lamp/a")[0])
    for id, status in (
        (str(Cursor(uuid4(), 1, good.mark)), 410), (str(Cursor(good.ledger, 1, "0" * 16)), 410),
        (str(Cursor(good.ledger, 7, good.mark)), 410), ("nonsense", 422),
    ):  # fmt: skip
        answer = client.get("/log/stream", headers={"Last-Event-ID": id})
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")


def test_many_clients_get_all_and_one_thread_watches_for_them(served: Running) -> None:
    got: dict[int, list[int]] = {}

    def follow(nth: int) -> None:
        with served.client(Role.READER) as client, following(client) as found:
            got[nth] = values(found, 5)

    threads = [threading.Thread(target=follow, args=(nth,)) for nth in range(12)]
    for thread in threads:
        thread.start()
    read(served.log, *range(5))
    for thread in threads:
        thread.join(60)
    assert got == {nth: [*range(5)] for nth in range(12)}
    eventually(lambda: not [one for one in threading.enumerate() if one.name == "news"])


def request(served: Running, path: str) -> bytes:
    token = served.tokens[Role.ADMIN]
    return f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()


@contextmanager
def connected(served: Running) -> Iterator[socket.socket]:
    place = urlsplit(served.url)
    with socket.create_connection((place.hostname or "", place.port or 0)) as one:
        one.settimeout(60)
        yield one


def test_a_cut_socket_ends_its_stream(served: Running) -> None:
    read(served.log, 1)
    with connected(served) as one:
        one.sendall(request(served, "/log/stream"))
        while b"lamp.read" not in one.recv(65536):
            pass
        assert [each for each in threading.enumerate() if each.name == "news"]
    eventually(lambda: not [each for each in threading.enumerate() if each.name == "news"])


def test_a_client_that_takes_nothing_is_dropped_and_disturbs_nobody(
    served: Running, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_sent_events, "PATIENCE", 0.5)
    large = Body("lamp.read", 1, json.dumps({"value": 7, "more": "x" * 200_000}))
    served.log.append("lamp/a", *[large] * 100)
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        place = urlsplit(served.url)
        slow.connect((place.hostname, place.port))
        slow.sendall(request(served, "/log/stream"))
        eventually(lambda: clients(served) == 1, 30)
        with following(client, params={"after": served.log.bound() - 1}) as found:
            assert values(found, 1) == [7]
            eventually(lambda: clients(served) == 1, 30)


def clients(served: Running) -> int:
    """How many streams of events are open."""
    news = [one for one in gc.get_objects() if isinstance(one, server_sent_events.News)]
    return sum(one._clients for one in news if one.ledger is served.log)
