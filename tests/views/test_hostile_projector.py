"""A projector that would be the owner: whatever it leaves where appends keep a view, the log stays."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import errors as pg

import projections.views.in_state  # noqa: F401  declares the view
from ledger import Append, Body, EffectFailed, Ledger, LedgerError
from ledger.log import install
from ledger.log.append import NEW
from ledger.log.appender import send
from ledger.log.pool import connect_when_ready
from projections.engine.attach import attach
from tests.views.kept_views import TALLY, counted, tallied

Connection = psycopg.Connection[Any]
BODY = Body("note.made", 1, "{}")

EVIL: LiteralString = """
CREATE TABLE ledger_views.seen (who text, session text);
GRANT INSERT ON ledger_views.seen TO PUBLIC;
CREATE FUNCTION ledger_views.evil() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    way text;
BEGIN
    FOREACH way IN ARRAY ARRAY[
        'INSERT INTO ledger_views.seen VALUES (current_user, session_user)',
        'SET ROLE ledger_owner',
        'SET SESSION AUTHORIZATION ledger_owner',
        'RESET ROLE',
        'ALTER FUNCTION ledger_effects.keep_tally(bigint, bigint) SECURITY INVOKER',
        'CREATE OR REPLACE FUNCTION ledger_effects.keep_tally(p_first bigint, p_last bigint) RETURNS void
             LANGUAGE sql AS ''SELECT ledger_views.evil()''',
        'ALTER FUNCTION ledger.apply_effects(bigint, bigint) OWNER TO ledger_projector',
        'GRANT USAGE ON SCHEMA ledger_effects TO ledger_projector',
        'GRANT ledger_owner TO ledger_projector',
        'CREATE FUNCTION ledger.last_version(varchar) RETURNS bigint LANGUAGE sql AS ''SELECT 7::bigint''',
        'ALTER TABLE ledger.events DISABLE TRIGGER ALL',
        'UPDATE ledger.events SET topic = ''forged'' WHERE position = 1',
        'DELETE FROM ledger.events WHERE position = 1',
        'INSERT INTO ledger.events (position, recorded_at, version, stream, topic, data)
             VALUES (99999, now(), 99, ''forged'', ''forged'', ''{}'')'
    ] LOOP
        BEGIN
            EXECUTE way;
        EXCEPTION WHEN OTHERS THEN NULL;
        END;
    END LOOP;
END $$;
CREATE FUNCTION ledger_views.trigger() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM ledger_views.evil(); RETURN NEW; END';
CREATE FUNCTION ledger_views.value(anyelement) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS
    'BEGIN PERFORM ledger_views.evil(); RETURN true; END';
