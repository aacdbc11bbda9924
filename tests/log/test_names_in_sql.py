"""Names of streams in SQL: the same as in Python, both ways; and the view of current states."""

from __future__ import annotations

from typing import Any

import psycopg
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ledger import Ledger
from ledger.domain.names import split_name, stream_name
from tests.lamp import OpenLamp

Connection = psycopg.Connection[Any]
PARTS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\x00"), max_size=12)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(PARTS, max_size=4))
@example(parts=["a/b%2F", "%", "\x01\x1f\x7f", "\U0010ffff", "ä%C3", ""])
@example(parts=[])
def test_sql_and_python_name_streams_alike(connection: Connection, parts: list[str]) -> None:
    name = stream_name("lsm.strip", *parts)
    (made,) = (
        connection.execute("SELECT ledger.stream_name('lsm.strip', VARIADIC %s::text[])", [parts]).fetchone()
        or ()
    )
    assert made == name
    found = connection.execute(
        "SELECT ledger.category_of(%(s)s), ledger.key_of(%(s)s)", {"s": name}
    ).fetchone()
    category, key = split_name(name)
    assert found == (category, list(key))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.text(st.sampled_from("a%/2F0AU"), min_size=1, max_size=12))
def test_names_that_others_made_are_split_alike(connection: Connection, name: str) -> None:
    if "%00" in name:
        return
    found = connection.execute("SELECT ledger.key_of(%s)", [name]).fetchone()
    assert found == (list(split_name(name)[1]),)


def test_current_states_can_be_joined(log: Ledger, connection: Connection) -> None:
    with log.open(OpenLamp, "a/b") as lamp:
        lamp.make(watts=4.0)
    found = connection.execute(
        "SELECT c.status, c.state->>'watts', c.is_current FROM (VALUES ('a/b')) mine (id) "
        "JOIN ledger.current_state c ON c.stream = ledger.stream_name('lamp', mine.id)"
    ).fetchall()
    assert found == [("made", "4.0", True)]
