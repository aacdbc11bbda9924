"""Pool: shared by threads, not by forks; closed and opened again; patient, not for ever."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

import ledger
from ledger import AppendUncertain, Ledger, LedgerBusy, ServerUnavailable
from ledger.embedded import Embedded, throwaway
from ledger.log import pool
from ledger.log.install import init
from tests.lamp import LampRead, OpenLamp


def eventually(condition: Any, seconds: float = 60.0) -> None:
    """Wait for a condition, or fail."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def end_all(admin_dsn: str) -> int:
    """End every connection of the ledger to this database, as an administrator would; how many there were."""
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        rows = admin.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name = 'pledger'"
        ).fetchall()
    return len(rows)


def test_threads_share_the_connections(dsn: str) -> None:
    with ledger.connect(dsn, max_size=3) as log, ThreadPoolExecutor(12) as threads:
        list(threads.map(lambda n: log.append(f"lamp/{n % 4}", LampRead()), range(60)))
        assert sum(info.version for info in log.streams()) == 60
        assert log.pool._pool is not None
        assert log.pool._pool.get_stats()["pool_max"] == 3
        assert log.pool._pool.get_stats()["pool_size"] <= 3


def test_opening_a_ledger_takes_one_connection(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(pool, "awake", lambda conninfo: asked.append(conninfo) or conninfo)
    with ledger.connect(dsn) as log:
        log.append("lamp/a", LampRead())
        assert len(asked) == 1
        with log.reader(), log.reader():
            assert len(asked) == 2


def test_a_connection_that_the_pool_did_not_take_is_closed(dsn: str) -> None:
    with ledger.connect(dsn) as log:
        kept = pool.connect_when_ready(dsn, 5)
        log.pool._ready.append(kept)
    assert kept.closed


def test_threads_that_begin_at_once_open_one_pool(dsn: str) -> None:
    with ledger.connect(dsn, max_size=8) as log:
        log.close()
        gate, pools = threading.Barrier(8), set()

        def use() -> None:
            gate.wait()
            log.bound()
            pools.add(log.pool._pool)

        threads = [threading.Thread(target=use) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(pools) == 1


def test_a_closed_ledger_opens_again_when_it_is_used(log: Ledger) -> None:
    log.append("lamp/a", LampRead())
    for _ in range(3):
        log.close()
        assert log.load(OpenLamp, "a").version == 1
    log.close()
    log.close()


def test_a_connection_that_is_out_while_the_pool_closes_is_closed(log: Ledger) -> None:
    with log.pool.connection() as connection:
        log.close()
        assert log.bound() == 0
        assert not connection.closed
    assert connection.closed


def test_a_fork_has_connections_of_its_own(log: Ledger) -> None:
    log.append("lamp/a", LampRead())
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()

    def child(number: int) -> None:
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(lambda n: log.append(f"lamp/{number}", LampRead()), range(10)))
        with log.reader() as connection:
            answers.put((os.getpid(), connection.info.backend_pid, len(log.read(f"lamp/{number}"))))
        log.close()

    with log.reader() as connection:
        parents = connection.info.backend_pid
    children = [context.Process(target=child, args=(number,)) for number in range(3)]
    for one in children:
        one.start()
    for number in range(30):
        log.append("lamp/a", LampRead(value=number))
    found = [answers.get() for _ in children]
    for one in children:
        one.join(30)
    assert [one.exitcode for one in children] == [0, 0, 0]
    assert len({parents, *(backend for _, backend, _ in found)}) == 4
    assert [count for _, _, count in found] == [10, 10, 10]
    with log.reader() as connection:
        assert connection.info.backend_pid == parents
    assert log.load(OpenLamp, "a").version == 31


def test_a_full_pool_is_told_in_time(dsn: str) -> None:
    with ledger.connect(dsn, max_size=2, timeout=0.4) as log, ExitStack() as held:
        for _ in range(2):
            held.enter_context(log.reader())
        for attempt in (lambda: log.append("lamp/a", LampRead()), log.bound):
            started = time.monotonic()
            with pytest.raises(LedgerBusy, match=r"no connection is free .*raise max_size"):
                attempt()
            assert time.monotonic() - started < 20
        held.close()
        assert log.append("lamp/a", LampRead()).version == 1


def test_a_server_without_free_connections_is_told(dsn: str, admin_dsn: str, postgres: Embedded) -> None:
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        limit = sql.SQL("ALTER DATABASE {} CONNECTION LIMIT 0").format(sql.Identifier(admin.info.dbname))
        admin.execute(limit)
        with pytest.raises(LedgerBusy, match="the server has no free connection"):
            ledger.connect(dsn, timeout=0.3)


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"password": "wrong"}, "password authentication failed"),
        ({"user": "nobody_here", "password": "x"}, "authentication failed|does not exist"),
        ({"dbname": "no_such_database"}, "does not exist"),
        ({"host": "/nowhere"}, "No such file"),
        ({"host": "127.0.0.1", "port": 1}, "refused"),
    ],
)
def test_a_wrong_way_in_is_told_at_once(dsn: str, change: dict[str, Any], wrong: str) -> None:
    started = time.monotonic()
    with pytest.raises(ServerUnavailable, match=wrong) as caught:
        ledger.connect(make_conninfo(dsn, **change), timeout=60)
    assert time.monotonic() - started < 40
    assert type(caught.value) is ServerUnavailable
    assert "password=" not in str(caught.value)


def test_connections_that_were_ended_meanwhile_are_not_noticed(log: Ledger, admin_dsn: str) -> None:
    for number in range(3):
        log.append("lamp/a", LampRead(), expected=number)
        assert log.load(OpenLamp, "a").version == number + 1
        assert end_all(admin_dsn) >= 1
    assert log.append("lamp/a", LampRead(), LampRead()).version == 5
    assert log.bound() == 5


