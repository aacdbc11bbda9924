"""Tables that are not adopted: rows that contradict each other are named, and wrong names are said."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

import ledger
from ledger import BadBody, BadInput, BadName, Ledger
from ledger.errors import BadTable
from tests.machines.desk import TABLE, Connection, Desk


@pytest.fixture
def desk(log: Ledger, connection: Connection) -> Desk:
    return Desk(log, connection)


SPOILED = [
    (
        "UPDATE {} SET most_recent = true",
        "payment_id P, sort_key 10: it is one of 2 rows that are most_recent",
    ),
    (
        "UPDATE {} SET most_recent = (sort_key = 10)",
        "payment_id P, sort_key 10: it is most_recent, but 20 is the highest sort_key",
    ),
    (
        "UPDATE {} SET most_recent = NULL",
        "payment_id P, sort_key 20: no row of this parent is most_recent",
    ),
    ("UPDATE {} SET sort_key = 10", "payment_id P, sort_key 10: another row has the same sort_key"),
    ("UPDATE {} SET to_state = '' WHERE sort_key = 10", "payment_id P, sort_key 10: it has no to_state"),
    (
        "UPDATE {} SET sort_key = NULL WHERE most_recent",
        "payment_id P, sort_key None: it has no sort_key",
    ),
    (
        "UPDATE {} SET created_at = NULL WHERE most_recent",
        "payment_id P, sort_key 20: it has no created_at",
    ),
    ("UPDATE {} SET created_at = 'infinity'", "payment_id P, sort_key 10: its created_at cannot be kept"),
    ("UPDATE {} SET to_state = 'odd' WHERE most_recent", "sort_key 20: odd is no state of the machine"),
    (
        "ALTER TABLE {} ALTER payment_id DROP NOT NULL;UPDATE {} SET payment_id = NULL WHERE most_recent",
        "payment_id None, sort_key 20: it has no parent",
    ),
    (
        "ALTER TABLE {} ADD from_state text; UPDATE {} SET from_state = 'cancelled' WHERE most_recent",
        "sort_key 20: its from_state is cancelled, but the row before led to submitted",
    ),
]


def test_rows_that_contradict_each_other_are_named(desk: Desk) -> None:
    """Given a spoiled table; then nothing is recorded, and the rows are named; with force, what can be."""
    for number, (spoil, wrong) in enumerate(SPOILED):
        desk.connection.execute("DROP TABLE payment_transitions")
        desk.connection.execute(TABLE)
        name = f"P{number}"
        desk.write(name, ("submitted", 10), ("paid", 20))
        desk.connection.execute(spoil.replace("{}", "payment_transitions").encode())
        with pytest.raises(BadTable) as refused:
            desk.adopt()
        assert wrong.replace("payment_id P,", f"payment_id {name},") in str(refused.value)
        assert refused.value.many == len(refused.value.faults)
        assert not desk.log.streams(f"payment/{name}")
        done = desk.adopt(force=True)
        assert done.recorded + done.skipped == done.rows == 2
        assert desk.adopt(force=True).recorded == 0


def test_of_many_faults_the_first_are_named(desk: Desk) -> None:
    for number in range(30):
        desk.write(f"P{number:02}", ("submitted", 10), ("paid", 20), recent=0)
    with pytest.raises(BadTable, match=r"payment_transitions has 30 errors: .*P19.*; and 10 more") as refused:
        desk.adopt()
    assert (refused.value.many, len(refused.value.faults)) == (30, 20)


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"table": "no_such_table"}, "this database has no table 'no_such_table'"),
    ({"table": "a b; DROP TABLE payment_transitions"}, "this database has no table 'a b; DROP TABLE"),
    ({"table": ""}, "this database has no table ''"),
    ({"table": "payment_transitions_pkey"}, "this database has no table 'payment_transitions_pkey'"),
    (
        {"parent": "paymentid"},
        r"no column 'paymentid' \(did you mean payment_id\?\); it has id, payment_id, ",
    ),
    ({"parent": ()}, "name the column of payment_transitions that identifies the object"),
    ({"columns": {"to_state": "state"}}, "no column 'state'.*--columns to_state=COLUMN"),
    ({"columns": {"to_state": None}}, "a history needs a to_state"),
    ({"columns": {"nonsense": "id"}}, "'nonsense' is not the role of a column"),
    ({"columns": {"metadata": "meta"}}, "no column 'meta'"),
    (
        {"columns": {"created_at": "to_state"}},
        "column 'to_state' of payment_transitions is a text; created_at",
    ),
    ({"columns": {"sort_key": "to_state"}}, "is a text; sort_key must be a number"),
    ({"time_zone": "Mars"}, "no time zone 'Mars'"),
    ({"batch": 0}, "a batch of 0 moves"),
    ({"name": "Not A Name"}, "must be lower-case words"),
    ({"name": "machine"}, "is the category of other streams"),
]


def test_what_cannot_be_meant_is_said_in_a_sentence(desk: Desk) -> None:
    for ways, says in MISTAKES:
        with pytest.raises(BadInput, match=says):
            desk.adopt(**ways)


def test_what_cannot_be_recorded_names_the_object(desk: Desk) -> None:
    desk.connection.execute("ALTER TABLE payment_transitions ADD metadata json")
    desk.write("O", ("submitted", 10))
    desk.write("P", ("submitted", 10), ("paid", 20))
    desk.connection.execute(
        r"""UPDATE payment_transitions SET metadata = '{"a": "\u0000"}' WHERE to_state = 'paid'"""
    )
    with pytest.raises(BadBody, match="NUL") as refused:
        desk.adopt(batch=1)
    assert "payment/P" in refused.value.__notes__[0]
    assert desk.states("O") == ["submitted"]
    desk.connection.execute("UPDATE payment_transitions SET metadata = NULL, payment_id = repeat('P', 1100)")
    with pytest.raises(BadName):
        desk.adopt(force=True)


def test_who_may_not_read_the_table_is_told(desk: Desk, admin_dsn: str) -> None:
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute("ALTER TABLE payment_transitions OWNER TO CURRENT_USER")
    with pytest.raises(ledger.NoPermission, match="permission denied for table payment_transitions"):
        desk.adopt()
