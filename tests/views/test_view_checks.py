"""Verifying views: what differs is named, and repaired; under writers there is no false alarm."""

from __future__ import annotations

import threading
from typing import Any

import psycopg

import projections.views.in_state  # noqa: F401  declares the view
from ledger import Ledger
from ledger.domain.known import KNOWN
from projections.engine.check import ViewCheck
from projections.engine.projector import Projector
from projections.verify import verify
from projections.verify.difference import Difference
from tests.views.lamps import lamps, states_by_hand

IN_STATE = KNOWN.views["in_state"]
Connection = psycopg.Connection[Any]


def found(log: Ledger, *, repair: bool = False) -> list[Difference]:
    """What a check of the view finds."""
    seen: list[Difference] = []
    verify(log, processes=1, checks=[ViewCheck(IN_STATE)], repair=repair, found=seen.append)
    return [difference for difference in seen if difference.view]


def test_a_row_that_differs_is_named_with_its_stream_and_version(log: Ledger, connection: Connection) -> None:
    lamps(log, 4)
    Projector(log, [IN_STATE]).catch_up()
    assert not found(log)
    connection.execute("SET ROLE ledger_projector")
    connection.execute("UPDATE ledger_views.in_state_1 SET status = 'broken' WHERE stream = 'lamp/1'")
    connection.execute("DELETE FROM ledger_views.in_state_1 WHERE stream = 'lamp/2'")
    connection.execute("UPDATE ledger_views.in_state_1 SET stream = 'lamp/ghost' WHERE stream = 'lamp/3'")

    named = {difference.about: difference for difference in found(log)}

    assert sorted(named) == ["lamp/1", "lamp/2", "lamp/3", "lamp/ghost"]
    assert (named["lamp/1"].version, named["lamp/1"].fields) == (2, (("status", '"broken"', '"on"'),))
    assert "is missing" in named["lamp/2"].says
    assert "exists without an event" in named["lamp/ghost"].says

    assert all(difference.is_repaired for difference in found(log, repair=True))
    assert not found(log)
    rows = connection.execute(
        "SELECT stream, status, version, position FROM ledger_views.in_state"
    ).fetchall()
    assert sorted(rows) == states_by_hand(log)


def test_a_view_that_nobody_made_has_nothing_to_compare(log: Ledger) -> None:
    lamps(log, 2)
    assert not found(log)


def test_under_writers_and_a_projector_there_is_no_false_alarm(log: Ledger) -> None:
    lamps(log, 5)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            lamps(log, 5)

    writer = threading.Thread(target=write)
    with Projector(log, [IN_STATE]) as projector:
        projector.wait_for(log.bound())
        writer.start()
        try:
            for _ in range(5):
                assert not found(log)
        finally:
            stop.set()
            writer.join()
