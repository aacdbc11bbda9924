"""Making a ledger: once, twice, at once, from older and newer code, and where it cannot be made."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any, cast

import psycopg
import pytest
from psycopg import sql

import ledger
from ledger import BadInput, SchemaMismatch
from ledger.embedded import Embedded
from ledger.log import install
from ledger.log import sql as scripts
from ledger.log.health import examine
from tests.lamp import LampRead

Connection = psycopg.Connection[Any]
_numbers = count(1)

# Everything that an installation makes, in words that do not hold the schema's name or any number of its own.
CATALOG = """
SELECT format('%%s %%s.%%s %%s %%s %%s %%s', c.relkind, c.relname, a.attname,
              format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attcollation::regcollation,
              pg_get_expr(d.adbin, d.adrelid)), c.reloptions, c.relacl
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
 WHERE c.relnamespace = %(schema)s::text::regnamespace
UNION ALL
SELECT format('constraint %%s %%s', conname, pg_get_constraintdef(oid)), NULL, NULL
  FROM pg_constraint WHERE connamespace = %(schema)s::text::regnamespace
UNION ALL
SELECT format('index %%s', indexdef), NULL, NULL FROM pg_indexes WHERE schemaname = %(schema)s
UNION ALL
SELECT format('sequence %%s %%s %%s %%s %%s %%s', relname, seqtypid::regtype, seqstart, seqmax,
              seqcache, seqcycle), NULL, NULL
  FROM pg_sequence JOIN pg_class ON oid = seqrelid WHERE relnamespace = %(schema)s::text::regnamespace
UNION ALL
SELECT format('function %%s', pg_get_functiondef(oid)), proconfig, proacl
  FROM pg_proc WHERE pronamespace = %(schema)s::text::regnamespace
UNION ALL
SELECT format('trigger %%s', pg_get_triggerdef(t.oid)), NULL, NULL
  FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid
 WHERE c.relnamespace = %(schema)s::text::regnamespace AND NOT tgisinternal
"""


def described(connection: Connection, schema: str) -> list[str]:
    """All that the schema holds, sorted; its name, its lock class and the name of its mark taken out."""
    row = connection.execute(
        sql.SQL("SELECT lock_class FROM {}.identity").format(sql.Identifier(schema))
    ).fetchone()
    rows = connection.execute(CATALOG, {"schema": schema}).fetchall()
    texts = (re.sub(r"mark_[0-9a-f]{32}", "MARK", " ".join(map(str, found))) for found in rows)
    return sorted(
        text.replace(str(row[0] if row else ""), "CLASS").replace(schema, "SCHEMA") for text in texts
    )


def connect(dsn: str, **options: Any) -> Connection:
    return psycopg.connect(dsn, autocommit=True, **options)


def test_a_second_installation_changes_nothing(connection: Connection) -> None:
    before = described(connection, "ledger"), install.identify(connection, "ledger")
    assert install.init(connection) == before[1]
    assert (described(connection, "ledger"), install.identify(connection, "ledger")) == before
    assert len(before[0]) > 60


def test_an_installation_leaves_the_session_as_it_was(connection: Connection) -> None:
    asked = "SELECT current_user, session_user, current_setting('search_path')"
    before = connection.execute(asked).fetchone()
    install.init(connection)
    assert connection.execute(asked).fetchone() == before


def test_an_installation_joins_no_transaction(connection: Connection) -> None:
    with (
        connection.transaction(),
        pytest.raises(BadInput, match="the connection is in a transaction: commit it"),
    ):
        install.init(connection)


def test_installations_at_once_make_one_ledger(postgres: Embedded, empty: Callable[..., str]) -> None:
    dsn = postgres.dsn(empty())

    def run(_: int) -> object:
        with connect(dsn) as connection:
            return install.init(connection, "many").ledger

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(run, range(8)))) == 1


def test_installations_at_once_in_several_databases_share_their_roles(
    postgres: Embedded, empty: Callable[..., str]
) -> None:
    schema, names = f"fresh_{next(_numbers)}", [empty() for _ in range(4)]

    def run(name: str) -> object:
        with connect(postgres.dsn(name)) as connection:
            return install.init(connection, schema).ledger

    with ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(run, names))) == 4


def test_appends_go_on_while_it_is_installed_again(log: ledger.Ledger, connection: Connection) -> None:
    def append(number: int) -> None:
        for _ in range(20):
            log.append(f"lamp/{number}", LampRead())

    with ThreadPoolExecutor(3) as threads:
        running = [threads.submit(append, number) for number in range(3)]
        while not all(one.done() for one in running):
            install.init(connection)
        for one in running:
            one.result()
    assert {info.version for info in log.streams()} == {20}


def test_two_ledgers_in_one_database_know_nothing_of_each_other(dsn: str, connection: Connection) -> None:
    other = install.init(connection, "other")
    assert other.lock_class != install.identify(connection, "ledger").lock_class
    with ledger.connect(dsn) as one, ledger.connect(dsn, schema="other") as two:
        one.append("lamp/a", LampRead())
        assert (two.bound(), two.streams()) == (0, [])
        assert two.append("lamp/a", LampRead()).first_position == 1
    rights = connection.execute(
        "SELECT has_schema_privilege(role, schema, 'usage') FROM (VALUES ('ledger_writer', 'other'), "
        "('other_writer', 'ledger'), ('other_owner', 'ledger'), ('other_writer', 'other')) v (role, schema)"
    ).fetchall()
    assert rights == [(False,), (False,), (False,), (True,)]


# Migrations


@pytest.fixture
def next_migration(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the code had one more migration than it has."""
    known = scripts.migrations()
    text = "ALTER TABLE heads ADD COLUMN hue text; CREATE TABLE extra (id bigint PRIMARY KEY);"
    script = scripts.Script(known[-1].number + 1, f"{known[-1].number + 1:04}_hue", cast("Any", text))
    monkeypatch.setattr(scripts, "migrations", lambda: [*known, script])


