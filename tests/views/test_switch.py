"""Switching to a rebuilt copy while others read, write and project: nobody waits, nothing is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import ledger
from ledger import Ledger
from ledger.domain.known import KNOWN
from projections import Projector, attach, detach, rebuild, roll_back
from tests.views.lamps import copies, lamps, rows, states_by_hand

IN_STATE = KNOWN.views["in_state"]
Connection = psycopg.Connection[Any]


def test_a_reader_who_reads_for_long_holds_up_neither_switch_nor_appends(
    log: Ledger, connection: Connection, connect: Callable[..., Connection]
) -> None:
    lamps(log, 5)
    Projector(log, [IN_STATE]).catch_up()
    reader = connect()
    seen = reader.execute("SELECT count(*) FROM ledger_views.in_state").fetchone()  # and it stays open
    slowest = [0.0]
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            began = time.monotonic()
            lamps(log, 1)
            slowest[0] = max(slowest[0], time.monotonic() - began)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(3):
            rebuild(log, IN_STATE)
    finally:
        stop.set()
        writer.join()
    assert slowest[0] < 1.0
    assert reader.execute("SELECT count(*) FROM ledger_views.in_state").fetchone() == seen
    reader.rollback()
    Projector(log, [IN_STATE]).catch_up()
    assert rows(connection) == states_by_hand(log)
    rebuild(log, IN_STATE)  # now what could not be dropped goes
    assert len(copies(connection)) == 2


def swaps(log: Ledger, dsn: str, connection: Connection, many: int, writers: int) -> None:
    """Switch again and again under writers and two projectors; in the end the view equals the fold.

    Every tenth time to a copy that is built from the whole log, which grows all the while; else back to the
    one before, brought to where the live one is.
    """
    stop = threading.Event()
    faults: list[BaseException] = []

    def write(number: int) -> None:
        try:
            with ledger.connect(dsn, create=False, max_size=1) as mine:
                while not stop.is_set():
                    lamps(mine, 3, first=number * 10)
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    with ledger.connect(dsn, create=False) as other, Projector(log, [IN_STATE]), Projector(other, [IN_STATE]):
        for thread in threads:
            thread.start()
        try:
            for nth in range(many):
                made = roll_back(log, IN_STATE) if nth % 10 else rebuild(log, IN_STATE)
                assert made.switched
                assert not made.differences
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    Projector(log, [IN_STATE]).catch_up()
    assert not faults
    assert rows(connection) == states_by_hand(log)


@pytest.mark.slow
def test_switched_under_writers_it_equals_the_fold(log: Ledger, dsn: str, connection: Connection) -> None:
    swaps(log, dsn, connection, 12, 3)


@pytest.mark.slow
def test_a_hundred_switches_under_sixteen_writers(log: Ledger, dsn: str, connection: Connection) -> None:
    swaps(log, dsn, connection, 100, 16)


def test_a_view_that_appends_keep_is_rebuilt_under_writers(
    log: Ledger, dsn: str, connection: Connection
) -> None:
    lamps(log, 5)
    attach(log, IN_STATE)
    stop = threading.Event()

    def write(number: int) -> None:
        with ledger.connect(dsn, create=False, max_size=1) as mine:
            while not stop.is_set():
                lamps(mine, 3, first=number * 10)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        made = [rebuild(log, IN_STATE) for _ in range(3)]
        back = roll_back(log, IN_STATE)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not any(one.differences for one in made)
    assert (made[-1].copy, back.copy) == (4, 3)
    assert rows(connection) == states_by_hand(log)  # with no projector at all
    detach(log, IN_STATE)
    lamps(log, 5)
    Projector(log, [IN_STATE]).catch_up()
    assert rows(connection) == states_by_hand(log)
    assert not rebuild(log, IN_STATE).differences
