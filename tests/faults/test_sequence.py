"""A sequence that was set back, got a cache, or does not come with the events: seen, nothing is skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg import sql

import ledger
from ledger import DamagedLedger, Ledger, ReadOnly
from ledger.embedded import Embedded
from ledger.log.health import Verdict, examine
from projections import Follower
from projections.engine.projector import Projector, views_named
from tests.faults.schedules import Connection, as_owner, put
from tests.lamp import LampRead

Open = Callable[..., Connection]


def found(dsn: str, name: str) -> tuple[Verdict, str, str]:
    """What `pledger doctor` says of one check."""
    ((verdict, says, cure),) = [
        (check.verdict, check.says, check.cure) for check in examine(dsn)[1] if check.name == name
    ]
    return verdict, says, cure


@pytest.fixture
def gap(log: Ledger, connect: Open) -> int:
    """An event, and after it ten positions that were handed out and rolled back; the last of these."""
    log.append("lamp/a", LampRead())
    lost = connect()
    put(log, lost, count=10)
    lost.rollback()
    return log.bound()


def test_a_reader_sees_that_the_sequence_was_set_back_into_a_gap(
    log: Ledger, gap: int, connection: Connection
) -> None:
    (view,) = views_named(["in_state"])
    follower = Follower(log)
    assert len(follower.poll()) == 1

    def project() -> None:
        with Projector(log, [view]) as projector:
            assert projector.wait_for(gap)
            as_owner(connection, "SELECT setval('positions', %s)", gap - 5)
            projector.wait_for(gap + 1)

    with pytest.raises(DamagedLedger, match="went back"):
        project()
    with pytest.raises(DamagedLedger, match="went back"):
        follower.poll()


def test_a_bound_of_before_is_no_leave_to_read_what_came_into_a_gap(
    log: Ledger, gap: int, connect: Open, connection: Connection
) -> None:
    """Whoever looked only before and after it, when the sequence was beyond the old bound again."""
    follower = Follower(log)
    assert len(follower.poll()) == 1
    assert follower.poll() == []
    as_owner(connection, "SELECT setval('positions', %s)", gap - 5)
    late = connect()
    put(log, late, "lamp/late")
    last = log.append("lamp/quick", *[LampRead()] * 8).last_position
    assert last > gap
    assert follower.poll() == []
    late.commit()
    assert [event.stream for event in follower.poll()] == ["lamp/late"] + ["lamp/quick"] * 8


def test_doctor_and_who_connects_see_a_sequence_that_was_set_back(
    log: Ledger, gap: int, dsn: str, connect: Open, connection: Connection
) -> None:
    assert found(dsn, "positions")[0] is Verdict.OK
    holder = connect()
    put(log, holder, "lamp/open")
    as_owner(connection, "SELECT setval('positions', %s)", gap - 5)
    verdict, says, _ = found(dsn, "positions")
    assert (verdict, "behind an open append" in says) == (Verdict.FAIL, True)
    holder.commit()
    verdict, says, cure = found(dsn, "positions")
    assert (verdict, f"behind the last event {gap + 1}" in says) == (Verdict.FAIL, True)
    assert cure.startswith("stop all appends")
    assert cure.endswith(f"SELECT setval('ledger.positions', {gap + 1})")
    with pytest.raises(DamagedLedger, match="pledger doctor"):
        ledger.connect(dsn)


def test_doctor_who_connects_and_who_reads_see_a_cache(log: Ledger, dsn: str, connection: Connection) -> None:
    follower = Follower(log)
    log.append("lamp/a", LampRead())
    assert len(follower.poll()) == 1
    as_owner(connection, "ALTER SEQUENCE positions CACHE 5")
    log.append("lamp/a", LampRead())
    with pytest.raises(DamagedLedger, match="CACHE 5"):
        follower.poll()
    verdict, says, cure = found(dsn, "positions")
    assert (verdict, "CACHE 5" in says) == (Verdict.FAIL, True)
    assert "ALTER SEQUENCE ledger.positions CACHE 1" in cure
    with pytest.raises(DamagedLedger, match="CACHE 5"):
        ledger.connect(dsn)


def test_doctor_names_a_lock_that_was_left_behind(log: Ledger, dsn: str, connection: Connection) -> None:
    assert found(dsn, "position_lock")[0] is Verdict.OK
    connection.execute("SELECT pg_advisory_lock_shared((ledger.lock_class() | 32768) << 48)")
    verdict, says, cure = found(dsn, "position_lock")
    assert (verdict, f"process {connection.info.backend_pid} " in says) == (Verdict.FAIL, True)
    assert f"pg_terminate_backend({connection.info.backend_pid})" in cure


@pytest.fixture
def subscriber(postgres: Embedded, database: str, template: str, log: Ledger) -> Iterator[str]:
    """This test's ledger, whose events come from another database by a subscription."""
    publisher = f"{database}_publisher"
    name = sql.Identifier(publisher)
    with psycopg.connect(postgres.admin_dsn(), autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(name, sql.Identifier(template)))
    with psycopg.connect(postgres.admin_dsn(publisher), autocommit=True) as admin:
        admin.execute("CREATE PUBLICATION of_events FOR TABLE ledger.events")
    with psycopg.connect(postgres.admin_dsn(database), autocommit=True) as admin:
        admin.execute(
            sql.SQL(
                "CREATE SUBSCRIPTION of_events CONNECTION {} PUBLICATION of_events "
                "WITH (create_slot = false, enabled = false, slot_name = NONE)"
            ).format(sql.Literal(postgres.admin_dsn(publisher)))
        )
        yield postgres.dsn(database)
        admin.execute("DROP SUBSCRIPTION IF EXISTS of_events")
    with psycopg.connect(postgres.admin_dsn(), autocommit=True) as admin:
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


def test_a_subscriber_is_refused_until_the_subscription_is_dropped(
    subscriber: str, log: Ledger, admin_dsn: str
) -> None:
    with pytest.raises(ReadOnly, match="drop the subscription"):
        ledger.connect(subscriber)
    with pytest.raises(ReadOnly):
        Follower(log).poll()
    verdict, _, cure = found(subscriber, "positions")
    assert (verdict, "DROP SUBSCRIPTION" in cure, "setval" in cure) == (Verdict.FAIL, True, False)
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute("DROP SUBSCRIPTION of_events")
    with ledger.connect(subscriber) as taken_over:
        assert Follower(taken_over).poll() == []
    assert found(subscriber, "positions")[0] is Verdict.OK