GRANT USAGE ON SCHEMA ledger_views TO PUBLIC;
"""
KEEP = (
    "CREATE OR REPLACE FUNCTION ledger_views.keep_tally(p_first bigint, p_last bigint) RETURNS void "
    "LANGUAGE plpgsql"
)
TRIGGER = "EXECUTE FUNCTION ledger_views.trigger()"
TABLE = "ledger_views.{tally}"
WAYS: dict[str, str] = {
    "the function": f"{KEEP} AS 'BEGIN PERFORM ledger_views.evil(); END'",
    "the function, of the caller": f"{KEEP} SECURITY INVOKER AS 'BEGIN PERFORM ledger_views.evil(); END'",
    "the function, of its owner": f"{KEEP} SECURITY DEFINER AS 'BEGIN PERFORM ledger_views.evil(); END'",
    "another function of the name": "ALTER FUNCTION ledger_views.keep_tally(bigint, bigint) RENAME TO kept;"
    "CREATE FUNCTION ledger_views.keep_tally(bigint, bigint) RETURNS text LANGUAGE sql "
    "AS 'SELECT ledger_views.evil()::text'",
    "the statements of another copy": "INSERT INTO ledger.view_copies "
    "(view, copy, made_at, updated_at, definition, effect) "
    "VALUES ('tally', 77, now(), now(), '', ARRAY['SELECT ledger_views.evil()']); "
    "UPDATE ledger.views SET live = 77 WHERE name = 'tally'",
    "a trigger of rows": f"CREATE TRIGGER t BEFORE INSERT OR UPDATE ON {TABLE} FOR EACH ROW {TRIGGER}",
    "a trigger of statements": f"CREATE TRIGGER t AFTER INSERT ON {TABLE} {TRIGGER}",
    "a deferred trigger": f"CREATE CONSTRAINT TRIGGER t AFTER INSERT OR UPDATE ON {TABLE} "
    f"DEFERRABLE INITIALLY DEFERRED FOR EACH ROW {TRIGGER}",
    "a rule": f"CREATE RULE r AS ON INSERT TO {TABLE} DO ALSO SELECT ledger_views.evil()",
    "a check": f"ALTER TABLE {TABLE} ADD CHECK (ledger_views.value(stream))",
    "a default": "ALTER TABLE {parent} ADD COLUMN more boolean DEFAULT ledger_views.value(1)",
    "a generated column": "ALTER TABLE {parent} ADD COLUMN more boolean GENERATED ALWAYS AS "
    "(ledger_views.value(events)) STORED",
    "an index": f"CREATE INDEX ON {TABLE} ((ledger_views.value(events)))",
    "part of an index": f"CREATE INDEX ON {TABLE} (stream) WHERE ledger_views.value(events)",
    "a domain": "DROP VIEW ledger_views.tally;"
    "CREATE DOMAIN ledger_views.word AS text CHECK (ledger_views.value(VALUE));"
    "ALTER TABLE {parent} ALTER COLUMN stream TYPE ledger_views.word",
    "a policy": f"ALTER TABLE {TABLE} ENABLE ROW LEVEL SECURITY;"
    f"ALTER TABLE {TABLE} FORCE ROW LEVEL SECURITY; CREATE POLICY p ON {TABLE} USING (ledger_views.value(1))",
    "a view in place of the table": f"ALTER TABLE {TABLE} RENAME TO old; "
    f"CREATE VIEW {TABLE} AS SELECT * FROM ledger_views.old WHERE ledger_views.value(1)",
    "a search path": "CREATE TABLE ledger_views.commands (LIKE ledger.commands);"
    "CREATE TRIGGER t BEFORE INSERT ON ledger_views.commands EXECUTE FUNCTION ledger_views.trigger();"
    "GRANT ALL ON ledger_views.commands TO PUBLIC;"
    "CREATE FUNCTION ledger_views.bad(bigint, bigint) RETURNS boolean LANGUAGE plpgsql AS "
    "'BEGIN PERFORM ledger_views.evil(); RETURN true; END';"
    "CREATE OPERATOR ledger_views.> (FUNCTION = ledger_views.bad, LEFTARG = bigint, RIGHTARG = bigint);"
    "CREATE OPERATOR ledger_views.<> (FUNCTION = ledger_views.bad, LEFTARG = bigint, RIGHTARG = bigint);"
    f"{KEEP} AS 'BEGIN SET search_path = ledger_views, pg_catalog; END'",
    "a temporary table": f"{KEEP} AS 'BEGIN CREATE TEMP TABLE IF NOT EXISTS commands (LIKE ledger.commands);"
    "CREATE OR REPLACE TRIGGER t BEFORE INSERT ON commands EXECUTE FUNCTION ledger_views.trigger();"
    "GRANT ALL ON commands TO PUBLIC; SET search_path = pg_temp, ledger; END'",
    "no prepared statements": f"{KEEP} AS 'BEGIN DEALLOCATE ALL; PERFORM ledger_views.evil(); END'",
    "nothing of its own": f"{KEEP} AS 'BEGIN DROP OWNED BY ledger_projector; END'",
}


@pytest.fixture
def projector(only: Callable[[str], str]) -> Iterator[Connection]:
    with psycopg.connect(only("ledger_projector"), autocommit=True) as opened:
        opened.execute("SET ROLE ledger_projector")
        yield opened


@pytest.fixture
def attached(log: Ledger) -> Ledger:
    """A ledger with one event, of which appends keep a view."""
    log.append("note/1", BODY)
    attach(log, TALLY)
    return log


def in_place(connection: Connection, way: str) -> str:
    """The statements of a way, with the table that appends write, and the one of which it is a partition."""
    found = connection.execute(
        "SELECT inhrelid::regclass::text, inhparent::regclass::text FROM pg_inherits, ledger.views "
        "WHERE name = 'tally' AND inhrelid = format('ledger_views.tally_%s', live)::regclass"
    ).fetchone()
    assert found is not None
    return way.replace(TABLE, found[0]).replace("{parent}", found[1])


def unharmed(connection: Connection) -> None:
    wanted = "SELECT position, stream, topic FROM ledger.events WHERE topic = 'forged' OR position = 1"
    assert connection.execute(wanted).fetchall() == [(1, "note/1", "note.made")]
    guards = "SELECT tgenabled FROM pg_trigger WHERE tgrelid = 'ledger.events'::regclass AND NOT tgisinternal"
    assert connection.execute(guards).fetchall() == [("O",)]
    members = "SELECT pg_has_role('ledger_projector', 'ledger_owner', 'MEMBER')"
    assert connection.execute(members).fetchone() == (False,)
    with suppress(pg.UndefinedTable):  # it may have dropped all that it had
        seen = connection.execute("SELECT DISTINCT who FROM ledger_views.seen").fetchall()
        assert "ledger_owner" not in [who for (who,) in seen]


@pytest.mark.parametrize("way", list(WAYS))
def test_no_way_of_a_projector_leads_to_the_log(
    attached: Ledger,
    projector: Connection,
    connection: Connection,
    only: Callable[[str], str],
    way: str,
) -> None:
    projector.execute(EVIL)
    projector.execute(in_place(connection, WAYS[way]))  # type: ignore[arg-type]

    def append(dsn: str, name: str) -> None:
        with connect_when_ready(dsn, 5) as direct:
            for number, events in enumerate((1, 2, 1)):
                append = Append(f"note/{name}/{number}", [BODY] * events, NEW)
                with suppress(psycopg.Error, LedgerError):
                    send(direct, "ledger", [append], "{}", f"{name}/{number}")

    append(only("ledger_writer"), "writer")
    unharmed(connection)
    append(attached.address.conninfo, "owner")
    unharmed(connection)
    assert connection.execute("SELECT FROM ledger.events WHERE stream LIKE 'note/owner/%'").fetchall() == []


def test_who_may_become_the_owner_does_not_run_what_others_may_change(
    attached: Ledger,
    connection: Connection,
    only: Callable[[str], str],
    dsn: str,
) -> None:
    attached.append("note/1", BODY)
    login = psycopg.conninfo.conninfo_to_dict(only("ledger_projector"))["user"]
    with pytest.raises(
        EffectFailed, match=f"'view tally' refused .* up to {login}, a member of ledger_projector"
    ):
        attached.append("note/1", BODY)
    with connect_when_ready(only("ledger_writer"), 5) as direct:
        assert send(direct, "ledger", [Append("note/1", [BODY])], "{}", None).version == 3
    assert tallied(connection) == counted(connection)


def test_an_installation_takes_the_owners_rights_from_effects_of_older_ones(
    attached: Ledger,
    projector: Connection,
    connection: Connection,
    only: Callable[[str], str],
) -> None:
    connection.execute("SET ROLE ledger_owner")
    connection.execute("DROP FUNCTION ledger_effects.keep_tally")
    connection.execute(
        "CREATE OR REPLACE FUNCTION ledger.apply_effects(p_first bigint, p_last bigint) RETURNS void "
        "LANGUAGE plpgsql AS 'BEGIN PERFORM ledger_views.keep_tally(p_first, p_last); END'"
    )
    connection.execute("RESET ROLE")
    install.init(connection)
    projector.execute(EVIL)
    projector.execute(WAYS["the function"])  # type: ignore[arg-type]
    with connect_when_ready(only("ledger_writer"), 5) as direct:
        send(direct, "ledger", [Append("note/2", [BODY])], "{}", None)
    unharmed(connection)


def test_an_effect_that_another_could_replace_is_refused(
    log: Ledger, connection: Connection, admin_dsn: str
) -> None:
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute(
            "CREATE SCHEMA theirs AUTHORIZATION ledger_projector; CREATE SCHEMA ours; "
            "CREATE FUNCTION theirs.f(bigint, bigint) RETURNS void LANGUAGE sql AS ''; "
            "CREATE FUNCTION ours.f(bigint, bigint) RETURNS void LANGUAGE sql AS ''; "
            "ALTER FUNCTION ours.f OWNER TO ledger_projector; "
            "GRANT USAGE ON SCHEMA ours, theirs TO ledger_owner"
        )
        connection.execute("SET ROLE ledger_owner")
        for where in ("ours", "theirs"):
            with pytest.raises(
                psycopg.DatabaseError, match="belongs to ledger_projector, who may not become"
            ):
                connection.execute("SELECT ledger.attach_effect('mine', %s)", [f"{where}.f"])
            assert connection.execute("SELECT * FROM ledger.effects").fetchall() == []
        admin.execute("ALTER FUNCTION ours.f OWNER TO ledger_owner")
        connection.execute("SELECT ledger.attach_effect('mine', 'ours.f')")
    assert log.append("note/1", BODY).version == 1
