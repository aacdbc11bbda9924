"""The moment's lock of a position: whatever ends the statement that takes it, it is not left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import ledger
from ledger import Ledger, LedgerBusy
from tests.faults.schedules import Connection, advisory_locks, put
from tests.lamp import LampRead

Open = Callable[..., Connection]


@pytest.fixture
def catalog(admin_dsn: str) -> Iterator[Connection]:
    """An administrator at the catalog of sequences, as a VACUUM FULL of the database is for a moment."""
    with psycopg.connect(admin_dsn) as admin:
        admin.execute("LOCK TABLE pg_catalog.pg_sequence IN ACCESS EXCLUSIVE MODE")
        yield admin
        admin.rollback()


@pytest.mark.parametrize("limit", ["lock_timeout", "statement_timeout"])
@pytest.mark.parametrize("count", [1, 3])
def test_a_session_whose_first_position_runs_into_a_limit_leaves_no_lock(
    log: Ledger, connect: Open, catalog: Connection, database: str, limit: str, count: int
) -> None:
    late = connect(autocommit=True)
    late.execute(f"SET {limit} = '200ms'")  # type: ignore[call-overload]
    with pytest.raises(LedgerBusy):
        put(log, late, count=count)
    assert advisory_locks(catalog, database) == []
    catalog.rollback()
    assert log.append("lamp/block", *[LampRead()] * 5).version == 5, "a bulk append does not wait for it"
    assert put(log, late).last_position > 0


def test_a_pooled_session_that_ran_into_a_limit_leaves_no_lock(
    dsn: str, admin_dsn: str, database: str
) -> None:
    limited = make_conninfo(dsn, options="-c lock_timeout=200")
    with (
        ledger.connect(dsn) as other,
        ledger.connect(limited, max_size=1) as log,
        psycopg.connect(admin_dsn) as admin,
    ):
        admin.execute("LOCK TABLE pg_catalog.pg_sequence IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(LedgerBusy):
            log.append("lamp/a", LampRead())
        assert advisory_locks(admin, database) == []
        admin.rollback()
        other.append("lamp/block", *[LampRead()] * 5)
        log.append("lamp/a", LampRead())


def test_the_short_way_to_a_position_is_one_expression_that_is_ready_before_it_locks(log: Ledger) -> None:
    """The transaction has its id, since to get one can fail; and a plan shows no call of the function."""
    with psycopg.connect(log.address.conninfo) as connection:
        (plan,) = explained(connection)
    assert "take_position" not in plan
    assert plan.index("pg_current_xact_id") < plan.index("pg_try_advisory_lock_shared")


def explained(connection: Any) -> list[str]:
    with connection.transaction():
        connection.execute("SET LOCAL ROLE ledger_owner")
        connection.execute("SET LOCAL search_path = ledger")
        rows = connection.execute("EXPLAIN (VERBOSE, COSTS OFF) SELECT take_position()").fetchall()
    return [line for (line,) in rows if "Output" in line]
