"""Who is in which state: asked of the view, in SQL alone, and of the past."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from ledger import BadInput, InvalidState, Ledger, SchemaMismatch, UnknownMachine
from ledger.machines import From, Machine, State
from projections import Projector, rebuild, time_travel, views_named
from projections.audit import Moment
from projections.audit.moments import NOW
from projections.machines import (
    InState,
    NotInState,
    ObjectInState,
    counts,
    dwell_of,
    in_state,
    machine_info,
    not_in_state,
    stays_of,
    who_was_in,
)
from tests.machines.parcels import KEY, Connection, Letter, Parcel, following, found, table


@pytest.fixture
def views(log: Ledger) -> Projector:
    """Keeps in_state, where it is told to catch up."""
    return following(log)


# Of the view


def test_pages_go_by_state_then_by_time(log: Ledger, views: Projector) -> None:
    for key in ("A", "B", "C", "D"):
        Parcel(log, key).move("away")
    Parcel(log, "B").move("lost 100%")
    Parcel(log, ("E", 1, "x/y")).move("lost 100%")
    views.catch_up()
    everyone = in_state(log, Parcel, Parcel.LOST, "away")
    assert [(one.key, one.state, one.version) for one in everyone] == [
        (("A",), "away", 1),
        (("C",), "away", 1),
        (("D",), "away", 1),
        (("B",), "lost 100%", 2),
        (("E", "1", "x/y"), "lost 100%", 1),
    ]
    assert everyone[0].since == log.read("queried_parcel/A")[0].recorded_at
    pages: list[ObjectInState] = []
    for many in (2, 2, 1, 0):
        page = in_state(log, "queried_parcel", ["away", "lost 100%"], limit=2, after=(pages or [None])[-1])
        assert len(page) == many
        pages += page
    assert pages == everyone
    assert not_in_state(log, Parcel, "lost 100%", "here") == everyone[:3]
    assert not_in_state(log, Parcel, "away", limit=1, after=everyone[3]) == everyone[4:]


def test_counts_have_every_state(log: Ledger, views: Projector) -> None:
    """Given a history in a state that the definition lost, then it is counted last, and may be asked for."""

    class Old(Machine, name="queried_old"):
        NEW = State("new", initial=True)
        GONE = State("gone")
        DONE = State("done")
        table = (From(NEW).To(GONE, DONE),)

    Old(log, "A").move("gone")
    Old(log, "B").move("gone")
    Old.remove_state("gone")
    Old(log, "C").move("done")
    log.append("queried_old/D", Old.streams().MOVED(from_state=None, to_state="imported"))
    views.catch_up()
    for machine in (Old, "queried_old", machine_info(log, Old)):
        assert [(one.state, one.objects, one.declared) for one in counts(log, machine)] == [
            ("new", 0, True),
            ("done", 1, True),
            ("gone", 2, False),
            ("imported", 1, False),
        ]
    assert [one.key for one in in_state(log, Old, "gone")] == [("A",), ("B",)]
    assert [one.key for one in in_state(log, Old, "imported")] == [("D",)]
    assert {one.state for one in not_in_state(log, Old, "done")} == {"gone", "imported"}
    assert counts(log, Old)[2].longest == log.read("queried_old/A")[0].recorded_at


def test_only_those_that_are_there_for_longer(log: Ledger, views: Projector, admin_dsn: str) -> None:
    for key in ("A", "B"):
        Parcel(log, key).move("away")
    views.catch_up()
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute(
            "UPDATE ledger_views.in_state_1 SET since = since - interval '3 days' WHERE stream LIKE '%/A'"
        )
        table(admin, "ABC")
        days = timedelta(days=2)
        assert [one.key for one in in_state(log, Parcel, "away", longer_than=days)] == [("A",)]
        assert [one.key for one in not_in_state(log, Parcel, "here", longer_than=days)] == [("A",)]
        assert in_state(log, Parcel, "away", longer_than=timedelta(days=4)) == []
        for states, there in ((["away"], {"A"}), (["here"], set()), (["here", "away"], {"A"})):
            longer = InState(Parcel, states, longer_than=days).where(key=KEY)
            others = NotInState(Parcel, states, longer_than=days).where(key=KEY)
            assert found(admin, longer) == there
            assert found(admin, others) == {"A", "B", "C"} - there
        rows = admin.execute(
            "SELECT id FROM ledger_views.objects_in_longer_than('queried_parcel', '2 days', 'away')"
        )
        assert rows.fetchall() == [("A",)]


def test_what_cannot_be_asked_of_the_view(log: Ledger) -> None:
    Parcel(log, "A").move("away")
    with pytest.raises(SchemaMismatch, match="in_state does not exist yet"):
        in_state(log, Parcel, "away")
    Projector(log, views_named(["in_state"])).catch_up()
    with pytest.raises(UnknownMachine, match="queried_parcel"):
        in_state(log, "queried_parcels", "away")
    with pytest.raises(UnknownMachine):
        counts(log, "")
    with pytest.raises(InvalidState, match="the states are here, away"):
        in_state(log, Parcel, "awa")
    with pytest.raises(InvalidState, match="name one or more states"):
        not_in_state(log, Parcel)
    with pytest.raises(BadInput, match="limit"):
        in_state(log, Parcel, "away", limit=-1)
    with pytest.raises(BadInput, match="after"):
        in_state(
            log, Parcel, "away", after=ObjectInState(("A",), "here", *in_state(log, Parcel, "away")[0][2:])
        )


# In SQL alone


def test_functions_for_those_without_python(log: Ledger, views: Projector, connection: Connection) -> None:
    for key in ("A", "a/b", ("two", 2)):
        Parcel(log, key).move("away")
    Parcel(log, "A").move("here")
    views.catch_up()
    connection.execute("SET ROLE ledger_reader")

    def ask(query: str) -> list[Any]:
        return connection.execute(query).fetchall()

    assert sorted(
        ask("SELECT key, id, state, version FROM ledger_views.objects_in('queried_parcel', 'away')")
    ) == [
        (["a/b"], "a/b", "away", 1),
        (["two", "2"], "two", "away", 1),
    ]
    assert len(ask("SELECT * FROM ledger_views.objects_in('queried_parcel', 'away', 'here')")) == 3
    assert ask(
        "SELECT state, objects, initial, declared FROM ledger_views.machine_states('queried_parcel')"
    ) == [
        ("here", 1, True, True),
        ("away", 2, False, True),
        ("lost 100%", 0, False, True),
    ]
    for key, state in (("'A'", "here"), ("'a/b'", "away"), ("'two', '2'", "away"), ("'never'", "here")):
        assert ask(f"SELECT ledger_views.state_of('queried_parcel', {key})") == [(state,)]


def test_functions_refuse_what_is_not_known(log: Ledger, views: Projector, connection: Connection) -> None:
    Parcel(log, "A").move("away")
    views.catch_up()
    for call, message in (
        ("objects_in('queried_parcels', 'away')", "no machine is named 'queried_parcels'"),
        ("objects_in(NULL, 'away')", "no machine is named null"),
        ("objects_in('queried_parcel', 'away', 'awa')", "machine queried_parcel has no state 'awa'"),
        ("objects_in('queried_parcel', NULL)", "machine queried_parcel has no state null"),
        ("objects_in('queried_parcel', VARIADIC '{}')", "name one or more states of queried_parcel"),
        ("objects_in_longer_than('queried_parcel', '1h', 'awa')", "has no state 'awa'"),
        ("machine_states('x')", "no machine is named 'x'"),
        ("state_of('x', 'A')", "no machine is named 'x'"),
    ):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=message):
            connection.execute(f"SELECT * FROM ledger_views.{call}".encode())


def test_functions_survive_a_rebuild_and_are_in_the_past(log: Ledger, connection: Connection) -> None:
    """Given an object that moved on, a past answers with what was then, by the definition of then."""
    view = views_named(["in_state"])
    rebuild(log, *view)
    Parcel(log, "A").move("away")
    past = time_travel.as_of(log, views=view)
    Parcel(log, "A").move("lost 100%")
    Letter(log, "A").move("read")
    Projector(log, view).catch_up()
    rebuild(log, *view)

    def ask(schema: str, call: str) -> list[Any]:
        return connection.execute(f"SELECT * FROM {schema}.{call}".encode()).fetchall()

    for schema, state in (("ledger_views", "lost 100%"), (past.schema, "away")):
        ((key, name, found_in, *_),) = ask(
            schema, "objects_in('queried_parcel', 'away', 'lost 100%', 'here')"
        )
        assert (key, name, found_in) == (["A"], "A", state)
        assert ask(schema, "state_of('queried_parcel', 'A')") == [(state,)]
        assert [one[1] for one in ask(schema, "machine_states('queried_parcel')") if one[1]] == [1]
    assert ask("ledger_views", "state_of('queried_letter', 'B')") == [("open",)]
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="no machine"):
        ask(past.schema, "state_of('queried_letter', 'B')")


# The past


def test_stays_and_who_was_where(log: Ledger) -> None:
    for key in ("A", "B"):
        Parcel(log, key).move("away")
    then = log.bound()
    Parcel(log, "A").move("here")
    Parcel(log, "B").move("lost 100%")
    Letter(log, "A").move("read")
    _, stays = stays_of(log, Parcel, "A")
    assert [(one.stream, one.status, one.until is None) for one in stays] == [
        ("queried_parcel/A", "away", False),
        ("queried_parcel/A", "here", True),
    ]
    assert len(stays_of(log, "queried_parcel")[1]) == 4
    assert {(one.status, one.stays, one.open) for one in dwell_of(log, Parcel)[1]} == {
        ("away", 2, 0),
        ("here", 1, 1),
        ("lost 100%", 1, 1),
    }
    assert len(dwell_of(log, Parcel, each=True)[1]) == 4
    at, were = who_was_in(log, Parcel, "away", "here", moment=Moment(position=then))
    assert at.position == then
    assert [(one.key, one.state) for one in were] == [(("A",), "away"), (("B",), "away")]
    assert [one.key for one in who_was_in(log, Parcel, "lost 100%", moment=NOW)[1]] == [("B",)]
    assert len(who_was_in(log, Parcel, moment=NOW)[1]) == 2
    with pytest.raises(InvalidState):
        who_was_in(log, Parcel, "awa", moment=NOW)
