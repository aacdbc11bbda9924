"""A move that the table alone decides takes one round trip, and records what the long way would record."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import ledger.machines.machine as machine_module
from ledger import Ledger, TransitionConflict
from ledger.log.ledger import Ledger as Store
from tests.benchmarks.machines import Swing
from tests.machines.test_benchmark import WAITING

ODD = {"odd": '\x03\x02 "from_state":null "moves":0 é', "deep": {"from_state": None, "moves": 0}}


def facts(log: Ledger, key: str) -> list[Any]:
    """What is recorded of an object, without times and positions; and its head."""
    head = log.head(f"swing/{key}")
    assert head is not None
    assert head.state is not None
    rows = [(row.version, row.topic, row.data) for row in log.read(f"swing/{key}")]
    moves = [
        (m.number, m.from_state, m.to_state, m.metadata, m.definition) for m in Swing(log, key).history()
    ]
    return [rows, moves, head.version, head.state_version, head.status, head.state_schema]


def test_the_short_way_records_what_the_long_way_does(log: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    Swing(log, "first").move("b")
    opened: list[Any] = []
    load = Store.load
    monkeypatch.setattr(Store, "load", lambda *a, **k: opened.append(a) or load(*a, **k))  # type: ignore[func-returns-value]
    for to_state, said in (("b", {}), ("a", ODD), ("a", {}), ("b", ODD)):
        done = Swing(log, "short").move(to_state, **said)
        assert Swing(log, "short").history()[-1] == done
    assert not opened
    monkeypatch.setattr(machine_module, "fast_move", lambda *_: None)
    for to_state, said in (("b", {}), ("a", ODD), ("a", {}), ("b", ODD)):
        Swing(log, "long").move(to_state, **said)
    assert opened
    assert facts(log, "short") == facts(log, "long")
    assert Swing(log, "short").last_transition() == Swing(log, "short").history()[-1]


@pytest.mark.parametrize("change", ["DELETE FROM ledger.heads", "UPDATE ledger.heads SET state_schema = 1"])
def test_a_head_that_does_not_tell_is_opened(log: Ledger, admin_dsn: str, change: str) -> None:
    for to_state in "bab":
        Swing(log, "x").move(to_state)
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute(change.encode())
    done = Swing(log, "x").move("a")
    assert (done.number, done.from_state, done.to_state) == (4, "b", "a")
    assert Swing(log, "x").move("b").number == 5


def test_who_is_beaten_while_it_waits_gets_the_conflict(
    log: Ledger, connect: Callable[..., psycopg.Connection[Any]]
) -> None:
    Swing(log, "x").move("b")
    user = connect()
    with ThreadPoolExecutor(1) as pool, connect(autocommit=True) as watcher:
        with user.transaction():
            with log.join(user) as joined:
                Swing(joined, "x").move("a")
            beaten = pool.submit(Swing(log, "x").move, "b")
            deadline = time.monotonic() + 20
            while watcher.execute(WAITING).fetchone() is None and time.monotonic() < deadline:
                time.sleep(0.005)
        with pytest.raises(TransitionConflict, match="before the move to b was recorded"):
            beaten.result(20)
    assert [move.to_state for move in Swing(log, "x").history()] == ["b", "a"]


def test_statements_prepared_again_after_all_were_forgotten(log: Ledger) -> None:
    Swing(log, "x").move("b")
    with log.pool.connection() as connection:
        connection.execute("DEALLOCATE ALL")
    for to_state in "abab":
        log.load(Swing.streams(), "x")  # prepares another statement first
        Swing(log, "x").move(to_state)
    assert Swing(log, "x").last_transition() == Swing(log, "x").history()[-1]
