"""Ways to the locks: their keys, the roles that may take them, LEDGER_LOCK_DSN, and proxies."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import ledger
from ledger import AdvisoryLocks, Ledger, LockTimeout, ServerUnavailable
from ledger.log.scope_locks import key_of
from ledger.log.sql import Statements, run
from tests.lamp import LampRead
from tests.log.proxies import Relay
from tests.log.scopes import (
    PROJECT,
    STRIP,
    Connection,
    elsewhere,
    eventually,
    held_by_scopes,
    is_free,
    sessions,
    waits,
)

pytestmark = pytest.mark.usefixtures("no_locks_left")


# Keys


def test_keys_are_never_those_of_marks_or_commands(log: Ledger, connection: Connection) -> None:
    keys = {key_of(log.identity.ledger, f"lsm.strip/p/1/1/{number}") for number in range(20_000)}
    parts = [tuple(map(int, key.split(b","))) for key in keys]
    assert len(keys) == 20_000
    assert all(-(2**31) <= high < 0 and -(2**31) <= low < 2**31 for high, low in parts)
    assert log.identity.lock_class >= 0


def test_an_open_scope_is_no_open_append(log: Ledger, connection: Connection) -> None:
    with log.locks.exclusive(STRIP, timeout_seconds=None):
        assert held_by_scopes(connection) == 4
        assert run(connection, "ledger", Statements("ledger.log.sql", "admin").open_appends) == []
        last = log.append("lamp/a", LampRead()).last_position
        assert log.bound() == last


# Roles


def test_the_readers_role_is_enough_for_locks(
    only: Callable[[str], str], locks: AdvisoryLocks, connection: Connection
) -> None:
    with ledger.connect(only("ledger_reader"), actor="reader") as log:
        with log.locks.shared(STRIP, timeout_seconds=5):
            with pytest.raises(LockTimeout, match="by reader"), locks.exclusive(STRIP, timeout_seconds=0):
                pass
        with elsewhere(locks.exclusive(STRIP, timeout_seconds=5)):
            with pytest.raises(LockTimeout, match="by tester"), log.locks.shared(STRIP, timeout_seconds=0):
                pass


# Another way to the server


def test_a_way_to_another_ledger_is_refused(
    log: Ledger, dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEDGER_LOCK_DSN", make_conninfo(dsn, application_name="ours"))
    with log.locks.exclusive(STRIP, timeout_seconds=5):
        eventually(lambda: len(sessions(connection)) == 1)
    other = AdvisoryLocks(dsn, "ledger", type(log.identity.ledger)(int=7), actor="tester", timeout=5)
    with pytest.raises(ServerUnavailable, match="LEDGER_LOCK_DSN leads to another ledger"):
        with other.exclusive(STRIP, timeout_seconds=None):
            pass
    eventually(lambda: len(sessions(connection)) == 1)


# Proxies


def test_a_proxy_is_refused_unless_it_is_named_for_locks(
    relay: Relay, dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ledger.connect(relay.dsn) as log:
        last = log.append("lamp/a", LampRead()).last_position
        assert log.bound() == last
        with pytest.raises(
            ServerUnavailable, match=r"goes through a proxy.*set LEDGER_LOCK_DSN to the server"
        ):
            with log.locks.exclusive(STRIP, timeout_seconds=None):
                pass
        eventually(lambda: sessions(connection) == [])
        for way in (dsn, relay.dsn):
            monkeypatch.setenv("LEDGER_LOCK_DSN", way)
            with log.locks.exclusive(STRIP, timeout_seconds=None):
                assert held_by_scopes(connection) == 4
            log.locks.close()


def test_pgbouncer_by_transaction_is_refused(
    bouncer: Callable[[str], str], log: Ledger, connection: Connection
) -> None:
    proxied = bouncer("transaction")
    locks = AdvisoryLocks(proxied, "ledger", log.identity.ledger, actor="tester", timeout=5)
    for _ in range(2):
        with pytest.raises(ServerUnavailable, match="goes through a proxy"):
            with locks.exclusive(STRIP, timeout_seconds=None):
                pass
    locks.close()
    with psycopg.connect(proxied, autocommit=True) as other:  # nothing of us is left in the proxy's sessions
        assert other.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
        assert other.execute("SHOW client_connection_check_interval").fetchone() == ("0",)


def test_pgbouncer_by_session_is_fit_for_locks(
    bouncer: Callable[[str], str], log: Ledger, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEDGER_LOCK_DSN", bouncer("session"))
    with log.locks.exclusive(STRIP, timeout_seconds=None) as held:
        assert not is_free(log.locks.exclusive(PROJECT, timeout_seconds=0))
        waits(connection, log.locks.exclusive(STRIP, timeout_seconds=30))
        assert not held.lost
    log.locks.close()
