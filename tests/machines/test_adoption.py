"""A table of transitions of another system, adopted: in its order, with its times, and all that it says."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from ledger import BadInput, Ledger
from ledger.domain.domain import OTHERS, domain_of
from ledger.domain.known import KNOWN
from ledger.log.announce import announced_statuses
from projections.engine.projector import Projector
from projections.views.in_state import InState
from tests.machines.desk import INSERT, NOON, Connection, Desk, Parcel


@pytest.fixture
def desk(log: Ledger, connection: Connection) -> Desk:
    return Desk(log, connection)


def test_in_state_afterwards_is_what_was_most_recent(desk: Desk, log: Ledger, connection: Connection) -> None:
    """Given hundreds of payments, rows in any order, some at equal times; when adopted; then all is there."""
    chance, rows = random.Random(7), []
    for number in range(300):
        states = ["submitted", "paid"][: chance.randint(1, 2)] + ["cancelled"] * chance.randint(0, 1)
        times = sorted(NOON + timedelta(minutes=chance.randint(0, 2)) for _ in states)
        keys = sorted(chance.sample(range(1, 99), len(states)))
        last = keys[-1]
        rows += [
            (f"PM{number}", state, key, key == last, at)
            for state, key, at in zip(states, keys, times, strict=True)
        ]
    chance.shuffle(rows)
    with connection.cursor() as cursor:
        cursor.executemany(INSERT + "(%s, %s, %s, %s, %s)", rows)
    connection.execute(
        "UPDATE payment_transitions SET most_recent = NULL WHERE NOT most_recent AND id % 2 = 0"
    )
    done = desk.adopt(batch=100)
    assert (done.rows, done.recorded, done.parents, done.new) == (len(rows), len(rows), 300, 300)
    Projector(log, [InState()]).catch_up()
    shown = connection.execute(
        "SELECT stream, status, version FROM ledger_views.in_state WHERE category = 'payment'"
    )
    told = connection.execute(
        "SELECT 'payment/' || payment_id, to_state, (SELECT count(*) FROM payment_transitions o "
        "WHERE o.payment_id = t.payment_id) FROM payment_transitions t WHERE most_recent"
    )
    assert sorted(shown.fetchall()) == sorted(told.fetchall())
    payment = rows[0][0]
    wanted = sorted((row for row in rows if row[0] == payment), key=lambda row: row[2])
    moves = desk.history(payment)
    assert [(move.to_state, move.claimed_at) for move in moves] == [(row[1], row[4]) for row in wanted]
    assert [move.sort_key for move in moves] == [10 * n for n in range(1, len(wanted) + 1)]
    assert {move.definition for move in moves} == {0}
    again = desk.adopt(batch=7)
    assert (again.left, again.recorded, again.there) == (300, 0, len(rows))


def test_the_order_is_that_of_sort_key_and_not_of_time(desk: Desk) -> None:
    desk.connection.execute(
        INSERT + "('P', 'submitted', 10, false, '2015-03-03'), ('P', 'cancelled', 30, true, '2015-03-01'), "
        "('P', 'paid', 20, false, NULL)"
    )
    assert desk.adopt(force=True).recorded == 3
    assert desk.states("P") == ["submitted", "paid", "cancelled"]
    assert [move.claimed_at and move.claimed_at.day for move in desk.history("P")] == [3, None, 1]


def test_from_state_is_the_state_before(desk: Desk) -> None:
    desk.write("P", ("submitted", 10), ("paid", 20))
    desk.write("Q", ("pending_submission", 10), ("submitted", 20))  # the beginning itself was recorded
    desk.adopt()
    assert [move.from_state for move in desk.history("P")] == ["pending_submission", "submitted"]
    assert [move.from_state for move in desk.history("Q")] == [None, "pending_submission"]
    desk.adopt("never_declared")  # so nobody knows how its objects begin
    bodies = [row.event for row in desk.log.read("never_declared/P")]
    assert [(body.from_state, body.to_state) for body in bodies] == [
        (None, "submitted"),
        ("submitted", "paid"),
    ]  # type: ignore[union-attr]


def test_of_a_machine_that_the_ledger_knows_the_beginning_is_known(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    Parcel(desk.log, "moved here").move("sent")
    monkeypatch.delitem(KNOWN.machines, "adopted_parcel")
    desk.write("P", ("sent", 10))
    desk.adopt("adopted_parcel")
    assert desk.history("P", "adopted_parcel")[0].from_state == "packed"


def test_what_else_a_row_says_is_metadata(desk: Desk) -> None:
    """Given metadata and columns of their own; then both are said with the move, and NULL says nothing."""
    desk.connection.execute(
        "ALTER TABLE payment_transitions ADD metadata jsonb NOT NULL DEFAULT '{}', ADD amount numeric(9, 2), "
        "ADD tags text[], ADD from_state text"
    )
    desk.connection.execute(
        "INSERT INTO payment_transitions (payment_id, to_state, sort_key, most_recent, created_at, "
        "submission_id, metadata, amount, tags, from_state) "
        "VALUES ('P', 'submitted', 10, false, now(), 'SB1', "
        """'{"by": {"name": "mina"}, "n": 1.50, "far": 0.1234567890123456789}', 12.50, '{a,b}', ''), """
        "('P', 'paid', 20, true, now(), NULL, '{}', NULL, NULL, 'submitted')"
    )
    desk.adopt()
    first, last = desk.history("P")
    assert dict(first.metadata) == {
        "by": {"name": "mina"}, "n": 1.5, "far": "0.1234567890123456789", "submission_id": "SB1",
        "amount": "12.50", "tags": ("a", "b"),
    }  # fmt: skip
    assert dict(last.metadata) == {}
    assert (first.from_state, last.from_state) == ("pending_submission", "submitted")
    assert desk.adopt().left == 1


def test_metadata_in_a_column_of_text(desk: Desk) -> None:
    desk.connection.execute("ALTER TABLE payment_transitions ADD metadata text")
    texts: dict[str | None, dict[str, Any]] = {
        '{"a": 1}': {"a": 1}, "[1]": {"metadata": (1,)}, "plain": {"metadata": "plain"}, "null": {}, None: {},
    }  # fmt: skip
    for number, text in enumerate(texts):
        desk.write(f"P{number}", ("submitted", 10))
        desk.connection.execute(
            "UPDATE payment_transitions SET metadata = %s WHERE payment_id = %s", (text, f"P{number}")
        )
    desk.adopt()
    for number, said in enumerate(texts.values()):
        assert dict(desk.history(f"P{number}")[0].metadata) == said


def test_other_names_several_parents_and_times_without_a_zone(desk: Desk) -> None:
    desk.connection.execute(
        'CREATE TABLE "Moves" (shop text, nr integer, state text, place bigint, at timestamp, latest integer)'
    )
    desk.connection.execute(
        "INSERT INTO \"Moves\" VALUES ('a/b', 7, 'sent', 1, '2015-07-01 12:00', 0), "
        "('a/b', 7, 'lost', 2, '2015-07-01 12:00', 1), ('a', 77, 'sent', 1, '2015-07-01 12:00', 1)"
    )
    columns = {"to_state": "state", "sort_key": "place", "created_at": "at", "most_recent": "latest"}
    done = desk.adopt(
        Parcel, table='"Moves"', parent=("shop", "nr"), columns=columns, time_zone="Europe/Zurich"
    )
    assert (done.parents, done.recorded) == (2, 3)
    moves = Parcel(desk.log, ("a/b", 7)).history()
    assert [(move.from_state, move.to_state) for move in moves] == [("packed", "sent"), ("sent", "lost")]
    assert moves[0].claimed_at == datetime(2015, 7, 1, 10, tzinfo=UTC)
    assert dict(moves[0].metadata) == {}
    assert Parcel(desk.log, ("a", 77)).current_state() == "sent"


def test_without_times_and_marks(desk: Desk) -> None:
    desk.connection.execute("CREATE TABLE moves (p integer, to_state text, sort_key numeric)")
    desk.connection.execute("INSERT INTO moves VALUES (1, 'sent', 1.5), (1, 'lost', 1.75)")
    columns = {"created_at": None, "most_recent": ""}
    assert desk.adopt(Parcel, table="public.moves", parent="p", columns=columns).recorded == 2
    assert [move.claimed_at for move in Parcel(desk.log, 1).history()] == [None, None]


def test_a_machine_that_is_only_adopted_is_no_shipped_domain(desk: Desk, log: Ledger) -> None:
    """Else its topic would belong to this package for ever, and its first append would not announce it."""
    desk.write("7", ("sent", 1))
    desk.adopt("never_imported")
    assert domain_of(KNOWN.streams["never_imported"]) is OTHERS
    with log.reader() as connection:
        assert announced_statuses(connection, log.schema)["never_imported.moved"].field == "to_state"


def test_the_table_may_lie_elsewhere(desk: Desk, dsn: str) -> None:
    desk.connection.execute("CREATE SCHEMA elsewhere")
    desk.connection.execute("ALTER TABLE payment_transitions SET SCHEMA elsewhere")
    with pytest.raises(BadInput, match="this database has no table 'payment_transitions'"):
        desk.adopt()
    conninfo = psycopg.conninfo.make_conninfo(dsn, options="-c search_path=elsewhere")
    assert desk.adopt(source=conninfo).rows == 0
