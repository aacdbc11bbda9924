"""`pledger as-of` and `pledger views attach|detach`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from gateway.cli.errors import Code
from ledger import Ledger
from tests.gateway.conftest import Ended
from tests.views.lamps import lamps

Connection = psycopg.Connection[Any]
Pledger = Callable[..., Ended]


def test_a_past_is_made_listed_and_dropped(log: Ledger, connection: Connection, pledger: Pledger) -> None:
    lamps(log, 3)
    made = pledger("as-of", "make", "in_state", "--position", "4")
    assert (made.code, made.rows[:2]) == (Code.FINE, [["schema", "ledger_as_of_4"], ["position", "4"]])
    assert "SET search_path TO ledger_as_of_4" in made.err
    assert connection.execute("SELECT count(*) FROM ledger_as_of_4.in_state").fetchall() == [(2,)]

    (told,) = pledger("as-of", "make", "--at", "now", "--json").objects
    assert (told["position"], told["events"], told["streams"], told["beyond"]) == (6, 6, 3, True)
    assert set(told["views"]) >= {"in_state", "progress", "lsm_items", "activity"}
    (again,) = pledger("as-of", "make", "--position", "6", "--json").objects
    assert (again["new"], again["made_at"]) == (False, told["made_at"])

    connection.execute("SET ROLE ledger_projector; SELECT ledger.make_as_of(5)")
    listed = pledger("as-of", "list").rows
    assert [row[:2] for row in listed] == [[f"ledger_as_of_{n}", f"{n}"] for n in (4, 5, 6)]
    assert listed[1][-1] == "incomplete: make it again, or drop it"
    assert [one["whole"] for one in pledger("as-of", "list", "--json").objects] == [True, False, True]

    assert pledger("as-of", "drop", "4", "--json").objects == [{"dropped": 4}]
    assert pledger("as-of", "drop", "5").code == pledger("as-of", "drop", "6").code == Code.FINE
    assert pledger("as-of", "list").out == ""
    gone = pledger("as-of", "drop", "4")
    assert (gone.code, gone.err) == (Code.NOT_FOUND, "pledger: there is no copy as of position 4\n")


@pytest.mark.parametrize(
    "given", [("--position", "1", "--at", "now"), ("--at", "teatime"), ("no_view",), ("--position", "-1")]
)
def test_what_cannot_be_meant_is_misuse(pledger: Pledger, given: tuple[str, ...]) -> None:
    ended = pledger("as-of", "make", *given)
    assert ended.code == Code.MISUSE
    assert "Traceback" not in ended.err


def test_a_view_is_attached_and_detached(log: Ledger, connection: Connection, pledger: Pledger) -> None:
    lamps(log, 2)
    (told,) = pledger("views", "attach", "in_state", "--json").objects
    assert told == {"view": "in_state", "inline": True, "changed": True}
    assert "as before" in pledger("views", "attach", "in_state").err
    lamps(log, 3)
    assert connection.execute("SELECT count(*) FROM ledger_views.in_state").fetchall() == [(3,)]
    assert pledger("views", "detach", "in_state").code == Code.FINE
    assert connection.execute("SELECT count(*) FROM ledger.effects").fetchall() == [(0,)]
    assert pledger("views", "detach", "nothing").code == Code.MISUSE
    assert pledger("views", "attach", "nothing").code == Code.MISUSE
