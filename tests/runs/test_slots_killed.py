"""Holders of slots and the services that free them are killed at any moment: slots equal the fold.

The oracle reads the table of events with SQL of its own, and shares no code with limits.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Iterable
from multiprocessing.process import BaseProcess
from typing import Any, Final

import psycopg
import pytest

from consumers.runs.slot_leases import SlotLeases
from ledger import Ledger
from ledger.runs.limit import OpenLimit
from ledger.runs.records import Records
from tests.runs.slot_processes import SECONDS, a_holder, a_service

FORKS: Final = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["tests.runs.slot_processes"])
EVENTS: Final = """
SELECT stream, topic, data FROM ledger.events WHERE stream LIKE 'concurrency_limit/%' ORDER BY position
"""
LIMITS: Final = {"one": 2, "two": 3, "three": 5}


Row = tuple[str, str, dict[str, Any]]


def folded(rows: Iterable[Row], most: dict[str, int]) -> tuple[int, dict[str, dict[str, float]]]:
    """How often slots were taken, and who holds them at the end. most: how many slots a stream's limit has.

    Fails where the history held too many at once, or gave the same slots back twice.
    """
    held: dict[str, dict[str, float]] = {stream: {} for stream in most}
    taken = 0
    for stream, topic, data in rows:
        mine = held[stream]
        if topic.endswith("slots_taken"):
            taken += data["lease"] not in mine
            mine[data["lease"]] = data["slots"]
            assert sum(mine.values()) <= most[stream], f"too many of {stream}"
        elif topic.endswith("slots_released"):
            assert data["lease"] in mine, f"{data['lease']} of {stream} came back twice"
            del mine[data["lease"]]
    return taken, held


def checked(dsn: str, ids: dict[str, int]) -> tuple[int, dict[str, dict[str, float]]]:
    """The fold of what is recorded."""
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(EVENTS).fetchall()
    return folded(rows, {OpenLimit.name_of(id): slots for id, slots in ids.items()})


def test_the_oracle_finds_what_is_wrong() -> None:
    def row(what: str, lease: str) -> Row:
        return "s", f"concurrency_limit.slots_{what}", {"lease": lease, "slots": 1}

    assert folded([row("taken", "a"), row("released", "a"), row("taken", "b")], {"s": 1}) == (
        2,
        {"s": {"b": 1}},
    )
    with pytest.raises(AssertionError, match="too many"):
        folded([row("taken", "a"), row("taken", "b")], {"s": 1})
    with pytest.raises(AssertionError, match="twice"):
        folded([row("taken", "a"), row("released", "a"), row("released", "a")], {"s": 1})


@pytest.mark.slow
def test_slots_equal_the_fold_whoever_is_killed(log: Ledger, dsn: str, minutes: float) -> None:
    chance = random.Random(5)
    records = Records(log)
    ids = {
        records.create("concurrency_limit", {"name": name, "limit": slots}).id: slots
        for name, slots in LIMITS.items()
    }

    def begun(target: Any, *args: Any) -> BaseProcess:
        process = FORKS.Process(target=target, args=(dsn, *args), daemon=True)
        process.start()
        return process

    def holder() -> BaseProcess:
        return begun(a_holder, [*LIMITS], chance.randint(0, 10**9))

    running, kills = [holder(), holder(), holder(), begun(a_service), begun(a_service)], 0
    deadline = time.monotonic() + 60 * minutes
    try:
        while time.monotonic() < deadline:
            time.sleep(chance.random())
            nth = chance.randrange(len(running))
            running[nth].kill()
            running[nth].join()
            running[nth] = holder() if nth < 3 else begun(a_service)
            kills += 1
            checked(dsn, ids)
    finally:
        for process in running:
            process.kill()
            process.join()
    service = SlotLeases(log)
    until = time.monotonic() + 90
    while any(checked(dsn, ids)[1].values()) and time.monotonic() < until:
        time.sleep(SECONDS)
        with psycopg.connect(dsn, autocommit=True) as connection:  # what lost its row gets a minute
            connection.execute("UPDATE ledger.run_leases SET until = least(until, now() + interval '0.2 s')")
        service.run_once()
    taken, held = checked(dsn, ids)
    assert kills > 10 * minutes
    assert taken > kills
    assert not any(held.values())
    assert all(not log.load(OpenLimit, id).state.holdings for id in ids)
