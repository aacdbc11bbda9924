"""Views are exact while writers write and it changes who keeps them."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import psycopg
import pytest

import ledger
import projections.views.in_state  # noqa: F401  declares the view
from ledger import Append, Body, Ledger, LedgerBusy
from ledger.domain.known import KNOWN
from projections.engine.attach import attach, detach
from projections.engine.projector import Projector
from tests.lamp import LampBroke, LampMade, LampRead, LampSwitchedOn, OpenLamp
from tests.views.kept_views import COUNTED, TALLIED, TALLY, counted, swap, tallied
from tests.views.lamps import states_by_hand

Connection = psycopg.Connection[Any]
IN_STATE = KNOWN.views["in_state"]


def states(connection: Connection) -> list[tuple[Any, ...]]:
    wanted = "SELECT stream, status, version, position FROM ledger_views.in_state"
    return sorted(connection.execute(wanted).fetchall())


def write(log: Ledger, number: int, over: threading.Event, waits: list[float]) -> None:
    """Appends of all kinds, until it is over; one in five is undone."""
    chance = random.Random(number)
    with psycopg.connect(log.address.conninfo) as user:
        while not over.is_set():
            stream, began = f"lamp/{chance.randrange(24)}", time.monotonic()
            with suppress(LedgerBusy):
                match chance.randrange(7):
                    case 0 | 1:
                        log.append(stream, LampRead())
                    case 2:
                        log.append(f"wild/{number}", LampRead(), LampRead(), head=False)
                    case 3:
                        several = [Append(f"lamp/{n}", [Body("lamp.switched_on", 1, "{}")]) for n in range(3)]
                        log.append_all(several)
                    case 4:
                        with (
                            suppress(ledger.StreamConflict),
                            log.open(OpenLamp, chance.randrange(24)) as lamp,
                        ):
                            lamp.read()
                    case _:
                        join(log, user, chance, stream)
            waits.append(time.monotonic() - began)


def join(log: Ledger, user: Connection, chance: random.Random, stream: str) -> None:
    level = psycopg.IsolationLevel
    user.isolation_level = chance.choice([level.READ_COMMITTED, level.REPEATABLE_READ])
    try:
        with user.transaction(force_rollback=chance.random() < 0.2):
            with user.transaction(force_rollback=chance.random() < 0.5), log.join(user) as joined:
                joined.append(stream, LampBroke())
            with log.join(user) as joined:
                joined.append(f"{stream}x", LampMade(), LampSwitchedOn())
    finally:
        user.rollback()


def campaign(dsn: str, seconds: float, writers: int) -> float:
    """Attach, detach and swap while writers write; the views are exact at every change. The longest wait."""
    over, waits = threading.Event(), list[float]()
    with (
        ledger.connect(dsn, actor="w", max_size=writers + 4) as log,
        ThreadPoolExecutor(writers) as threads,
        psycopg.connect(dsn, autocommit=True) as connection,
        Projector(log, [TALLY, IN_STATE]),
        Projector(log, [TALLY]),
    ):
        running = [threads.submit(write, log, number, over, waits) for number in range(writers)]
        deadline = time.monotonic() + seconds
        try:
            while time.monotonic() < deadline:
                for view in (TALLY, IN_STATE):
                    attach(log, view)
                both = connection.execute(f"SELECT ARRAY({_as_rows(TALLIED)}), ARRAY({_as_rows(COUNTED)})")
                ((shown, true),) = both.fetchall()
                assert shown == true
                swap(log, TALLY)
                for view in (TALLY, IN_STATE):
                    detach(log, view)
        finally:
            over.set()
        for one in running:
            one.result()
        Projector(log, [TALLY, IN_STATE]).catch_up()
        assert tallied(connection) == counted(connection)
        assert states(connection) == states_by_hand(log)
        assert len(waits) > writers
    return max(waits)


def _as_rows(query: str) -> str:
    return f"SELECT r::text FROM ({query}) r"


def test_views_are_exact_while_writers_write_and_the_keeper_changes(dsn: str) -> None:
    assert campaign(dsn, 2.0, 16) < 5


@pytest.mark.slow
def test_views_are_exact_for_long(dsn: str, minutes: float) -> None:
    assert campaign(dsn, minutes * 60, 16) < 2
