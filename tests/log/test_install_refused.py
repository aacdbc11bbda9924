"""Where a ledger cannot be made or served, and what is said then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest
from psycopg import sql

import ledger
from ledger import BadName, DamagedLedger, NoPermission, ReadOnly, SchemaMismatch
from ledger.embedded import Embedded
from ledger.log import install
from tests.lamp import LampRead

Connection = psycopg.Connection[Any]
_numbers = count(1)


def connect(dsn: str, **options: Any) -> Connection:
    return psycopg.connect(dsn, autocommit=True, **options)


def test_a_schema_that_holds_something_else_is_left_alone(connection: Connection) -> None:
    connection.execute("CREATE SCHEMA garden CREATE TABLE flowers (id bigint)")
    for schema in ("garden", "public", "information_schema"):
        with pytest.raises(
            SchemaMismatch, match=f"schema '{schema}' exists and is not a ledger: choose another"
        ):
            install.init(connection, schema)
    assert connection.execute(
        "SELECT count(*) FROM pg_class WHERE relnamespace = 'garden'::regnamespace"
    ).fetchone() == (1,)
    assert connection.execute(
        "SELECT count(*) FROM pg_roles WHERE rolname ~ '^(garden|public)_'"
    ).fetchone() == (0,)


def test_a_table_called_identity_makes_no_ledger(connection: Connection) -> None:
    connection.execute("CREATE SCHEMA passport CREATE TABLE identity (id bigint)")
    with pytest.raises((SchemaMismatch, NoPermission)):
        install.init(connection, "passport")
    assert connection.execute("SELECT count(*) FROM pg_roles WHERE rolname LIKE 'passport%'").fetchone() == (
        0,
    )


@pytest.mark.parametrize(
    "schema", ["", "Ledger", "1st", "a-b", 'a"b', "a b", "x" * 41, "é", "a;b", "pg_ledger", "a\n"]
)
def test_schema_names_are_checked(connection: Connection, dsn: str, schema: str) -> None:
    for attempt in (
        lambda: install.init(connection, schema),
        lambda: ledger.connect(dsn, schema=schema or " "),
    ):
        with pytest.raises(
            BadName, match=r"schema .* must be lower-case letters, digits and '_', at most 40"
        ):
            attempt()


def test_a_schema_name_may_be_a_word_of_sql(connection: Connection, dsn: str) -> None:
    for schema in ("select", "_x", "x" * 40):
        install.init(connection, schema)
        with ledger.connect(dsn, schema=schema) as log:
            assert log.append("lamp/a", LampRead()).first_position == 1


def test_no_ledger_is_made_where_none_was_wanted(postgres: Embedded, empty: Callable[..., str]) -> None:
    name = empty()
    with pytest.raises(SchemaMismatch, match="run `pledger init`"):
        ledger.connect(postgres.dsn(name))
    with ledger.connect(postgres.dsn(name), create=True) as log:
        assert log.bound() == 0
    with ledger.connect(postgres.dsn(name)) as log:
        assert log.append("lamp/a", LampRead()).first_position == 1


def test_who_may_not_make_roles_is_told_what_an_administrator_must_run(
    postgres: Embedded, empty: Callable[..., str], login: Callable[..., str]
) -> None:
    user, name, schema = login(), empty(), f"plain_{next(_numbers)}"
    dsn = psycopg.conninfo.make_conninfo(postgres.dsn(name), user=user, password="x")
    with connect(dsn) as connection:
        with pytest.raises(
            NoPermission, match=rf'"{user}" may not make the ledger.s roles .* administrator run'
        ) as caught:
            install.init(connection, schema)
        todo = str(caught.value).partition(", or run ")[2].removesuffix(" and then `pledger init` again")
        assert (todo.count("CREATE ROLE"), todo.count("GRANT")) == (5, 6)
        with connect(postgres.admin_dsn(name)) as admin:
            admin.execute(cast("Any", todo))
        with pytest.raises(
            NoPermission, match=f'run GRANT CREATE ON DATABASE "{name}" TO "{user}";'
        ) as caught:
            install.init(connection, schema)
        with connect(postgres.admin_dsn(name)) as admin:
            admin.execute(cast("Any", str(caught.value).partition("administrator run ")[2]))
        install.init(connection, schema)
    with ledger.connect(dsn, schema=schema) as log:
        assert log.append("lamp/a", LampRead()).first_position == 1
    with connect(postgres.admin_dsn(name)) as admin:
        admin.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(schema)))


def test_who_is_not_in_the_roles_that_another_made_is_told_which_to_grant(
    postgres: Embedded, empty: Callable[..., str], login: Callable[..., str], template: str
) -> None:
    user, name = login("CREATEROLE"), empty()
    with connect(postgres.admin_dsn(name)) as admin:
        admin.execute(
            sql.SQL("GRANT CREATE ON DATABASE {} TO {}").format(sql.Identifier(name), sql.Identifier(user))
        )
    with connect(postgres.dsn(name), user=user, password="x") as connection:
        with pytest.raises(NoPermission, match='GRANT "ledger_owner" TO') as caught:
            install.init(connection)
    assert "CREATE ROLE" not in str(caught.value)


def test_a_database_that_is_not_utf8_is_refused(postgres: Embedded, empty: Callable[..., str]) -> None:
    name = empty("ENCODING 'SQL_ASCII' LOCALE 'C' LOCALE_PROVIDER libc TEMPLATE template0")
    with connect(postgres.dsn(name)) as connection:
        with pytest.raises(SchemaMismatch, match="the database's encoding is SQL_ASCII; a ledger needs UTF8"):
            install.init(connection)
        assert not install.is_there(connection, "ledger")


def test_an_old_server_is_refused() -> None:
    info = SimpleNamespace(server_version=140011, parameter_status=lambda _: "UTF8")
    with pytest.raises(SchemaMismatch, match="PostgreSQL 14 is too old: 15 to 18 are supported"):
        install._check_server(cast("Connection", SimpleNamespace(info=info)))
    info.server_version = 150000
    install._check_server(cast("Connection", SimpleNamespace(info=info)))


def test_a_standby_and_a_sequence_that_is_behind_are_refused(connection: Connection, dsn: str) -> None:
    found = install.identify(connection, "ledger")
    with pytest.raises(ReadOnly, match="this server is a standby"):
        install.check(replace(found, standby=True))
    with ledger.connect(dsn) as log:
        log.append("lamp/a", LampRead(), LampRead())
    with connection.transaction():
        connection.execute("SET LOCAL ROLE ledger_owner")
        connection.execute("SELECT setval('ledger.positions', 1)")
    with pytest.raises(
        DamagedLedger, match=r"at 1, behind the last event 2: .* set the sequence as `pledger doctor`"
    ):
        ledger.connect(dsn)


def test_a_sequence_that_falls_behind_later_stops_appends(log: ledger.Ledger, connection: Connection) -> None:
    log.append("lamp/a", LampRead(), LampRead())
    with connection.transaction():
        connection.execute("SET LOCAL ROLE ledger_owner")
        connection.execute("SELECT setval('ledger.positions', 1)")
    with pytest.raises(
        DamagedLedger, match=r"the sequence of positions is behind the events: .* `pledger doctor`"
    ):
        log.append("lamp/b", LampRead(), expected=0)
    assert [info.stream for info in log.streams()] == ["lamp/a"]


def test_an_identity_that_was_emptied_is_refused(connection: Connection, dsn: str) -> None:
    with connection.transaction():
        connection.execute("SET LOCAL ROLE ledger_owner")
        connection.execute("DELETE FROM ledger.identity")
    with pytest.raises(SchemaMismatch, match="has no identity: run `pledger init`"):
        ledger.connect(dsn)


# Schemas that were made beforehand


def test_nobody_is_told_to_drop_what_others_use(connection: Connection) -> None:
    connection.execute("CREATE SCHEMA shed CREATE TABLE spades (id bigint)")
    connection.execute("CREATE SCHEMA barn_views CREATE TABLE hay (id bigint)")
    for schema in ("public", "information_schema", "shed", "barn"):
        with pytest.raises(SchemaMismatch, match="choose another name") as caught:
            install.init(connection, schema)
        assert "drop" not in str(caught.value)
    with pytest.raises(SchemaMismatch, match="all programs of the database share this schema"):
        install.init(connection, "public")


@pytest.mark.parametrize(
    "content",
    ["TABLE {0}.a ()", "FUNCTION {0}.f() RETURNS int LANGUAGE sql AS 'SELECT 1'", "TYPE {0}.t AS ENUM ('x')",
     "COLLATION {0}.c FROM \"C\"", "SEQUENCE {0}.s"],
)  # fmt: skip
def test_a_schema_that_holds_anything_is_not_taken(connection: Connection, content: str) -> None:
    connection.execute("CREATE SCHEMA hut")
    connection.execute(f"CREATE {content.format('hut')}".encode())
    with pytest.raises(SchemaMismatch, match="schema 'hut' exists and is not a ledger"):
        install.init(connection, "hut")


def test_an_empty_schema_that_an_administrator_made_is_taken(admin_dsn: str, dsn: str) -> None:
    with connect(admin_dsn) as admin:
        admin.execute("CREATE SCHEMA prepared; CREATE SCHEMA prepared_views")
        install.init(admin, "prepared")
        owners = admin.execute(
            "SELECT nspname, nspowner::regrole::text FROM pg_namespace WHERE nspname ~ '^prepared'"
        ).fetchall()
        admin.execute("GRANT prepared_writer, prepared_reader TO pledger")
    assert dict(owners) == {
        "prepared": "prepared_owner",
        "prepared_views": "prepared_projector",
        "prepared_effects": "prepared_owner",
    }
    with ledger.connect(dsn, schema="prepared") as log:
        assert log.append("lamp/a", LampRead()).first_position == 1


def test_who_may_make_no_schema_is_told_how_one_is_made_for_him(
    postgres: Embedded, empty: Callable[..., str], login: Callable[..., str]
) -> None:
    """An administrator prepares roles and empty schemas; who installs needs no right in the database."""
    user, name, schema = login(), empty(), f"made_{next(_numbers)}"
    places = {schema: "owner", f"{schema}_views": "projector", f"{schema}_effects": "owner"}
    with connect(postgres.admin_dsn(name)) as admin:
        for role in install.ROLES:
            admin.execute(cast("Any", f'CREATE ROLE "{schema}_{role}"; GRANT "{schema}_{role}" TO "{user}"'))
        admin.execute(cast("Any", f'GRANT "{schema}_projector" TO "{schema}_owner"'))
        for place in places:
            admin.execute(cast("Any", f'CREATE SCHEMA "{place}" AUTHORIZATION "{user}"'))
        with connect(postgres.dsn(name), user=user, password="x") as connection:
            for place, kind in places.items():
                alter = f'ALTER SCHEMA "{place}" OWNER TO "{schema}_{kind}";'
                with pytest.raises(NoPermission, match=f"let an administrator run {alter}"):
                    install.init(connection, schema)
                admin.execute(cast("Any", alter))
            install.init(connection, schema)
        for place in places:
            admin.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.Identifier(place)))
