"""A dump and its restore: all is there, cursors go on, and a cursor from after the dump is refused."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from psycopg import errors as pg

import ledger
from ledger import Cursor, CursorMismatch, DamagedLedger, Guard, Ledger
from ledger.embedded import Embedded, throwaway
from tests.faults.schedules import as_owner, look
from tests.lamp import LampMade, LampRead, OpenLamp

Connection = psycopg.Connection[Any]
OBJECTS = """
    SELECT 'function', oid::regprocedure::text, coalesce(proacl::text, ''), prosecdef::text FROM pg_proc
     WHERE pronamespace = 'ledger'::regnamespace
    UNION ALL SELECT 'table', relname, coalesce(relacl::text, ''), relowner::regrole::text FROM pg_class
     WHERE relnamespace = 'ledger'::regnamespace
    UNION ALL SELECT 'trigger', tgname, pg_get_triggerdef(oid), tgenabled::text FROM pg_trigger
     WHERE NOT tgisinternal
    UNION ALL SELECT 'schema', nspname, nspacl::text, nspowner::regrole::text FROM pg_namespace
     WHERE nspname = 'ledger'
    ORDER BY 1, 2, 3, 4
"""
TABLES = ("identity", "migrations", "events", "heads", "commands", "effects", "positions")


@pytest.fixture(scope="module")
def fresh() -> Iterator[Embedded]:
    """Another cluster, with nothing in it."""
    with throwaway() as server:
        yield server


def tool(server: Embedded, name: str, *words: str, read: bytes = b"") -> bytes:
    """Run one of the programs that lie beside the server's own."""
    pid = server.postmaster_pid()
    assert pid is not None
    program = Path(psutil.Process(pid).exe()).with_name(name)
    done = subprocess.run([program, *words], input=read, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def dump(server: Embedded, database: str) -> bytes:
    return tool(server, "pg_dump", "-Fc", "-d", server.admin_dsn(database))


def restore(server: Embedded, roles: bytes, archive: bytes, database: str) -> str:
    """Roles and archive into a new database; its DSN for the everyday role."""
    with psycopg.connect(server.admin_dsn(), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")  # type: ignore[call-overload]
        connection.execute(f"CREATE DATABASE {database}")  # type: ignore[call-overload]
    tool(server, "psql", "-q", "-d", server.admin_dsn(), read=roles)
    tool(server, "pg_restore", "--exit-on-error", "-d", server.admin_dsn(database), read=archive)
    return server.dsn(database)


@pytest.fixture
def filled(log: Ledger) -> Ledger:
    with log.open(OpenLamp, "hall") as lamp:
        lamp.make(40)
    log.append("lamp/desk", LampMade(), *[LampRead()] * 50, command="many")
    log.append("lamp/bare", LampRead(), head=False)
    return log


@pytest.fixture
def again(postgres: Embedded, fresh: Embedded, filled: Ledger, database: str) -> Callable[[], str]:
    """Restores what the ledger was when the fixture was made into the fresh cluster; the DSN there."""
    archive = dump(postgres, database)
    # Some of the roles are there already; psql goes on.
    roles = tool(postgres, "pg_dumpall", "--roles-only", "--no-role-passwords", "-d", postgres.admin_dsn())
    return lambda: restore(fresh, roles, archive, "again")


def everything(dsn: str) -> dict[str, list[Any]]:
    with psycopg.connect(dsn) as connection:
        connection.execute("SET ROLE ledger_owner")
        rows = {
            name: connection.execute(f"SELECT * FROM ledger.{name} ORDER BY 1").fetchall() for name in TABLES
        }  # type: ignore[call-overload]
        del rows["positions"]
        rows["last"] = connection.execute("SELECT pg_sequence_last_value('ledger.positions')").fetchall()
        return rows | {"objects": connection.execute(OBJECTS).fetchall()}


def test_a_restored_ledger_is_the_same_and_goes_on(
    filled: Ledger, dsn: str, again: Callable[[], str]
) -> None:
    cursor = Cursor.after(filled.identity.ledger, filled.read("lamp/desk")[-1])
    there = again()
    assert everything(there) == everything(dsn)
    with ledger.connect(there) as restored, psycopg.connect(there) as user:
        assert restored.identity.ledger == filled.identity.ledger
        position = restored.check_cursor(Cursor.parse(str(cursor)))
        assert [row.stream for row in restored.log(position, restored.bound())] == ["lamp/bare"]
        assert restored.load(OpenLamp, "hall").state == filled.load(OpenLamp, "hall").state
        assert restored.append("lamp/desk", LampMade(), *[LampRead()] * 50, command="many").repeated
        new = restored.append("lamp/desk", LampRead(), expected=Guard(frozenset({"made"})))
        assert (new.version, new.first_position) == (52, restored.bound())
        with pytest.raises(pg.InsufficientPrivilege, match="permission denied"):
            user.execute("INSERT INTO ledger.events SELECT * FROM ledger.events")
        user.rollback()
        with pytest.raises(psycopg.Error, match="append-only"):
            as_owner(user, "DELETE FROM events")


def test_a_cursor_from_after_the_dump_is_refused(filled: Ledger, again: Callable[[], str]) -> None:
    later = filled.append("lamp/desk", LampRead())
    cursor = Cursor.after(filled.identity.ledger, filled.read("lamp/desk")[-1])
    assert filled.check_cursor(cursor) == later.last_position
    with ledger.connect(again()) as restored:
        with pytest.raises(CursorMismatch, match="no event at position"):
            restored.check_cursor(cursor)
        same = restored.append("lamp/desk", LampRead())
        assert (same.first_position, same.version) == (later.first_position, later.version)
        with pytest.raises(CursorMismatch, match="is not the one"):
            restored.check_cursor(cursor)


def test_a_cursor_of_another_ledger_is_refused(filled: Ledger, fresh: Embedded) -> None:
    cursor = Cursor.after(filled.identity.ledger, filled.read("lamp/desk")[-1])
    with ledger.connect(fresh.dsn(), create=True) as other, pytest.raises(CursorMismatch, match="of ledger"):
        other.check_cursor(cursor)


def test_a_sequence_behind_the_events_is_refused(filled: Ledger, dsn: str, connection: Connection) -> None:
    last = filled.bound()
    as_owner(connection, "SELECT setval('positions', %s)", last - 1)
    with pytest.raises(DamagedLedger, match=f"at {last - 1}, behind the last event {last}"):
        ledger.connect(dsn)
    as_owner(connection, "SELECT setval('positions', %s)", last)
    with ledger.connect(dsn) as mended:
        mended.append("lamp/desk", LampRead())
        assert look(mended, last) == [last + 1]
