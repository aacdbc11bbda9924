"""Positions of readers come to an older ledger, and are kept by who may append."""

from __future__ import annotations

from typing import Any, cast
from uuid import uuid4

import psycopg
import pytest
from psycopg import errors as pg

import ledger
from consumers import Reactor
from ledger import Cursor, Ledger, SchemaMismatch
from ledger.log import sql as scripts
from ledger.log.readers import SQL as READERS
from ledger.log.readers import Positions
from ledger.log.sql import run
from tests.lamp import LampRead

Connection = psycopg.Connection[Any]


def test_a_connect_that_may_create_brings_up_an_older_ledger(
    log: Ledger, dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append("a", LampRead())
    known = scripts.migrations()
    text = cast("Any", "ALTER TABLE readers ADD COLUMN hue text;")
    newer = scripts.Script(known[-1].number + 1, "hue", text)
    monkeypatch.setattr(scripts, "migrations", lambda: [*known, newer])
    with pytest.raises(
        SchemaMismatch, match=f"the ledger is at schema {known[-1].number}, this code at {newer.number}"
    ):
        ledger.connect(dsn)
    with ledger.connect(dsn, create=True) as brought:
        assert Reactor(brought, "x", lambda event: []).catch_up() == 1


def test_a_writer_keeps_positions_by_the_function_only(
    log: Ledger, dsn: str, connect: Any, admin_dsn: str
) -> None:
    Positions(log).keep("x", Cursor(log.identity.ledger))
    for role, may in (("ledger_writer", True), ("ledger_reader", False), ("ledger_eraser", False)):
        with psycopg.connect(admin_dsn, autocommit=True) as they:
            they.execute(f"SET ROLE {role}")  # type: ignore[call-overload]
            for call in (
                f"keep_position('y', '{Cursor(log.identity.ledger)}')",
                "forget_position('y')",
                "retry_parked('y', NULL)",
            ):
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
        with log.reader() as connection:
            run(connection, log.schema, READERS.keep_position, reader="x", cursor=str(cursor))
        assert positions.kept("x") == cursor
