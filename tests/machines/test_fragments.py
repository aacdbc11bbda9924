"""Who is in which state, as a part of the user's own statement: every key, every complement, by the index."""

from __future__ import annotations

import uuid
from itertools import combinations
from typing import Any

import psycopg
import pytest
from psycopg import sql

from ledger import BadInput, InvalidState, Ledger
from projections import Projector
from projections.machines import InState, NotInState
from tests.machines.parcels import KEY, Connection, Letter, Parcel, following, found, table

ODD = ("plain", "a/b", "50%", "%2F", "tab\there", "ü", "A", "a", " ", "x/%/y", "last\U0010ffff")
"""Keys whose streams are not named as they are."""


@pytest.fixture
def views(log: Ledger) -> Projector:
    """Keeps in_state, where it is told to catch up."""
    return following(log)


def test_both_conditions_part_the_table(log: Ledger, views: Projector, connection: Connection) -> None:
    """Given objects in every state, never moved, and back again, each set of states and its complement
    part them as each object's own machine says (spec S2-50 to S2-52)."""
    for nth, key in enumerate(ODD):
        for state in (["away"], ["away", "here"], ["lost 100%"], [])[nth % 4]:
            Parcel(log, key).move(state)
    Parcel(log, ("plain", "more")).move(Parcel.LOST)  # another object, whose key begins the same
    views.catch_up()
    table(connection, ODD)
    for states in (c for n in (1, 2, 3) for c in combinations(Parcel.states, n)):
        there = {key for key in ODD if Parcel(log, key).in_state(*states)}
        for params in (None, ()):
            assert found(connection, InState(Parcel, states).where(key=KEY), params=params) == there
            others = found(connection, NotInState(Parcel, *states).where(key=KEY), params=params)
            assert others == set(ODD) - there


TEXTS = ("a", "b", "c/d", "e")
KINDS: tuple[tuple[str, type, tuple[Any, ...]], ...] = (
    ("integer", int, (1, 2, 30, 4)),
    ("bigint", int, (-(2**63), 2**63 - 1, 0, 7)),
    ("smallint", int, (-1, 11, 10, 14)),
    ("uuid", uuid.UUID, tuple(uuid.UUID(int=n) for n in (0, 1, 2**127, 2**128 - 1))),
    ("text", str, TEXTS),
    ('text COLLATE "C"', str, TEXTS),
    ('text COLLATE "POSIX"', str, TEXTS),
    ("varchar", str, TEXTS),
)
"""Types of a user's key; of each four keys, the last of which never moves."""


def test_keys_of_all_types(log: Ledger, views: Projector, connection: Connection) -> None:
    for keys in dict.fromkeys(keys for _, _, keys in KINDS):
        named = [key if isinstance(key, int) else str(key) for key in keys[:3]]
        for key, states in zip(named, (["away"], ["lost 100%"], ["away", "here"]), strict=True):
            for state in states:
                Parcel(log, key).move(state)
    for key in ("no number", "007", "9" * 19, "-0", "x/1"):  # in the way of no cast
        Parcel(log, key).move("away")
    views.catch_up()
    for kind, types, keys in KINDS:
        one, _, back, never = keys
        with connection.transaction(force_rollback=True):
            table(connection, keys, kind)
            for states, there in (
                (["away"], {one}),
                (["here"], {back, never}),
                (["here", "away"], {one, back, never}),
            ):
                assert found(connection, InState(Parcel, states).where(key=KEY, types=types)) == there
                others = NotInState(Parcel, states).where(key=KEY, types=types)
                assert found(connection, others) == set(keys) - there


def test_keys_of_several_parts(log: Ledger, views: Projector, connection: Connection) -> None:
    Parcel(log, ("a/b", 1)).move("away")
    Parcel(log, ("a", "b/1")).move("away")
    Parcel(log, ("c", 2)).move("lost 100%")
    views.catch_up()
    connection.execute("CREATE TABLE p (bank text, id integer, PRIMARY KEY (bank, id))")
    connection.execute("INSERT INTO p VALUES ('a/b', 1), ('a', 1), ('c', 2), ('c', 3)")
    key = [sql.Identifier("p", "bank"), KEY]
    for states, there in (("away", {("a/b", 1)}), ("here", {("a", 1), ("c", 3)})):
        where = InState(Parcel, states).where(key=key, types=[str, int])
        rows = connection.execute(sql.SQL("SELECT bank, id FROM p WHERE {}").format(where)).fetchall()
        assert set(rows) == there


