"""A rebuild is killed while the server commits its switch: whoever comes next finds the switch in time."""

from __future__ import annotations

import threading
import time
from typing import Any

import psycopg

import projections.views.in_state  # noqa: F401  declares the view
from ledger import Ledger
from ledger.domain.known import KNOWN
from ledger.log.announce import announce
from projections import Projector, rebuild
from projections.engine.apply import Applier
from projections.engine.copies import Copies, projecting
from projections.engine.rebuild import _Builder, locked_live, only_builder
from tests.views.lamps import lamps, rows, states_by_hand

IN_STATE = KNOWN.views["in_state"]
Connection = psycopg.Connection[Any]


def test_a_check_does_not_drop_the_copy_that_a_killed_rebuild_still_switches_to(
    log: Ledger, connection: Connection
) -> None:
    lamps(log, 5)
    Projector(log, [IN_STATE]).catch_up()
    faults: list[BaseException] = []

    def check() -> None:
        try:
            rebuild(log, IN_STATE, dry_run=True, restart=True)
        except BaseException as error:
            faults.append(error)

    with projecting(log) as killed:
        copies = Copies(killed, log.schema)
        builder = _Builder(log, copies, IN_STATE, 100, None)
        with only_builder(copies, IN_STATE):
            live = copies.live(IN_STATE)
            assert live is not None
            new = builder._fill(copies.begin(IN_STATE), live)
        with locked_live(log, IN_STATE, live) as locked:  # its other connection lives on for a moment
            locked.copies.switch(IN_STATE, new.number)
            checking = threading.Thread(target=check)
            checking.start()
            time.sleep(0.12)
    checking.join()

    assert not faults
    assert rows(connection) == states_by_hand(log) != []
    lamps(log, 5)
    Projector(log, [IN_STATE]).catch_up()
    assert rows(connection) == states_by_hand(log)


def test_a_first_rebuild_does_not_go_back_behind_a_copy_that_a_projector_made_meanwhile(
    log: Ledger, connection: Connection
) -> None:
    announce(log)
    lamps(log, 5)
    with projecting(log) as own:
        copies = Copies(own, log.schema)
        builder = _Builder(log, copies, IN_STATE, 100, None)
        new = builder._fill(copies.begin(IN_STATE), None)
        lamps(log, 9)
        with projecting(log) as projector, projector.transaction():  # makes the first copy, and fills it
            copy = Copies(projector, log.schema).followed(IN_STATE)
            Applier(Copies(projector, log.schema), IN_STATE, copy).apply(0, log.bound(), 23)
            switching = threading.Thread(target=builder._switch, args=(new,))
            switching.start()
            time.sleep(0.2)
        switching.join()

    assert rows(connection) == states_by_hand(log) != []
