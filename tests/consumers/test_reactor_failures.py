"""What goes wrong around a reaction stops its reactor loudly; what goes wrong with the server is ridden out.

What goes wrong with an event is in test_parked.py.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import psycopg
import pytest

import ledger
from consumers import Answer, Reactor
from ledger import Ledger, Recorded, ServerUnavailable
from ledger.errors import ReactionFailed
from tests.consumers.mourner import broken, mourn, mourning, values
from tests.faults.conftest import eventually
from tests.faults.crashes import between


def fail_after(condition: Callable[[], object], error: Exception) -> NoReturn:
    eventually(condition)
    raise error


def test_what_passes_stops_it_and_it_goes_on_when_that_is_mended(log: Ledger) -> None:
    a, b, c = broken(log, "a", "b", "c")
    faults = {b: ConnectionRefusedError("by b")}

    def faulty(event: Recorded) -> list[Answer]:
        if event.position in faults:
            raise faults[event.position]
        return mourn(event)

    reactor = Reactor(log, "mourner", faulty, topics={"lamp.broke"})
    stopped = rf"reactor mourner failed on the event at position {b} \(lamp.broke\)"
    sentence = f"{stopped}.* ConnectionRefusedError: by b"
    for _ in range(2):
        with pytest.raises(ReactionFailed, match=sentence) as failed:
            reactor.catch_up()
        assert (failed.value.position, failed.value.topic, reactor.position) == (b, "lamp.broke", a)
        assert failed.value.__cause__ is faults[b]
    with pytest.raises(ReactionFailed, match=sentence), reactor:
        reactor.wait_for(c)
    faults.clear()
    assert reactor.catch_up() == 2
    assert values(log)[::2] == ["a", "b", "c"]


def test_a_failure_in_the_background_comes_out(log: Ledger) -> None:
    broken(log, "a")

    def fail(event: Recorded) -> list[Answer]:
        raise TimeoutError(event.stream)

    reactor = Reactor(log, "failing", fail)
    with pytest.raises(ReactionFailed, match="TimeoutError"), reactor:
        eventually(lambda: reactor._failure)
    own = KeyError("of the body's own")
    with pytest.raises(KeyError) as raised, reactor:
        fail_after(lambda: reactor._failure, own)
    assert "The reactor failing had failed as well: reactor failing failed" in "".join(raised.value.__notes__)


def test_it_rides_out_lost_connections(log: Ledger, connect: Callable[..., psycopg.Connection[Any]]) -> None:
    killer = connect(autocommit=True)
    with mourning(log) as reactor:
        for name in "abcdefgh":
            (position,) = broken(log, name)
            killer.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND application_name LIKE 'pledger%%'"
            )
        assert reactor.wait_for(position)
    assert values(log)[::2] == list("abcdefgh")


def test_it_rides_out_a_server_that_is_away_in_the_middle_of_an_answer(log: Ledger, dsn: str) -> None:
    positions = broken(log, "a", "b", "c")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, between(dsn, Path(folder)) as proxy:

        def interrupted(event: Recorded) -> list[Answer]:
            if event.position == positions[1] and not opening.is_alive():
                proxy.shut()
                proxy.lose("message")
                opening.start()
            return mourn(event)

        opening = threading.Timer(0.5, proxy.open)
        with ledger.connect(proxy.dsn) as far:
            assert Reactor(far, "mourner", interrupted, topics={"lamp.broke"}).catch_up() == 3
        assert proxy.lost == 1
        opening.join()
    assert values(log)[::2] == ["a", "b", "c"]


def test_a_server_that_stays_away_ends_it(dsn: str) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, between(dsn, Path(folder)) as proxy:
        with ledger.connect(proxy.dsn, timeout=0.3) as far:
            reactor = mourning(far)
            broken(far, "a")
            proxy.shut()
            proxy.lose("message")
            with pytest.raises(ServerUnavailable):
                reactor.catch_up()
        proxy.open()
        with ledger.connect(proxy.dsn) as again:
            assert mourning(again).catch_up() == 1