def test_several_machines_in_one_statement(log: Ledger, views: Projector, connection: Connection) -> None:
    """Contradicting conditions intersect to empty; those of two machines hold together (spec S2-50)."""
    Parcel(log, "A").move("away")
    Parcel(log, "B").move("away")
    Letter(log, "B").move("read")
    Letter(log, "C").move("read")
    views.catch_up()
    table(connection, "ABCD")
    away, here = (InState(Parcel, state).where(key=KEY) for state in ("away", "here"))
    read, unread = (InState(Letter, state).where(key=KEY) for state in ("read", "open"))
    assert found(connection, away, here) == set()
    assert found(connection, away, read) == {"B"}
    assert found(connection, away, unread) == {"A"}
    assert found(connection, here, read) == {"C"}
    assert found(connection, here, unread) == {"D"}
    either = sql.SQL("({} OR {})").format(away, read)
    assert found(connection, either, sql.SQL("p.id <> %s"), params=["A"]) == {"B", "C"}


def test_what_no_fragment_is_made_of(log: Ledger) -> None:
    with pytest.raises(InvalidState, match="Invalid state 'awa'"):
        InState(Parcel, "awa")
    with pytest.raises(InvalidState, match="name one or more states"):
        NotInState(Parcel)
    with pytest.raises(BadInput, match="machine_info"):
        InState("queried_parcel", "away")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="key must be a column"):
        InState(Parcel, "away").where(key="id")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="types must be"):
        InState(Parcel, "away").where(key=[KEY, KEY], types=[str])
    with pytest.raises(BadInput, match="types must be"):
        InState(Parcel, "away").where(key=KEY, types=float)


def test_few_are_found_by_the_index(log: Ledger, views: Projector, admin_dsn: str) -> None:
    """Given 40,000 objects of which 40 match, the plan goes from the states' index to the user's key; and
    for few of the user's rows, from these to the streams' names: no table is read whole."""
    Parcel(log, "A").move("away")
    views.catch_up()
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute(
            "INSERT INTO ledger_views.in_state_1 (position, since, version, category, status, stream)"
            " SELECT 9 + g, now(), 1, 'queried_parcel', CASE WHEN g % 1000 = 0 THEN 'away'"
            "        ELSE 'lost 100%' END, 'queried_parcel/K' || g FROM generate_series(1, 40000) g"
        )
        admin.execute("CREATE TABLE p (id text PRIMARY KEY)")
        admin.execute("INSERT INTO p SELECT 'K' || g FROM generate_series(1, 41000) g")
        admin.execute("ANALYZE p, ledger_views.in_state_1")
        away, lost = InState(Parcel, "away").where(key=KEY), InState(Parcel, Parcel.LOST).where(key=KEY)
        few = sql.SQL("p.id IN ('K1', 'K2', 'K1000', 'K40500')")
        for conditions, indexes in (
            ([away], ("category_status_since", "p_pkey")),
            ([lost, few], ("p_pkey", "in_state_1_pkey")),
            ([NotInState(Parcel, Parcel.LOST).where(key=KEY), few], ("p_pkey", "in_state_1_pkey")),
            ([InState(Parcel, "here").where(key=KEY), few], ("p_pkey", "in_state_1_pkey")),
        ):
            where = sql.SQL(" AND ").join(conditions)
            rows = admin.execute(sql.SQL("EXPLAIN SELECT p.* FROM p WHERE {}").format(where)).fetchall()
            plan = "\n".join(row for (row,) in rows)
            assert "Seq Scan" not in plan, plan
            assert all(index in plan for index in indexes), plan
        assert len(found(admin, away)) == 40
        assert found(admin, lost, few) == {"K1", "K2"}
        assert found(admin, InState(Parcel, "here").where(key=KEY), few) == {"K40500"}
        assert len(found(admin, InState(Parcel, "here").where(key=KEY))) == 1000
