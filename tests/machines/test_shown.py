"""How machines and moves show themselves, and what is said where a view is missing."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import sql

from ledger import Ledger, SchemaMismatch
from projections.machines import InState, counts
from tests.machines.payments import Payment


def test_a_machine_shows_its_stream_and_the_state_that_it_knows(place: Any, key: str) -> None:
    payment = Payment(place, key)
    where = ", in memory" if place is None else ""
    known = ", pending_submission" if place is None else ""
    assert repr(payment) == f"<Payment payment/{key}{known}{where}>"
    payment.current_state()
    assert repr(payment) == f"<Payment payment/{key}, pending_submission{where}>"
    assert repr(Payment.__new__(Payment)) == "<Payment, not made yet>"


def test_a_move_shows_where_it_leads_and_whether_it_was_made(place: Any, key: str) -> None:
    move = Payment(place, key).transition_to("submitted").with_(submission_id="SB1")
    begin = f"<Move payment/{key} to submitted, submission_id='SB1', "
    assert repr(move) == f"{begin}not executed>"
    move.execute()
    assert repr(move) == f"{begin}executed>"


def test_where_the_view_is_missing_each_way_says_what_makes_it(log: Ledger) -> None:
    """In one's own SQL only PostgreSQL speaks: its error shows the line, and on it the command."""
    Payment(log, "PM1").move("cancelled")
    query = sql.SQL("SELECT p.id FROM (VALUES ('PM1')) p (id) WHERE {}").format(
        InState(Payment, "cancelled").where(key=sql.Identifier("p", "id"))
    )
    with psycopg.connect(log.address.conninfo) as own:
        with pytest.raises(psycopg.errors.UndefinedTable, match="pledger views attach in_state"):
            own.execute(query)
    advice = "the view in_state does not exist yet: run `pledger views follow in_state`"
    with pytest.raises(SchemaMismatch, match=advice):
        counts(log, Payment)
    advice = r"it belongs to a view that does not exist yet: run `pledger views follow NAME` .* such as"
    with pytest.raises(SchemaMismatch, match=advice), log.reader() as connection:
        connection.execute(query)
