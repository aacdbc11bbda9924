"""What goes wrong under a recorder is the library's own error, stores nothing by halves, and passes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from eventsourcing.persistence import (
    DataError,
    Notification,
    OperationalError,
    ProgrammingError,
    StoredEvent,
    Tracking,
)

from ledger.store.factory import LedgerFactory
from ledger.store.recorders import LedgerProcessRecorder
from tests.contracts.saves import events, versions

Made = Callable[..., LedgerFactory]


@pytest.fixture
def kill(admin_dsn: str) -> Callable[[str], int]:
    """Ends every connection of the recorders that runs or last ran something like this."""

    def end(like: str) -> int:
        with psycopg.connect(admin_dsn, autocommit=True) as admin:
            rows = admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pledger'"
                " AND datname = current_database() AND query LIKE %s",
                [like],
            ).fetchall()
        return len(rows)

    return end


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def test_a_killed_connection_is_the_librarys_error_and_the_next_call_works(
    recorder: LedgerProcessRecorder, admin_dsn: str, kill: Callable[[str], int]
) -> None:
    of = uuid4()
    recorder.insert_events(events(of, 1))

    def killed(pending: Future[object]) -> bool:
        kill("%ledger_stored%")
        return pending.done()

    calls: list[Callable[[], object]] = [
        lambda: recorder.select_events(of),
        lambda: recorder.select_notifications(1, 10),
        lambda: recorder.max_tracking_id("up"),
        lambda: recorder.insert_events(events(of, 2), tracking=Tracking("up", 1)),
    ]
    for call in calls:
        with ThreadPoolExecutor(1) as pool, psycopg.connect(admin_dsn) as admin:
            admin.execute("LOCK TABLE ledger_stored.events, ledger_stored.tracking IN ACCESS EXCLUSIVE MODE")
            pending = pool.submit(call)
            wait_for(partial(killed, pending))
            admin.rollback()
            with pytest.raises(OperationalError):
                pending.result()
        call()
    assert (versions(recorder, of), recorder.max_tracking_id("up")) == ([1, 2], 1)


def test_a_save_whose_connection_is_killed_is_recorded_once(
    recorder: LedgerProcessRecorder, admin_dsn: str, kill: Callable[[str], int]
) -> None:
    of = uuid4()
    recorder.insert_events(events(of, 1))
    with ThreadPoolExecutor(1) as pool, psycopg.connect(admin_dsn) as admin:
        admin.execute("LOCK TABLE ledger_stored.events IN ACCESS EXCLUSIVE MODE")
        pending = pool.submit(recorder.insert_events, events(of, 2))
        wait_for(lambda: kill("%append_one%"))
        admin.rollback()
        assert len(pending.result(timeout=20) or []) == 1
    assert versions(recorder, of) == [1, 2]


def test_a_subscription_outlives_its_connections(
    recorder: LedgerProcessRecorder, kill: Callable[[str], int]
) -> None:
    found: list[Notification] = []
    with ThreadPoolExecutor(1) as pool, recorder.subscribe() as subscription:
        reading = pool.submit(lambda: found.extend(next(subscription) for _ in range(20)))
        for number in range(1, 21):
            recorder.insert_events(events(uuid4(), 1))
            wait_for(lambda number=number: len(found) >= number)  # type: ignore[misc]
            kill("%")
        reading.result(timeout=20)
    ids = [n.id for n in found]
    assert ids == sorted(set(ids))


def test_a_fork_has_connections_of_its_own(recorder: LedgerProcessRecorder) -> None:
    of = uuid4()
    recorder.insert_events(events(of, 1))
    child = os.fork()
    if not child:
        code = 1
        try:
            recorder.insert_events(events(of, 2))
            code = 0 if versions(recorder, of) == [1, 2] else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    recorder.insert_events(events(of, 3))
    assert versions(recorder, of) == [1, 2, 3]


def test_a_closed_factory_opens_again_for_many_threads_at_once(made: Made) -> None:
    factory = made()
    recorder = factory.application_recorder()
    together = threading.Barrier(8)

    def save(_: int) -> None:
        together.wait()
        recorder.insert_events(events(uuid4(), 1))

    for _ in range(5):
        factory.close()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(save, range(8)))
    assert len(recorder.select_notifications(1, 100)) == 40


@pytest.mark.parametrize(
    "event",
    [
        StoredEvent("no uuid", 1, "topic", b""),
        StoredEvent(uuid4(), -1, "topic", b""),
        StoredEvent(uuid4(), 2**63, "topic", b""),
        StoredEvent(uuid4(), 1, "to\0pic", b""),
        StoredEvent(uuid4(), 1, "\ud800", b""),
        StoredEvent(uuid4(), 1, "topic", "text"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_stored_is_a_data_error(recorder: LedgerProcessRecorder, event: StoredEvent) -> None:
    for save in ([event], [*events(uuid4(), 1), event]):
        with pytest.raises(DataError):
            recorder.insert_events(save)
    assert recorder.max_notification_id() is None


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800", "x" * 1001])
def test_text_that_is_no_name_is_a_data_error(made: Made, name: str) -> None:
    recorder = made(ORIGINATOR_ID_TYPE="text").application_recorder()
    with pytest.raises(DataError):
        recorder.insert_events(events(name, 1))
    with pytest.raises(DataError):
        recorder.select_events(name)


def test_create_table_no_leaves_the_database_alone(made: Made, connection: psycopg.Connection[Any]) -> None:
    with pytest.raises(ProgrammingError, match="pledger init"):
        made(CREATE_TABLE="no").application_recorder()
    assert connection.execute("SELECT to_regnamespace('ledger_stored')").fetchone() == (None,)


@pytest.mark.parametrize(
    "variables", [{"ORIGINATOR_ID_TYPE": "int"}, {"PROCESS_RECORDER_TOPIC": "decimal:Decimal"}]
)
def test_a_wrong_variable_is_named(made: Made, variables: dict[str, str]) -> None:
    with pytest.raises(OSError, match=next(iter(variables))):
        made(**variables).process_recorder()


def test_a_server_that_is_not_there_is_an_operational_error(made: Made, dsn: str) -> None:
    with pytest.raises(OperationalError):
        made(LEDGER_DSN=psycopg.conninfo.make_conninfo(dsn, dbname="nowhere")).application_recorder()
    with pytest.raises(OperationalError):
        made(LEDGER_DSN="host=/nowhere dbname=x").application_recorder()


def test_a_role_that_may_not_append_is_told(
    made: Made, connection: psycopg.Connection[Any], dsn: str
) -> None:
    role = f"outsider_{os.getpid()}"
    recorder = made().process_recorder()
    recorder.insert_events(events(uuid4(), 1))
    connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'outside'")  # type: ignore[arg-type]
    connection.execute(f"GRANT ledger_stored_reader TO {role}")  # type: ignore[arg-type]
    try:
        outside = made(LEDGER_DSN=psycopg.conninfo.make_conninfo(dsn, user=role, password="outside"))
        reader = outside.process_recorder()
        assert len(reader.select_notifications(1, 10)) == 1
        with pytest.raises(ProgrammingError, match="writer"):
            reader.insert_events(events(uuid4(), 1))
        with pytest.raises(ProgrammingError, match="writer"):
            reader.insert_tracking(Tracking("up", 1))
        outside.close()
    finally:
        connection.execute(f"DROP ROLE {role}")  # type: ignore[arg-type]


def test_a_writer_reads_and_keeps_tracking_but_has_no_other_way_to_the_log(
    recorder: LedgerProcessRecorder, connection: psycopg.Connection[Any]
) -> None:
    recorder.insert_events(events(uuid4(), 1), tracking=Tracking("up", 1))
    rights = connection.execute(
        "SELECT table_name, string_agg(privilege_type, ' ' ORDER BY privilege_type)"
        "  FROM information_schema.role_table_grants"
        " WHERE table_schema = 'ledger_stored' AND grantee = 'ledger_stored_writer' GROUP BY 1 ORDER BY 1"
    ).fetchall()
    declared = [(name, "SELECT") for name in ("sets", "topic_statuses")]
    tables = ("elections", "leases", "rates", "run_leases", "workers")
    workers = [(name, "DELETE INSERT SELECT UPDATE") for name in tables]
    kept = [
        ("run_logs", "DELETE INSERT SELECT"),
        ("snapshots", "INSERT"),
        ("tracking", "INSERT SELECT UPDATE"),
    ]
    assert rights == sorted([*declared, *workers, *kept])
