"""Joins in savepoints and in stricter transactions."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from ledger import (
    NEW,
    Ledger,
    LedgerBusy,
    StreamConflict,
)
from tests.lamp import LampMade, LampRead, OpenLamp, Status
from tests.log.test_joining import items, put

Connection = psycopg.Connection[Any]
Connect = Callable[..., Connection]


def test_one_join_after_the_other_sees_what_the_first_recorded(log: Ledger, user: Connection) -> None:
    for act in ("make", "switch_on", "break_"):
        with log.join(user) as joined, joined.open(OpenLamp, "a") as lamp:
            getattr(lamp, act)()
    assert log.load(OpenLamp, "a").version == 0
    user.commit()
    assert log.load(OpenLamp, "a").state.status is Status.BROKEN


def test_a_join_in_a_savepoint_is_rolled_back_with_it(log: Ledger, user: Connection) -> None:
    put(user)
    with log.join(user) as outer:
        outer.append("lamp/a", LampMade())
    with user.transaction() as savepoint:
        put(user, "undone")
        with log.join(user) as joined:
            joined.append("lamp/a", LampRead(), expected=1)
            joined.append("lamp/b", LampMade())
        raise psycopg.Rollback(savepoint)
    with user.transaction(), log.join(user) as joined:
        joined.append("lamp/c", LampMade())
    user.commit()
    assert (items(user), {i.stream: i.version for i in log.streams()}) == (
        ["lamp"],
        {"lamp/a": 1, "lamp/c": 1},
    )
    assert log.bound() >= 2


def test_a_savepoint_around_a_refusal_and_one_inside(log: Ledger, user: Connection) -> None:
    log.append("lamp/a", LampMade())
    with pytest.raises(StreamConflict), user.transaction(), log.join(user) as joined:
        joined.append("lamp/a", LampMade(), expected=NEW)
    with log.join(user) as joined:
        with user.transaction():
            put(user)
        joined.append("lamp/a", LampRead())
    user.commit()
    assert (items(user), log.load(OpenLamp, "a").version) == (["lamp"], 2)


LEVELS = [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("events", [1, 2])
@pytest.mark.parametrize("head", [True, False])
def test_stricter_transactions_record_or_say_that_another_came(
    log: Ledger, user: Connection, level: psycopg.IsolationLevel, events: int, head: bool
) -> None:
    user.isolation_level = level
    put(user)
    with log.join(user) as joined:
        joined.append("lamp/a", *[LampRead()] * events, expected=NEW)
    user.commit()
    assert items(user) == ["lamp"]
    log.append("lamp/a", LampRead(), head=head)  # after the snapshot that `items` took
    with pytest.raises((LedgerBusy, StreamConflict)), log.join(user) as joined:
        joined.append("lamp/a", *[LampRead()] * events, expected=events)
    user.rollback()
    assert [recorded.version for recorded in log.read("lamp/a")] == list(range(1, events + 2))


@pytest.mark.parametrize("level", LEVELS)
def test_stricter_transactions_never_record_a_version_twice(
    log: Ledger, connect: Connect, level: psycopg.IsolationLevel
) -> None:
    def work(connection: Connection) -> int:
        done = 0
        connection.isolation_level = level
        for _ in range(15):
            try:
                with connection.transaction(), log.join(connection) as joined:
                    with joined.open(OpenLamp, "a") as lamp:
                        lamp.read(lamp.version)
                done += 1
            except (LedgerBusy, StreamConflict):
                pass
        return done

    with ThreadPoolExecutor(4) as threads:
        done = sum(threads.map(work, [connect() for _ in range(4)]))
    assert [found.event for found in log.read("lamp/a")] == [LampRead(value=n) for n in range(done)]
    assert done >= 15
