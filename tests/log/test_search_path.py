"""Tricks of a caller: what lies first in its search_path, and what it says of itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, LiteralString

import psycopg
import pytest

import ledger
from ledger import Append, Body, Ledger
from ledger.log import read
from ledger.log.append import NEW
from ledger.log.appender import send
from ledger.log.connection import CallingConnection
from ledger.log.sql import run
from tests.lamp import LampRead

Connection = psycopg.Connection[Any]
BODY = Body("lamp.read", 1, "{}")


def append(connection: Connection, stream: str = "lamp/a") -> ledger.Appended:
    return send(connection, "ledger", [Append(stream, [BODY], NEW)], "{}", None)


HOSTILE = """
CREATE SCHEMA trap;
CREATE TABLE trap.caught (what text);
GRANT ALL ON SCHEMA trap TO PUBLIC; GRANT ALL ON trap.caught TO PUBLIC;
CREATE FUNCTION trap.spring(what text) RETURNS void LANGUAGE sql AS
    $$ INSERT INTO trap.caught SELECT what || ' as ' || current_user $$;
CREATE TABLE trap.events (position bigint, recorded_at timestamptz, version bigint, schema smallint,
                          stream text, topic text, data jsonb, raw bytea, meta jsonb);
CREATE TABLE trap.heads (stream text, version bigint, state_version bigint, token bigint,
                         state_schema integer, status text, state jsonb);
CREATE TABLE trap.commands (first_position bigint, last_position bigint, recorded_at timestamptz,
                            command text, digest bytea);
CREATE SEQUENCE trap.positions;
CREATE TYPE trap.appended AS ("position" bigint, version bigint, recorded_at timestamptz, outcome text,
                              found_status text, found_token bigint);
