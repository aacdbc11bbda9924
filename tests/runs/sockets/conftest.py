"""A server that only takes events, in a thread of this process, on a ledger that the tests here share."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import pytest

from gateway.http.serve import listening
from ledger import Ledger
from ledger.embedded import Embedded
from ledger.tokens import Role, Tokens
from tests.runs.raw_socket import RawSocket
from tests.runs.sockets.events_server import Readings, serve_events
from tests.shared_ledger import shared_ledger

_lamps = count()


@dataclass(frozen=True)
class Served:
    """A server that runs, and the tokens of a reader and of an operator."""

    url: str
    record: Readings
    tokens: dict[Role, str]

    @property
    def log(self) -> Ledger:
        """Its ledger."""
        return self.record.log

    def socket(self, token: str | None = None, path: str = "/events/in") -> RawSocket:
        """A client that has logged in."""
        one = RawSocket(self.url, path)
        one.log_in(token)
        return one

    def read(self, lamp: str) -> list[object]:
        """What is recorded of a lamp."""
        if self.log.head(f"lamp/{lamp}") is None:
            return []
        return [json.loads(event.data or "")["value"] for event in self.log.read(f"lamp/{lamp}")]


@pytest.fixture(scope="session")
def socket_log(postgres: Embedded, template: str) -> Iterator[Ledger]:
    """A ledger of the tests here."""
    with shared_ledger(postgres, template, "sockets") as log:
        yield log


@pytest.fixture(scope="session")
def served(socket_log: Ledger) -> Iterator[Served]:
    """The server."""
    stop, ready, record = threading.Event(), threading.Event(), Readings(socket_log)
    tokens = {role: Tokens(socket_log).add(role, role)[0] for role in (Role.READER, Role.OPERATOR)}
    with listening("127.0.0.1", 0) as place:
        given = {"record": record, "place": place, "stop": stop, "ready": ready.set}
        thread = threading.Thread(target=serve_events, kwargs=given)
        thread.start()
        assert ready.wait(30)
        yield Served(f"http://127.0.0.1:{place.getsockname()[1]}", record, tokens)
        stop.set()
        thread.join(30)
    assert not thread.is_alive()


@pytest.fixture
def lamp() -> str:
    """The name of a lamp of this test's own."""
    return f"l{next(_lamps)}"
