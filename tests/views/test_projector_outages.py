"""Each event once, however many follow a view, and whatever is killed, cut off or timed out."""

from __future__ import annotations

import logging
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg import sql

import ledger
from ledger import Ledger
from ledger.embedded import throwaway
from ledger.log.install import init
from projections.engine.projector import Projector
from tests.faults.conftest import CHILD_PATH, eventually
from tests.faults.crashes import crash
from tests.lamp import LampMade, LampRead
from tests.views.views_of_tests import ADD_WATTS, WATTS, Declare, declare, summed, watts, watts_by_hand

assert declare
Connection = psycopg.Connection[Any]
CHILD = f"""
import sys, ledger
from projections.engine.projector import Projector
from projections.engine.view import View
class Watts(View):
    name, topics, tables, statements = "watts", ("lamp.made",), {WATTS!r}, ({ADD_WATTS!r},)
with ledger.connect(sys.argv[1]) as log:
    print("ready", flush=True)
    Projector(log, batch=20).run()
"""


@contextmanager
def writing(log: Ledger, threads: int = 2) -> Iterator[None]:
    """Writers that make lamps and read them, one or a few events an append, until the block ends."""
    stop = threading.Event()

    def write(seed: int) -> None:
        dice = random.Random(seed)
        while not stop.is_set():
            events = [LampMade(watts=dice.randrange(5)) for _ in range(dice.randrange(1, 4))]
            log.append(f"lamp/{dice.randrange(30)}", *events, LampRead())

    writers = [threading.Thread(target=write, args=(n,)) for n in range(threads)]
    for writer in writers:
        writer.start()
    try:
        yield
    finally:
        stop.set()
        for writer in writers:
            writer.join()


def followed_events(connection: Connection) -> tuple[int, int]:
    """How many events the view looked at, and how many there are."""
    row = connection.execute(
        "SELECT coalesce((SELECT events FROM ledger.view_copies WHERE view = 'watts'), 0), "
        "(SELECT count(*) FROM ledger.events)"
    ).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


@pytest.mark.parametrize("python", [False, True])
def test_many_at_a_time_apply_each_event_once(
    log: Ledger, dsn: str, connection: Connection, declare: Declare, python: bool
) -> None:
    view = declare(apply=lambda self, batch: summed(batch)) if python else declare()
    with ledger.connect(dsn, create=False) as other:
        projectors = [Projector(one, [view], batch=7) for one in (log, log, other, other)]
        with writing(log):
            for projector in projectors:
                projector.__enter__()
            eventually(lambda: sum(one.applied["watts"] > 0 for one in projectors) > 1)
            eventually(lambda: followed_events(connection)[0] > 300)
        for projector in projectors:
            assert projector.wait_for(log.bound())
            projector.__exit__(None, None, None)
    looked, there = followed_events(connection)
    assert (looked, watts(connection)) == (there, watts_by_hand(connection))
    assert sum(projector.applied["watts"] for projector in projectors) == there


@pytest.mark.slow
def test_killed_ones_leave_nothing_half_done(
    log: Ledger, dsn: str, connection: Connection, declare: Declare
) -> None:
    view = declare()
    with writing(log, 1):
        for _ in range(2):
            before = followed_events(connection)[0]
            child = subprocess.Popen(
                [sys.executable, "-c", CHILD, dsn], env={"PYTHONPATH": CHILD_PATH}, stdout=subprocess.PIPE
            )
            try:
                eventually(lambda before=before: followed_events(connection)[0] > before + 50)  # type: ignore[misc]
            finally:
                child.kill()
                child.communicate()
    Projector(log, [view]).catch_up()
    looked, there = followed_events(connection)
    assert (looked, watts(connection)) == (there, watts_by_hand(connection))


@pytest.mark.slow
def test_it_survives_a_server_that_is_killed(declare: Declare, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    view = declare()
    with throwaway(durable=True) as server:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            init(connection)
        with (
            ledger.connect(server.dsn(), actor="tester") as log,
            Projector(log, [view], batch=10) as projector,
        ):
            for n in range(3):
                for _ in range(40):
                    log.append(f"lamp/{n}", LampMade(watts=n))
                crash(server)
                position = log.append("lamp/x", LampMade(), command=f"after {n}").last_position
                assert projector.wait_for(position)
            with psycopg.connect(server.dsn(), autocommit=True) as connection:
                looked, there = followed_events(connection)
                assert (looked, watts(connection)) == (there, watts_by_hand(connection))


@pytest.mark.parametrize("once", [False, True])
def test_it_survives_lost_connections(
    log: Ledger, connection: Connection, declare: Declare, caplog: pytest.LogCaptureFixture, once: bool
) -> None:
    caplog.set_level(logging.CRITICAL)
    view = declare()
    ours = "FROM pg_stat_activity WHERE application_name = 'pledger views'"

    def cut() -> None:
        with psycopg.connect(log.address.conninfo, autocommit=True) as killer:
            for there in (1, 40, 100, 170):
                eventually(lambda there=there: followed_events(killer)[0] >= there)  # type: ignore[misc]
                killer.execute(f"SELECT pg_terminate_backend(pid) {ours}")

    for n in range(300):
        log.append(f"lamp/{n % 9}", LampMade(watts=n))
    cutter = threading.Thread(target=cut)
    cutter.start()
    try:
        projector = Projector(log, [view], batch=3)
        if once:
            assert projector.catch_up() == {"watts": 300}
        else:
            with projector:
                assert projector.wait_for(300)
    finally:
        cutter.join()
    assert (followed_events(connection), watts(connection)) == ((300, 300), watts_by_hand(connection))


def test_a_statement_timeout_of_the_role_cuts_no_batch(
    log: Ledger, admin_dsn: str, database: str, connection: Connection, declare: Declare
) -> None:
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        user = connection.info.user
        alter = sql.SQL("ALTER ROLE {} IN DATABASE {} {} statement_timeout")
        names = sql.Identifier(user), sql.Identifier(database)
        admin.execute(sql.SQL("{} = '50ms'").format(alter.format(*names, sql.SQL("SET"))))
    slow = declare(statements=("SELECT pg_sleep(0.2) FROM {batch} b", ADD_WATTS))
    log.append("lamp/a", LampMade())
    Projector(log, [slow]).catch_up()
    assert watts(connection) == watts_by_hand(connection)
