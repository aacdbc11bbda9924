"""A server in a thread of this process, on real sockets, and clients with a token of each role."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
import pytest

import ledger
from gateway.http.app import Settings
from gateway.http.serve import listening, serve
from ledger import Ledger
from ledger.jobs import Jobs
from ledger.pipelines.lsm import LSMStateService
from ledger.tokens import Role, Tokens
from projections import Projector
from projections.shipped import load
from tests.gateway.timed import Loan


@dataclass(frozen=True)
class Running:
    """A server that runs: its address, its ledger, and the token of each role."""

    url: str
    log: Ledger
    tokens: dict[Role, str]

    def client(self, role: Role | None = Role.ADMIN) -> httpx.Client:
        """A client with a token of this role, or without one."""
        headers = {} if role is None else {"Authorization": f"Bearer {self.tokens[role]}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60)

    def project(self) -> None:
        """Bring all views up to date."""
        Projector(self.log).catch_up()


@contextmanager
def running(dsn: str, settings: Settings | None = None) -> Iterator[Running]:
    """A server on this ledger while the block runs."""
    load()
    stop = threading.Event()
    with (
        ledger.connect(dsn, actor="server", max_size=12, timeout=5) as log,
        listening("127.0.0.1", 0) as place,
    ):
        tokens = {role: Tokens(log).add(f"the {role}", role)[0] for role in Role}
        given = (log, place, stop, settings or Settings(), lambda: None)
        thread = threading.Thread(target=serve, args=given)
        thread.start()
        try:
            yield Running(f"http://127.0.0.1:{place.getsockname()[1]}", log, tokens)
        finally:
            stop.set()
            thread.join(30)
        assert not thread.is_alive(), "the server did not stop"


@pytest.fixture
def served(dsn: str) -> Iterator[Running]:
    """A server on this test's ledger."""
    with running(dsn) as server:
        yield server


@pytest.fixture
def client(served: Running) -> Iterator[httpx.Client]:
    """A client that may do everything."""
    with served.client() as opened:
        yield opened


def fill(log: Ledger) -> str:
    """Something of everything that the routes show; returns the id of a job."""
    jobs = Jobs(log)
    job, *_ = [jobs.submit("count", {"n": n}) for n in range(3)]
    jobs.comment(job, "begin with this one", "mina")
    with LSMStateService(log).open_strip("mouse", slice_id=1, strip_id=1) as strip:
        strip.mark_completed()
    Loan(log, "book").move("lent")
    Projector(log).catch_up()
    return job
