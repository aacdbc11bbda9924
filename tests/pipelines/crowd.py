"""A crowd of threads that do one thing at one moment, and the ways in which they enter a stage."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from ledger import NO_LOCKS, Ledger
from ledger.log.ledger import connect
from ledger.pipelines import Entry, LSMStateService, LSMStripId, enter_flow_stage, enter_milestone_stage
from tests.pipelines.recorded_facts import words

both_ways = pytest.mark.parametrize("locked", [True, False], ids=["advisory locks", "no locks"])
both_stages = pytest.mark.parametrize("guard", ["flow", "milestone"])


def service_of(log: Ledger, locked: bool) -> LSMStateService:
    return LSMStateService(log) if locked else LSMStateService(log, locks=NO_LOCKS)


def enter(guard: str, service: LSMStateService, strip: LSMStripId, **ways: Any) -> Entry:
    if guard == "flow":
        return enter_flow_stage(service, strip, **ways)
    return enter_milestone_stage(service, strip, "compressed", **ways)


def entered(log: Ledger, stream: str) -> int:
    """How often work on this strip began."""
    return sum(word in ("started", "entered") for word in words(log, stream))


class Crowd:
    """Threads that do the same thing at the same moment."""

    def __init__(self, size: int) -> None:
        self.size, self._pool = size, ThreadPoolExecutor(size)
        self._gate = threading.Barrier(size, timeout=60)

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def all(self, *works: Callable[[], Any]) -> list[Any]:
        """What each thread gets; they share the works among them."""

        def one(number: int) -> Any:
            self._gate.wait()
            return works[number % len(works)]()

        return [done.result(timeout=60) for done in [self._pool.submit(one, i) for i in range(self.size)]]


@contextmanager
def open_elsewhere(dsn: str, project: str = "p") -> Iterator[threading.Event]:
    """The project is open in another thread and ledger, until the event is set or the block ends."""
    opened, release = threading.Event(), threading.Event()

    def hold() -> None:
        with connect(dsn, actor="other") as theirs, LSMStateService(theirs).open_project(project):
            opened.set()
            assert release.wait(60)

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(hold)
        try:
            assert opened.wait(30)
            yield release
        finally:
            release.set()
        holding.result(timeout=30)