def test_an_older_ledger_is_refused_until_it_is_brought_up(
    dsn: str, connection: Connection, next_migration: None
) -> None:
    with pytest.raises(
        SchemaMismatch, match=r"the ledger is at schema (\d+), this code at \d+: run `pledger init`"
    ):
        ledger.connect(dsn)
    before = install.identify(connection, "ledger")
    after = install.init(connection)
    assert (after.ledger, after.schema_number) == (before.ledger, before.schema_number + 1)
    assert connection.execute("SELECT count(*) FROM ledger.heads WHERE hue IS NULL").fetchone() == (0,)
    with ledger.connect(dsn) as log:
        log.append("lamp/a", LampRead())
    assert install.init(connection) == install.identify(connection, "ledger")


def test_a_migration_that_fails_changes_nothing(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = scripts.migrations()
    script = scripts.Script(known[-1].number + 1, "bad", cast("Any", "CREATE TABLE extra (); SELECT 1/0;"))
    monkeypatch.setattr(scripts, "migrations", lambda: [*known, script])
    before = described(connection, "ledger"), install.identify(connection, "ledger")
    with pytest.raises(psycopg.errors.DivisionByZero):
        install.init(connection)
    assert (described(connection, "ledger"), install.identify(connection, "ledger")) == before


def test_a_newer_ledger_is_refused(dsn: str, connection: Connection) -> None:
    with connection.transaction():
        connection.execute("SET LOCAL ROLE ledger_owner")
        connection.execute("INSERT INTO ledger.migrations VALUES (9999, 'future', now())")
    before = described(connection, "ledger")
    for attempt in (lambda: ledger.connect(dsn), lambda: install.init(connection)):
        with pytest.raises(
            SchemaMismatch, match=r"the ledger is at schema 9999, this code at \d+: install a newer"
        ):
            attempt()
    assert described(connection, "ledger") == before


def test_a_ledger_of_a_development_version_is_refused_with_a_remedy(dsn: str, connection: Connection) -> None:
    with connection.transaction():
        connection.execute("SET LOCAL ROLE ledger_owner")
        connection.execute("UPDATE ledger.migrations SET name = 'foundation' WHERE number = 1")
        connection.execute("INSERT INTO ledger.migrations VALUES (6, 'projections', now())")
    says = r"a development version before 0\.1\.0 made this ledger, .*: export its events with that version"
    for attempt in (lambda: ledger.connect(dsn), lambda: install.init(connection)):
        with pytest.raises(SchemaMismatch, match=says):
            attempt()
    found = {check.name: check for check in examine(dsn)[1]}
    assert (found["schema"].verdict, found["schema"].cure) == ("fail", install.PRERELEASE_REMEDY)


def test_migrations_lead_to_the_tables_of_a_new_ledger(
    connection: Connection, request: pytest.FixtureRequest
) -> None:
    install.init(connection, "zz_moved")
    request.getfixturevalue("next_migration")
    install.init(connection, "zz_fresh")
    install.init(connection, "zz_moved")
    fresh, moved = described(connection, "zz_fresh"), described(connection, "zz_moved")
    assert fresh == moved
    with connection.transaction():  # the negative control: the least difference is seen
        connection.execute("SET LOCAL ROLE zz_moved_owner")
        connection.execute(
            "ALTER TABLE zz_moved.heads ALTER COLUMN status DROP NOT NULL, ALTER token SET DEFAULT 0"
        )
    assert described(connection, "zz_moved") != fresh
