"""Old and new code side by side: what older code may do with a ledger that newer code has extended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import psycopg
import pytest

import ledger
from ledger import Ledger, SchemaMismatch
from ledger.log import install
from ledger.log import sql as scripts
from ledger.log.health import examine
from projections import Follower, Projector, rebuild, views_named
from projections.engine.check import ViewCheck
from projections.verify import verify
from tests.lamp import LampRead

Connection = psycopg.Connection[Any]
HUE = "ALTER TABLE heads ADD COLUMN hue text; CREATE TABLE extra (id bigint PRIMARY KEY);"
NUMBER = install.newest() + 1

Extend = Callable[[str], None]


def newer(line: str) -> scripts.Script:
    """A migration that this code does not know, with a line above its statements."""
    return scripts.Script(NUMBER, f"{NUMBER:04}_hue", cast("Any", f"-- Hues.\n{line}\n{HUE}"))


@pytest.fixture
def extend(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> Extend:
    """Brings this test's ledger to the schema of newer code, as `pledger init` of that code does."""
    known = scripts.migrations()

    def act(line: str) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(scripts, "migrations", lambda: [*known, newer(line)])
            install.init(connection)

    return act


def cut(connection: Connection) -> None:
    """End every other connection to this database: who goes on looks anew who the ledger is."""
    connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()"
    )


def test_programs_that_run_go_on_while_newer_code_extends_their_ledger(
    log: Ledger, connection: Connection, extend: Extend
) -> None:
    log.append("lamp/a", LampRead())
    follower, projector = Follower(log), Projector(log)
    assert len(follower.poll()) == 1
    with projector:
        extend(f"-- oldest code: {NUMBER - 1}")
        log.append("lamp/a", LampRead(), command="after init")
        cut(connection)
        follower.retry_outages(log.check_again)
        last = log.append("lamp/a", LampRead(), command="after a lost connection").last_position
        assert projector.wait_for(last)
    seen = [event for _ in range(2) for event in follower.retry_outages(follower.poll) or ()]
    assert [event.version for event in seen] == [2, 3]


def test_old_programs_that_start_use_the_extended_ledger_whole(dsn: str, extend: Extend) -> None:
    extend(f"-- oldest code: {NUMBER - 1}")
    with ledger.connect(dsn) as log, ledger.connect(dsn, create=True) as creating:
        assert log.identity.schema_number == creating.identity.schema_number == NUMBER
        assert log.append("lamp/a", LampRead(), LampRead(), command="c").version == 2
        assert log.append("lamp/a", LampRead(), LampRead(), command="c").repeated
        Projector(log).catch_up()
        assert rebuild(log, *views_named(["in_state"])).switched
        assert verify(log, checks=[ViewCheck(view) for view in views_named()]).equal


def test_a_migration_without_the_line_shuts_old_code_out(dsn: str, log: Ledger, extend: Extend) -> None:
    extend("-- Oldest code: none is named.")
    refusal = rf"the ledger is at schema {NUMBER}, this code at {NUMBER - 1}: install a newer pipeline-ledger"
    for attempt in (lambda: ledger.connect(dsn), log.check_again):
        with pytest.raises(SchemaMismatch, match=refusal):
            attempt()


def test_one_step_that_shuts_old_code_out_counts_for_all_later_ones(
    dsn: str, connection: Connection, extend: Extend
) -> None:
    extend("-- This one changes what old code relies on.")
    with connection.transaction():
        connection.execute("SET LOCAL ROLE ledger_owner")
        connection.execute(
            "INSERT INTO ledger.migrations VALUES (%s, 'adds only', now(), %s)", [NUMBER + 1, NUMBER - 1]
        )
    with pytest.raises(SchemaMismatch, match="install a newer"):
        ledger.connect(dsn)


def test_old_code_does_not_set_the_functions_of_newer_code_back(
    connection: Connection, extend: Extend
) -> None:
    extend(f"-- oldest code: {NUMBER - 1}")
    with pytest.raises(SchemaMismatch, match=f"the ledger is at schema {NUMBER}, this code at {NUMBER - 1}"):
        install.init(connection)


def test_the_doctor_tells_whether_old_code_may_go_on(dsn: str, extend: Extend) -> None:
    extend(f"-- oldest code: {NUMBER - 1}")
    found = {check.name: check for check in examine(dsn)[1]}
    assert (found["schema"].verdict, "which may use it" in found["schema"].says) == ("warn", True)
    assert "positions" in found, "the rest is looked at"


def test_a_migration_names_no_code_that_is_newer_than_itself() -> None:
    named = {script.number: script.oldest_code for script in scripts.migrations()}
    assert newer("-- oldest code: 7").oldest_code == 7
    assert all(oldest < number for number, oldest in named.items() if oldest is not None), named
