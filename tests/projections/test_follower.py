"""The follower delivers each event once and in order, wherever it starts and whatever happens to it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from ledger import Cursor, CursorMismatch, Ledger
from projections import Follower
from tests.lamp import LampBroke, LampMade, LampRead


def test_it_delivers_everything_after_its_position_in_batches(log: Ledger) -> None:
    positions = [log.append("a", LampRead(value=i)).last_position for i in range(25)]
    follower = Follower(log, after=positions[4], batch=10)
    batches = [follower.poll() for _ in range(3)]
    assert [len(batch) for batch in batches] == [10, 10, 0]
    assert [event.position for batch in batches for event in batch] == positions[5:]
    assert follower.position == positions[-1]


def test_topics_that_are_not_wanted_are_passed_over(log: Ledger) -> None:
    for i in range(30):
        log.append("a", LampMade() if i == 20 else LampRead())
    follower = Follower(log, topics={"lamp.made"}, batch=5)
    assert [event.topic for event in follower.poll()] == ["lamp.made"]
    assert follower.poll() == []
    assert follower.position == log.bound()


def test_it_goes_on_from_its_cursor(log: Ledger) -> None:
    log.append("a", LampMade(), LampRead(), LampBroke())
    first = Follower(log, batch=2)
    first.poll()
    second = Follower(log, Cursor.parse(str(first.cursor)))
    assert [event.topic for event in second.poll()] == ["lamp.broke"]
    assert Follower(log, Follower(log).cursor).position == 0


def test_a_cursor_of_another_history_is_refused(log: Ledger) -> None:
    log.append("a", LampMade())
    cursor = Cursor.after(log.identity.ledger, log.read("a")[0])
    for wrong in (
        Cursor(uuid4(), cursor.position, cursor.mark),
        Cursor(cursor.ledger, cursor.position + 5, cursor.mark),
        Cursor(cursor.ledger, cursor.position, "0" * 16),
    ):
        with pytest.raises(CursorMismatch):
            Follower(log, wrong)


def test_an_append_that_is_open_holds_back_what_comes_after_it_and_nothing_else(
    log: Ledger, connect: Callable[..., psycopg.Connection[Any]]
) -> None:
    unrelated = connect()
    unrelated.execute("CREATE TEMP TABLE busy AS SELECT txid_current()")
    follower = Follower(log)
    log.append("a", LampMade())
    assert len(follower.poll()) == 1
    slow = connect()
    with slow.transaction():
        with log.join(slow) as joined:
            joined.append("slow", LampRead())
        log.append("a", LampRead())
        assert follower.poll() == []
    assert [event.stream for event in follower.poll()] == ["slow", "a"]


def test_a_follower_that_waits_is_woken_by_an_append_of_its_process(log: Ledger) -> None:
    stop, got = threading.Event(), []
    follower = Follower(log)

    def follow() -> None:
        for batch in follower.batches(stop):
            got.extend(batch)
            if len(got) == 20:
                stop.set()

    thread = threading.Thread(target=follow)
    thread.start()
    for i in range(20):
        log.append("a", LampRead(value=i))
    thread.join(30)
    assert [event.version for event in got] == list(range(1, 21))


def test_it_survives_the_loss_of_its_connection(log: Ledger, connection: psycopg.Connection[Any]) -> None:
    log.append("a", LampMade())
    follower = Follower(log)
    batches = follower.batches()
    assert len(next(batches)) == 1
    connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pledger tail'"
    )
    log.append("a", LampRead())
    assert [event.version for event in next(batches)] == [2]


def test_stop_ends_it_while_it_waits(log: Ledger) -> None:
    stop = threading.Event()
    batches = Follower(log).batches(stop)
    threading.Timer(0.05, stop.set).start()
    assert list(batches) == []
