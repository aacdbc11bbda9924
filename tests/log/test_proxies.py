"""Clients of two ledgers behind one proxy: no statement of the one is ever executed for the other."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, LiteralString

import psycopg
import pytest

import ledger
from ledger import Append, Body, Ledger, ServerUnavailable
from ledger.log import read
from ledger.log.append import NEW
from ledger.log.appender import SQL as APPEND
from ledger.log.appender import send
from ledger.log.cursor import Checkpoint
from ledger.log.install import init
from ledger.log.pool import connect_when_ready
from ledger.log.sql import run
from projections import Projector
from projections.views.in_state import InState
from tests.lamp import LampRead, OpenLamp
from tests.log.proxies import Relay

Connection = psycopg.Connection[Any]
BODY = Body("note.made", 1, "{}")
SCHEMAS = ("ledger", "other")
PREPARED: Final[LiteralString] = "SELECT count(*) FROM pg_prepared_statements"


@pytest.fixture
def two(connection: Connection) -> None:
    """A second ledger in the same database."""
    init(connection, "other")


def streams(connection: Connection, schema: str) -> set[str]:
    rows = connection.execute(f"SELECT stream FROM {schema}.events").fetchall()  # type: ignore[arg-type]
    return {stream for (stream,) in rows}


def test_the_name_of_a_statement_says_its_text(two: None, dsn: str, connection: Connection) -> None:
    """A session of the server that two ledgers use one after the other, as a proxy lets them."""
    with connect_when_ready(dsn, 5) as direct:
        for schema in SCHEMAS:
            send(direct, schema, [Append(f"{schema}/one", [BODY], NEW)], "{}", None)
            send(direct, schema, [Append(f"{schema}/many", [BODY, BODY], NEW)], "{}", None)
            assert read.open_one(direct, schema, OpenLamp, ["a"]).version == 0
    for schema in SCHEMAS:
        assert streams(connection, schema) == {f"{schema}/one", f"{schema}/many"}


def test_names_differ_by_schema_and_by_text_and_are_not_cut() -> None:
    statements = (APPEND.append_one, APPEND.append_stream, APPEND.append_many, APPEND.append_from)
    long = "x" * 39
    made = {one.prepared(schema)[0] for one in statements for schema in (*SCHEMAS, long + "a", long + "b")}
    assert len(made) == 4 * len(statements)
    assert all(len(name) < 64 for name in made)
    assert APPEND.append_one.prepared("other")[0].endswith(b"_append_one_other")


def test_nothing_is_prepared_through_a_proxy(relay: Relay, dsn: str) -> None:
    with connect_when_ready(relay.dsn, 5) as direct:
        for number in range(7):
            send(direct, "ledger", [Append(f"note/{number}", [BODY], NEW)], "{}", None)
            send(direct, "ledger", [Append(f"note/{number}", [BODY, BODY])], "{}", None)
            assert read.open_one(direct, "ledger", OpenLamp, ["a"]).version == 0
            assert run(direct, "ledger", read.SQL.bound, known=-1) == [(3 * number + 3,)]
        assert direct.execute(PREPARED).fetchone() == (0,)
    for way, prepares in ((relay.dsn, False), (dsn, True)):
        with psycopg.connect(way) as users, ledger.connect(dsn) as log:
            for number in range(3):
                with log.join(users) as joined:
                    joined.append(f"note/joined/{way == dsn}/{number}", BODY)
            assert (users.execute(PREPARED).fetchone() != (0,)) == prepares


def test_what_needs_a_session_is_refused_through_a_proxy(relay: Relay, log: Ledger, dsn: str) -> None:
    log.append("lamp/a", LampRead())
    with ledger.connect(relay.dsn, timeout=1) as proxied:
        assert len(proxied.log(0, proxied.bound())) == 1
        with pytest.raises(ServerUnavailable, match="to follow the log needs a connection of its own"):
            proxied.tail.read(Checkpoint(proxied.identity.ledger), 10)
        with pytest.raises(ServerUnavailable, match="to write views needs a connection of its own"):
            Projector(proxied, [InState()]).catch_up()


def test_two_ledgers_behind_pgbouncer_by_transaction(
    two: None, bouncer: Callable[[str], str], connection: Connection
) -> None:
    proxied = bouncer("transaction")

    def append(schema: str, number: int) -> None:
        with ledger.connect(proxied, schema=schema, actor="tester") as log:
            for each in range(12):
                stream = f"{schema}/{number}/{each}"
                log.append(stream, BODY, expected=0)
                log.append(stream, BODY, BODY)
                assert [found.version for found in log.read(stream)] == [1, 2, 3]

    with ThreadPoolExecutor(6) as threads:
        running = [threads.submit(append, schema, n) for schema in SCHEMAS for n in range(3)]
        for one in running:
            one.result()
    for schema in SCHEMAS:
        assert streams(connection, schema) == {f"{schema}/{n}/{each}" for n in range(3) for each in range(12)}
