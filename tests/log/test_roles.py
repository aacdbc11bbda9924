"""Who may do what: the writer appends, the reader reads, the owner cannot change what was recorded."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import errors as pg

import ledger
from ledger import Append, Body, Ledger, NoPermission, Refused
from ledger.log.append import NEW
from ledger.log.appender import send
from ledger.log.server_errors import ledger_errors
from tests.lamp import LampRead, OpenLamp

Connection = psycopg.Connection[Any]
_numbers = count(1)
BODY = Body("lamp.read", 1, "{}")


def append(connection: Connection, stream: str = "lamp/a") -> ledger.Appended:
    return send(connection, "ledger", [Append(stream, [BODY], NEW)], "{}", None)


OF_THE_LOG = ("events", "heads", "commands", "effects", "identity", "migrations")
CHANGES = [
    "INSERT INTO ledger.{0} DEFAULT VALUES",
    "UPDATE ledger.{0} SET {1} = {1}",
    "DELETE FROM ledger.{0}",
    "TRUNCATE ledger.{0}",
    "DROP TABLE ledger.{0}",
    "ALTER TABLE ledger.{0} DISABLE TRIGGER ALL",
    "DO $$ BEGIN LOCK TABLE ledger.{0}; END $$",
]
COLUMN = {"identity": "ledger", "migrations": "name", "events": "topic", "heads": "status"}
COLUMN |= {"commands": "digest", "effects": "routine"}
OTHER_CHANGES = [
    "SELECT setval('ledger.positions', 1)",
    "SELECT nextval('ledger.positions')",
    "ALTER SEQUENCE ledger.positions RESTART",
    "DROP SCHEMA ledger CASCADE",
    "CREATE TABLE ledger.mine ()",
    "CREATE FUNCTION ledger.apply_effects(integer) RETURNS void LANGUAGE sql AS ''",
    "SELECT ledger.take_position()",
    "SELECT ledger.take_block(2)",
    "SELECT ledger.mark(1)",
    "SELECT ledger.heal_head('lamp/a')",
    "SELECT ledger.apply_effects(1, 1)",
    "SELECT ledger.refresh_effects()",
    "SELECT ledger.attach_effect('x', 'y')",
    "SELECT ledger.detach_effect('x')",
    "SELECT ledger.ensure_heads('{{x}}')",
    "SELECT ledger.recorded_by('x', '')",
    "SET ROLE ledger_owner",
]


def refused(connection: Connection, statements: list[str]) -> None:
    for statement in statements:
        with pytest.raises(pg.InsufficientPrivilege):
            connection.execute(statement)  # type: ignore[arg-type]


def all_changes() -> list[str]:
    return [change.format(table, COLUMN[table]) for table in OF_THE_LOG for change in CHANGES] + [
        change.format() for change in OTHER_CHANGES
    ]


def test_a_writer_appends_and_nothing_else(only: Callable[[str], str], log: Ledger) -> None:
    with psycopg.connect(only("ledger_writer"), autocommit=True) as connection:
        assert append(connection).version == 1
        two = [Append("lamp/a", [BODY, BODY]), Append("lamp/b", [BODY])]
        assert send(connection, "ledger", two, "{}", "c").versions == {"lamp/a": 3, "lamp/b": 1}
        refused(connection, all_changes())
        refused(connection, [f"SELECT * FROM ledger.{table}" for table in OF_THE_LOG])
        refused(
            connection, ["SELECT ledger.bound()", "SELECT * FROM ledger.positions", "SET ROLE ledger_reader"]
        )
    assert log.load(OpenLamp, "a").version == 3


def test_a_reader_reads_and_follows_and_nothing_else(only: Callable[[str], str], log: Ledger) -> None:
    log.append("lamp/a", LampRead(value=1), command="c")
    with ledger.connect(only("ledger_reader")) as reader:
        assert [found.event for found in reader.read("lamp/a")] == [LampRead(value=1)]
        assert len(reader.log(0, reader.bound())) == 1
        assert reader.load(OpenLamp, "a").version == 1
        assert [info.stream for info in reader.streams()] == ["lamp/a"]
        with pytest.raises(NoPermission, match="grant the connecting role membership in the ledger's writer"):
            reader.append("lamp/a", LampRead())
        with pytest.raises(NoPermission):
            reader.append("lamp/a", LampRead(), LampRead())
        with reader.pool.connection() as connection:
            refused(connection, all_changes())
    assert log.load(OpenLamp, "a").version == 1


def test_an_eraser_has_no_rights_yet(only: Callable[[str], str]) -> None:
    with psycopg.connect(only("ledger_eraser"), autocommit=True) as connection:
        refused(connection, all_changes())
        refused(connection, [f"SELECT * FROM ledger.{table}" for table in OF_THE_LOG])


def test_a_stranger_is_told_what_to_grant(only: Callable[[str], str]) -> None:
    with pytest.raises(NoPermission, match=r"has none of the roles of the ledger .* GRANT"):
        ledger.connect(only("pg_monitor"))


def test_the_everyday_role_is_no_superuser_and_writes_by_the_functions_only(
    connection: Connection, log: Ledger
) -> None:
    log.append("lamp/a", LampRead())
    (superuser,) = connection.execute(
        "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"
    ).fetchone() or (True,)
    assert not superuser
    refused(connection, [change for change in all_changes() if change != "SET ROLE ledger_owner"])
    assert log.append("lamp/a", LampRead(), expected=1).version == 2


def attempt(connection: Connection, change: LiteralString) -> None:
    with ledger_errors():
        if "STDIN" not in change:
            connection.execute(change)
            return
        with connection.cursor().copy(change) as copy:
            copy.write_row((9, "2026-01-01Z", 1, 1, "x", "x", "{}", None, "{}"))


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE ledger.events SET topic = 'x'",
        "UPDATE ledger.events SET topic = 'x' WHERE false",
        "DELETE FROM ledger.events",
        "TRUNCATE ledger.events",
        "TRUNCATE ledger.events, ledger.heads CASCADE",
        "MERGE INTO ledger.events e USING (SELECT 1) x ON true WHEN MATCHED THEN DELETE",
    ],
)
@pytest.mark.parametrize("who", ["owner", "superuser"])
def test_even_the_owner_cannot_change_what_was_recorded(
    log: Ledger, connection: Connection, admin_dsn: str, who: str, change: LiteralString
) -> None:
    log.append("lamp/a", LampRead())
    kept = log.read("lamp/a")
    with connection if who == "owner" else psycopg.connect(admin_dsn, autocommit=True) as their:
        if who == "owner":
            their.execute("SET ROLE ledger_owner")
        with pytest.raises(Refused, match=r"append-only: \w+ refused"):
            attempt(their, change)
    assert log.read("lamp/a") == kept
