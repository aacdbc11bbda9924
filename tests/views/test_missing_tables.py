"""Tables of a view that somebody dropped by hand: it is said, and a rebuild makes them from the log."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

import projections.views.in_state  # noqa: F401  declares the view
from ledger import Ledger, TablesMissing
from ledger.domain.known import KNOWN
from projections.engine.attach import attach
from projections.engine.check import ViewCheck
from projections.engine.projector import Projector
from projections.engine.rebuild import rebuild, roll_back
from projections.engine.watch import State, watch
from projections.verify import verify
from tests.views.lamps import lamps, states_by_hand

IN_STATE = KNOWN.views["in_state"]
Connection = psycopg.Connection[Any]
SHOWN = "SELECT stream, status, version, position FROM ledger_views.in_state"
DROPS = [
    "DROP TABLE ledger_views.in_state_1 CASCADE",
    "DROP TABLE ledger_views.in_state_1_copies CASCADE",
    "ALTER TABLE ledger_views.in_state_1_copies DETACH PARTITION ledger_views.in_state_1",
]


def drop(connection: Connection, statement: str) -> None:
    connection.execute("SET ROLE ledger_projector")
    connection.execute(statement)  # type: ignore[call-overload]
    connection.execute("RESET ROLE")


def rows(connection: Connection) -> list[tuple[Any, ...]]:
    return sorted(connection.execute(SHOWN).fetchall())


@pytest.mark.parametrize("statement", DROPS)
def test_it_is_named_and_rebuilt(log: Ledger, connection: Connection, statement: str) -> None:
    lamps(log, 4)
    Projector(log, [IN_STATE]).catch_up()
    drop(connection, statement)
    (state,) = watch(log, [IN_STATE])
    assert (state.state, state.copy) == (State.NOT_MADE, 1)
    assert "in_state_1 are missing" in str(state.error)
    with pytest.raises(TablesMissing, match="run `pledger rebuild in_state`"):
        Projector(log, [IN_STATE]).catch_up()
    made = rebuild(log, IN_STATE)
    assert (made.switched, made.differences) == (True, ())
    assert rows(connection) == states_by_hand(log)
    with pytest.raises(Exception, match="has no earlier copy"):
        roll_back(log, IN_STATE)
    lamps(log, 2)
    projector = Projector(log, [IN_STATE])
    projector.catch_up()
    assert projector.stopped == {}
    assert rows(connection) == states_by_hand(log)
    assert watch(log, [IN_STATE])[0].state == State.LIVE
    assert rebuild(log, IN_STATE).differences == ()


def test_verify_names_and_repairs_it(log: Ledger, connection: Connection) -> None:
    lamps(log, 3)
    Projector(log, [IN_STATE]).catch_up()
    drop(connection, DROPS[0])
    found: list[Any] = []
    verify(log, processes=1, checks=[ViewCheck(IN_STATE)], found=found.append)
    assert [(one.about, one.says) for one in found] == [("in_state", "its tables in_state_1 are missing")]
    assert verify(log, processes=1, checks=[ViewCheck(IN_STATE)], repair=True).equal
    assert rows(connection) == states_by_hand(log)


def test_what_readers_see_by_name_is_made_anew_by_following(log: Ledger, connection: Connection) -> None:
    lamps(log, 3)
    Projector(log, [IN_STATE]).catch_up()
    drop(connection, "DROP VIEW ledger_views.in_state CASCADE")
    Projector(log, [IN_STATE]).catch_up()
    assert rows(connection) == states_by_hand(log)


def test_a_killed_rebuild_whose_tables_are_gone_is_begun_anew(log: Ledger, connection: Connection) -> None:
    lamps(log, 3)
    Projector(log, [IN_STATE]).catch_up()

    def killed(_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rebuild(log, IN_STATE, progress=killed)
    drop(connection, "DROP TABLE ledger_views.in_state_2")
    made = rebuild(log, IN_STATE)
    assert (made.switched, made.continued) == (True, False)
    assert rows(connection) == states_by_hand(log)


def test_a_kept_copy_without_tables_is_not_gone_back_to(log: Ledger, connection: Connection) -> None:
    lamps(log, 3)
    Projector(log, [IN_STATE]).catch_up()
    rebuild(log, IN_STATE)
    drop(connection, DROPS[0])
    with pytest.raises(TablesMissing):
        roll_back(log, IN_STATE)
    rebuild(log, IN_STATE)
    roll_back(log, IN_STATE)
    assert rows(connection) == states_by_hand(log)


def test_one_that_appends_keep_is_rebuilt_and_appends_go_on(log: Ledger, connection: Connection) -> None:
    lamps(log, 3)
    attach(log, IN_STATE)
    drop(connection, DROPS[0])
    rebuild(log, IN_STATE)
    lamps(log, 2)
    assert rows(connection) == states_by_hand(log)
