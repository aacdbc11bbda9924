"""Positions of readers come to an older ledger, and are kept by who may append."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import errors as pg

import ledger
from consumers import Reactor
from ledger import Cursor, Ledger, SchemaMismatch
from ledger.store import install
from ledger.store.positions import Positions
from tests.lamp import LampRead
from tests.store.test_install import described

Connection = psycopg.Connection[Any]
OLDER = """
    SET LOCAL ROLE ledger_owner; SET LOCAL search_path = ledger;
    DROP TABLE readers; DROP FUNCTION keep_position; DROP FUNCTION forget_position;
    DROP TABLE leases, workers, rates, elections;
    DROP TABLE view_parked, view_copies, views, moves, sets, level_facts, levels;
    DELETE FROM migrations WHERE number > 1;
"""


@pytest.fixture
def older(connection: Connection, log: Ledger) -> list[str]:
    """Makes the ledger one of before; what it was."""
    now = described(connection, "ledger")
    log.append("a", LampRead())
    with connection.transaction():
        connection.execute(OLDER)
    return now


def test_a_ledger_of_before_is_brought_up(older: list[str], dsn: str, connection: Connection) -> None:
    with pytest.raises(SchemaMismatch, match="the ledger is at schema 1, this code at"):
        ledger.connect(dsn)
    install.init(connection)
    assert described(connection, "ledger") == older
    with ledger.connect(dsn) as log:
        assert Reactor(log, "x", lambda event: []).catch_up() == 1


def test_a_connect_that_may_create_brings_it_up_itself(older: list[str], dsn: str) -> None:
    with ledger.connect(dsn, create=True) as log:
        assert Reactor(log, "x", lambda event: []).catch_up() == 1


def test_a_writer_keeps_positions_by_the_function_only(
    log: Ledger, dsn: str, connect: Any, admin_dsn: str
) -> None:
    Positions(log).keep("x", Cursor(log.identity.ledger))
    for role, may in (("ledger_writer", True), ("ledger_reader", False), ("ledger_eraser", False)):
        with psycopg.connect(admin_dsn, autocommit=True) as they:
            they.execute(f"SET ROLE {role}")  # type: ignore[call-overload]
            for call in (f"keep_position('y', '{Cursor(log.identity.ledger)}')", "forget_position('y')"):
                if may:
                    they.execute(f"SELECT ledger.{call}")  # type: ignore[call-overload]
                    continue
                with pytest.raises(pg.InsufficientPrivilege):
                    they.execute(f"SELECT ledger.{call}")  # type: ignore[call-overload]
            for change in ("DELETE FROM {}", "UPDATE {} SET reader = reader", "TRUNCATE {}"):
                with pytest.raises(pg.InsufficientPrivilege):
                    they.execute(change.format("ledger.readers"))  # type: ignore[call-overload]
    assert Positions(log).kept("x") is not None


@pytest.mark.parametrize("cursor", ["", "x", "1:2:3", "00000000-0000-0000-0000-000000000000:x:ab"])
def test_what_is_no_cursor_is_refused(connection: Connection, cursor: str) -> None:
    with pytest.raises(pg.CheckViolation):
        connection.execute("SELECT ledger.keep_position('x', %s)", [cursor])


def test_a_cursor_of_another_ledger_replaces_what_was_kept(log: Ledger) -> None:
    """It can only be there by hand; a reactor refuses such a position before it keeps one."""
    positions, other = Positions(log), Cursor(uuid4(), 100, "ab")
    for cursor in (other, Cursor(log.identity.ledger, 5, "ab")):
        positions.keep("x", cursor)
        assert positions.kept("x") == cursor
