"""An append that marked itself late takes the bound back below the live copy: nothing else goes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

import projections.views.in_state  # noqa: F401  declares the view
from ledger import Ledger
from ledger.domain.known import KNOWN
from projections import Projector, rebuild, roll_back
from projections.engine.copies import Copies, projecting
from tests.views.lamps import lamps, rows, states_by_hand

IN_STATE = KNOWN.views["in_state"]
Connection = psycopg.Connection[Any]


def mark_late(connection: Connection, place: int) -> None:
    """What an append does that read the last position long ago and takes its lock only now."""
    connection.execute(
        "SELECT pg_advisory_xact_lock_shared((ledger.lock_class() << 48) | %s::bigint)", [place]
    )


def stands(log: Ledger) -> int:
    """The position of the copy that is read."""
    with projecting(log) as connection:
        copy = Copies(connection, log.schema).live(IN_STATE)
    assert copy is not None
    return copy.position


def test_a_rebuild_comes_to_where_the_live_copy_is_whatever_the_bound(
    log: Ledger, connection: Connection, connect: Callable[..., Connection]
) -> None:
    lamps(log, 20)
    Projector(log, [IN_STATE]).catch_up()
    before = stands(log)
    mark_late(connect(), 11)
    assert log.bound() == 11 < before

    made = rebuild(log, IN_STATE)

    assert (made.differences, made.position, stands(log)) == ((), before, before)
    assert rows(connection) == states_by_hand_of_all(log, connection)
    assert roll_back(log, IN_STATE).position == before


def states_by_hand_of_all(log: Ledger, connection: Connection) -> list[tuple[Any, ...]]:
    """The fold of the log up to its end, when nobody marks himself any more."""
    connection.execute(
        "SELECT pg_terminate_backend(pid, 30000) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 "
        "AND mode = 'ShareLock' AND classid::bigint >> 16 = ledger.lock_class()"
    )
    return list(states_by_hand(log))