GRANT ALL ON ALL TABLES IN SCHEMA trap TO PUBLIC; GRANT ALL ON SEQUENCE trap.positions TO PUBLIC;
"""
FUNCTIONS = {
    "coalesce_(text)": "text",
    "nextval(text)": "bigint",
    "pg_sequence_last_value(text)": "bigint",
    "lock_class()": "bigint",
    "mark_name()": "text",
    "mark()": "void",
    "begin_append()": "boolean",
    "take_position()": "bigint",
    "take_block(bigint)": "bigint",
    "last_version(text)": "bigint",
    "stamped(text, timestamptz)": "jsonb",
    "heal_head(text)": "bigint",
    "be_durable()": "void",
    "apply_effects(bigint, bigint)": "void",
    "current_setting(text, boolean)": "text",
    "clock_timestamp()": "timestamptz",
    "jsonb_to_recordset(jsonb)": "SETOF record",
    "hashtext(text)": "integer",
}
OPERATORS = [
    ("=", "text", "text"),
    ("+", "bigint", "integer"),
    ("<>", "bigint", "bigint"),
    ("|", "bigint", "bigint"),
]


def traps() -> list[str]:
    made = [HOSTILE]
    for function, returns in FUNCTIONS.items():
        made.append(
            f"CREATE FUNCTION trap.{function} RETURNS {returns} LANGUAGE plpgsql AS $$ BEGIN "
            f"PERFORM trap.spring('{function}'); RAISE 'trapped'; END $$"
        )
    for number, (sign, left, right) in enumerate(OPERATORS):
        made.append(
            f"CREATE FUNCTION trap.op_{number}({left}, {right}) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN "
            f"PERFORM trap.spring('{sign}'); RAISE 'trapped'; END $$"
        )
        made.append(
            f"CREATE OPERATOR trap.{sign} (LEFTARG = {left}, RIGHTARG = {right}, FUNCTION = trap.op_{number})"
        )
    return made


TEMPORARY = """
CREATE TEMP TABLE events (LIKE trap.events); CREATE TEMP TABLE heads (LIKE trap.heads);
CREATE TEMP TABLE commands (LIKE trap.commands); CREATE TEMP TABLE effects (name text, routine text);
CREATE TEMP SEQUENCE positions START 1000000; SELECT nextval('pg_temp.positions');
"""


@pytest.mark.parametrize("path", ["trap, pg_catalog", "pg_temp, trap, pg_catalog", "pg_temp", "trap, ledger"])
def test_a_hostile_search_path_catches_nothing(
    only: Callable[[str], str], log: Ledger, admin_dsn: str, path: LiteralString
) -> None:
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        for trap in traps():
            admin.execute(trap)  # type: ignore[arg-type]
        admin.execute(f"GRANT TEMP ON DATABASE {admin.info.dbname} TO PUBLIC")  # type: ignore[arg-type]
    with CallingConnection.connect(only("ledger_writer"), autocommit=True) as connection:
        connection.execute(TEMPORARY)
        connection.execute(f"SET search_path = {path}")  # type: ignore[arg-type]
        assert append(connection).versions == {"lamp/a": 1}
        appends = [Append("lamp/a", [BODY, BODY]), Append("lamp/b", [BODY], NEW)]
        done = send(connection, "ledger", appends, "{}", "command")
        assert (done.first_position, done.last_position, done.versions) == (2, 4, {"lamp/a": 3, "lamp/b": 1})
        assert send(connection, "ledger", appends, "{}", "command").repeated
        several = send(connection, "ledger", [Append("lamp/a", [BODY, BODY])], "{}", None)
        assert several.versions == {"lamp/a": 5}
        with pytest.raises(ledger.StreamConflict):
            append(connection)
        found = connection.execute(
            "SELECT (SELECT count(*) FROM pg_temp.events), (SELECT count(*) FROM trap.caught)"
        )
        assert found.fetchone() == (0, 0)
    assert len(log.log(0, log.bound())) == 6


@pytest.mark.parametrize(("function", "events"), [("append_one", 1), ("append_stream", 2)])
def test_the_traps_would_have_caught_a_function_without_a_path_of_its_own(
    only: Callable[[str], str], admin_dsn: str, function: str, events: int
) -> None:
    """The negative control: the same call without SET search_path springs a trap."""
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        for trap in traps():
            admin.execute(trap)  # type: ignore[arg-type]
        row = admin.execute(
            "SELECT pg_get_function_identity_arguments(oid) FROM pg_proc WHERE proname = %s", [function]
        ).fetchone()
        assert row is not None
        inputs = ", ".join(part for part in row[0].split(", ") if not part.startswith("OUT"))
        admin.execute(f"ALTER FUNCTION ledger.{function}({inputs}) RESET search_path")
    with CallingConnection.connect(only("ledger_writer"), autocommit=True) as connection:
        connection.execute("SET search_path = trap, pg_catalog")
        with pytest.raises(psycopg.Error, match="trapped"):
            send(connection, "ledger", [Append("lamp/a", [BODY] * events, NEW)], "{}", None)


def test_every_function_that_acts_as_the_owner_has_a_path_of_its_own(connection: Connection) -> None:
    rows = connection.execute(
        "SELECT proname, proconfig FROM pg_proc WHERE pronamespace = 'ledger'::regnamespace AND prosecdef"
    ).fetchall()
    assert {"append_one", "append_stream", "append_many"} <= {name for name, _ in rows}
    assert all("search_path=ledger, pg_temp" in (config or ()) for _, config in rows)


def test_a_forged_mark_hides_no_append_from_readers(only: Callable[[str], str], log: Ledger) -> None:
    """A writer that says that it is marked already must still hold a mark while its append is open."""
    log.append("lamp/a", LampRead())
    with (
        psycopg.connect(only("ledger_writer")) as connection,
        psycopg.connect(only("ledger_reader")) as reader,
    ):
        (name,) = reader.execute("SELECT ledger.mark_name()").fetchone() or ("",)
        connection.execute("SELECT set_config(%s, '99999', false)", (name,))
        append(connection, "lamp/forged")
        log.append("lamp/a", LampRead())
        assert log.bound() == 1
        connection.commit()
        assert log.bound() == 3


def test_reading_statements_name_their_schema(
    only: Callable[[str], str], log: Ledger, admin_dsn: str
) -> None:
    log.append("lamp/a", LampRead())
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute(HOSTILE)
    with psycopg.connect(only("ledger_reader"), autocommit=True) as connection:
        connection.execute("SET search_path = trap")
        assert len(run(connection, "ledger", read.SQL.read_log, after=0, bound=9, limit=9)) == 1
        assert read.SQL.bound.text("ledger")
        assert run(connection, "ledger", read.SQL.bound, known=-1) == [(1,)]
