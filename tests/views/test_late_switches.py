"""A rebuild is killed while the server commits its switch: whoever comes next finds the switch in time."""

from __future__ import annotations

import threading
import time
from typing import Any

import psycopg

import projections.in_state  # noqa: F401  declares the view
from ledger import Ledger
from ledger.store.declaring import declare_moves
from projections import Projector, rebuild
from projections.views.applying import Applier
from projections.views.copies import Shelf, projecting
from projections.views.holding import held_where_it_is
from projections.views.rebuilding import _Builder, _only_builder
from projections.views.view import VIEWS
from tests.views.lamps import lamps, rows, states_by_hand

IN_STATE = VIEWS["in_state"]
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
        shelf = Shelf(killed, log.schema)
        builder = _Builder(log, shelf, IN_STATE, 100, None)
        with _only_builder(shelf, IN_STATE):
            live = shelf.live(IN_STATE)
            assert live is not None
            shadow = builder._fill(shelf.begin(IN_STATE), live)
        with held_where_it_is(log, IN_STATE, live) as held:  # its other connection lives on for a moment
            builder._show(held.shelf, shadow)
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
    declare_moves(log)
    lamps(log, 5)
    with projecting(log) as own:
        shelf = Shelf(own, log.schema)
        builder = _Builder(log, shelf, IN_STATE, 100, None)
        shadow = builder._fill(shelf.begin(IN_STATE), None)
        lamps(log, 9)
        with projecting(log) as projector, projector.transaction():  # makes the first copy, and fills it
            copy = Shelf(projector, log.schema).followed(IN_STATE)
            Applier(Shelf(projector, log.schema), IN_STATE, copy).apply(0, log.bound(), 23)
            switching = threading.Thread(target=builder._switch, args=(shadow,))
            switching.start()
            time.sleep(0.2)
        switching.join()

    assert rows(connection) == states_by_hand(log) != []