class Blocked:
    """An append that waits for a row that another transaction holds, so that it can be ended meanwhile."""

    def __init__(self, log: Ledger, connection: psycopg.Connection[Any], admin_dsn: str) -> None:
        self.log, self.connection, self.admin_dsn = log, connection, admin_dsn

    def end_while(self, append: Any) -> Any:
        """Run `append`, end its connection while it waits, let go, and return its future."""
        self.connection.execute("BEGIN; SET LOCAL ROLE ledger_owner")
        self.connection.execute("SELECT FROM ledger.heads WHERE stream = 'lamp/a' FOR UPDATE")
        with ThreadPoolExecutor(1) as threads:
            future = threads.submit(append)
            eventually(self.waiting)
            end_all(self.admin_dsn)
            self.connection.execute("ROLLBACK")
        return future

    def waiting(self) -> bool:
        with psycopg.connect(self.admin_dsn, autocommit=True) as admin:
            row = admin.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
                "AND application_name = 'pledger' AND datname = current_database()"
            ).fetchone()
        return row is not None and row[0] > 0


@pytest.fixture
def blocked(log: Ledger, connection: psycopg.Connection[Any], admin_dsn: str) -> Blocked:
    log.append("lamp/a", LampRead())
    return Blocked(log, connection, admin_dsn)


@pytest.mark.parametrize("events", [1, 2])
def test_an_append_whose_connection_broke_is_sent_again_where_that_is_safe(
    blocked: Blocked, events: int
) -> None:
    log, news = blocked.log, [LampRead()] * events
    assert blocked.end_while(lambda: log.append("lamp/a", *news, expected=1)).result().version == 1 + events
    done = blocked.end_while(lambda: log.append("lamp/a", *news, command="c")).result()
    assert (done.version, done.repeated) == (1 + 2 * events, False)
    assert len(log.read("lamp/a")) == 1 + 2 * events


def test_an_append_whose_connection_broke_is_uncertain_otherwise(blocked: Blocked) -> None:
    log = blocked.log
    with pytest.raises(
        AppendUncertain, match=r"lamp/a: it may or may not be recorded; .*give appends a command id"
    ):
        blocked.end_while(lambda: log.append("lamp/a", LampRead())).result()
    assert log.append("lamp/a", LampRead(), expected=1).version == 2


def test_a_conflict_after_a_broken_connection_is_uncertain(
    blocked: Blocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt may be what the second finds in its way."""
    log = blocked.log
    from ledger.log import appender

    real, sent = appender.send, []

    def commits_and_breaks(connection: Any, *arguments: Any) -> Any:
        sent.append(1)
        done = real(connection, *arguments)
        if len(sent) == 1:
            connection.close()
            raise psycopg.OperationalError("the line went dead")
        return done

    monkeypatch.setattr(appender, "send", commits_and_breaks)
    with pytest.raises(AppendUncertain):
        log.append("lamp/a", LampRead(), expected=1)
    assert (len(sent) > 1, len(log.read("lamp/a"))) == (True, 2)  # mostly 2: it may meet a dead connection
    sent.clear()
    assert log.append("lamp/a", LampRead(), expected=2, command="c").repeated
    assert (len(sent) > 1, len(log.read("lamp/a"))) == (True, 3)


# A server that goes away


@pytest.fixture(scope="module")
def other() -> Iterator[Embedded]:
    """A server that may be stopped."""
    with throwaway(durable=True) as server:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            init(connection)
        yield server


@pytest.mark.parametrize("immediate", [False, True])
def test_a_restart_of_the_server_is_not_noticed(other: Embedded, immediate: bool) -> None:
    with ledger.connect(other.dsn()) as log:
        stream = f"lamp/restart-{immediate}"
        log.append(stream, LampRead())
        other.stop(immediate=immediate)
        other.acquire()
        assert log.append(stream, LampRead(), expected=1).version == 2
        other.stop(immediate=immediate)
        other.acquire()
        assert len(log.read(stream)) == 2


def test_a_server_that_comes_back_is_waited_for(other: Embedded) -> None:
    with ledger.connect(other.dsn(), timeout=60) as log:
        log.append("lamp/wait", LampRead())
        other.stop()
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(log.append, "lamp/wait", LampRead(), expected=1)
            other.acquire()
            assert waiting.result(60).version == 2


def test_a_server_that_stays_away_is_told_by_its_name(other: Embedded) -> None:
    with ledger.connect(other.dsn(), timeout=0.5) as log:
        log.append("lamp/away", LampRead())
        other.stop()
        try:
            for attempt in (lambda: log.append("lamp/away", LampRead(), expected=1), log.bound):
                with pytest.raises(
                    ServerUnavailable, match="the server cannot be used at the moment"
                ) as caught:
                    attempt()
                assert not isinstance(caught.value, LedgerBusy | AppendUncertain)
        finally:
            other.acquire()
        assert log.append("lamp/away", LampRead(), expected=1).version == 2


def test_threads_that_share_one_connection_all_get_their_turn(dsn: str) -> None:
    """One is kept at hand beside the pool; a thread that waits for the pool must still get it."""
    with ledger.connect(dsn, max_size=1, timeout=20) as log, ThreadPoolExecutor(6) as threads:
        done = [threads.submit(log.append, f"lamp/{n % 6}", LampRead(value=n)) for n in range(300)]
        assert sorted({one.result().last_position for one in done}) == sorted(
            event.position for event in log.log(0, log.bound())
        )
