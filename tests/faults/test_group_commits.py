"""What happens to appends that share a commit when it fails: each is told what is true of it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import ledger
from ledger import (
    NEW,
    Append,
    Appended,
    AppendUncertain,
    Body,
    Ledger,
    LedgerBusy,
    LedgerError,
)
from ledger.log import committer
from ledger.log.committer import Waiting
from tests.faults.conftest import eventually
from tests.faults.schedules import as_owner
from tests.faults.test_durability import ATTACH, DEFERRED
from tests.lamp import LampRead

Connection = psycopg.Connection[Any]

# Effects that look at how many events are recorded together. A sequence is not rolled back.
EFFECTS: dict[str, LiteralString] = {
    "dies": """
        CREATE SEQUENCE public.deaths; GRANT ALL ON SEQUENCE public.deaths TO PUBLIC;
        CREATE FUNCTION public.dies(p_first bigint, p_last bigint) RETURNS void LANGUAGE plpgsql
        SECURITY DEFINER AS $$ BEGIN
            IF p_last - p_first > 1 AND nextval('public.deaths') = 1 THEN
                PERFORM pg_terminate_backend(pg_backend_pid());
            END IF;
        END $$""",
    "hangs": """
        CREATE FUNCTION public.hangs(p_first bigint, p_last bigint) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
            IF p_last - p_first > 1 THEN PERFORM pg_sleep(3600); END IF;
        END $$""",
    "refuses": """
        CREATE FUNCTION public.refuses(p_first bigint, p_last bigint) RETURNS void LANGUAGE plpgsql AS $$
        BEGIN
            IF EXISTS (SELECT FROM ledger.events
                        WHERE position BETWEEN p_first AND p_last AND data->>'value' LIKE '%!') THEN
                RAISE 'not this one';
            END IF;
        END $$""",
}


ASLEEP: LiteralString = "datname = current_database() AND wait_event = 'PgSleep'"
END: LiteralString = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ASLEEP}"


@pytest.fixture
def effect(admin_dsn: str, log: Ledger, connection: Connection) -> Callable[[str], None]:
    """Attaches an effect."""

    def attach(name: str) -> None:
        with psycopg.connect(admin_dsn, autocommit=True) as admin:
            admin.execute(EFFECTS[name])
        as_owner(connection, f"SELECT ledger.attach_effect('{name}', 'public.{name}')")

    return attach


@pytest.fixture
def held(
    log: Ledger,
    connect: Callable[..., Connection],
    threads: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Connection]:
    """A transaction that holds the stream `held`; an append to it leads, and all others wait.

    It ends before the threads are waited for, which would wait for it where a test failed.
    """
    monkeypatch.setattr(committer, "PATIENCE", 60)
    monkeypatch.setattr(committer, "FEW", 1)
    log.append("held", LampRead())
    user = connect()
    user.execute("SET ROLE ledger_owner")
    user.execute("SELECT FROM ledger.heads WHERE stream = 'held' FOR UPDATE")
    yield user
    user.close()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(32) as threads:
        yield threads


def told(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except LedgerError as error:
        return error


def waiting(threads: ThreadPoolExecutor, log: Ledger, calls: list[Callable[[], Any]]) -> list[Future[Any]]:
    """Calls that wait in the queue behind an append that waits for `held`."""
    threads.submit(log.append, "held", LampRead())
    eventually(lambda: log.committer._leading)
    made = []
    for nth, call in enumerate(calls, 1):
        made.append(threads.submit(told, call))
        eventually(lambda n=nth: len(log.committer._queue) >= n)  # type: ignore[misc]
    return made


def appends(log: Ledger) -> list[Callable[[], Any]]:
    """Of each kind: at any version, at an exact one, under a command id."""
    return [
        lambda: log.append("s/any", LampRead(value=1)),
        lambda: log.append("s/new", LampRead(value=2), expected=NEW),
        lambda: log.append("s/command", LampRead(value=3), command="c"),
        lambda: log.append("s/wrong", LampRead(value="4!"), expected=NEW),
        lambda: log.append("s/five", LampRead(value=5), expected=NEW),
    ]


def stored(log: Ledger) -> list[str]:
    return sorted(event.stream for event in log.log(0, log.bound()) if event.stream.startswith("s/"))


def test_a_lost_connection_is_uncertain_for_each_by_its_own_law(
    log: Ledger, effect: Callable[[str], None], held: Connection, threads: ThreadPoolExecutor
) -> None:
    """Exact versions and command ids are repeated; of `any` nobody knows."""
    effect("dies")
    found = waiting(threads, log, appends(log))
    held.rollback()
    said = [one.result() for one in found]
    assert isinstance(said[0], AppendUncertain)
    assert "s/any" in str(said[0])
    assert all(isinstance(one, Appended) and not one.repeated for one in said[1:]), said
    assert stored(log) == ["s/command", "s/five", "s/new", "s/wrong"]


@pytest.mark.parametrize("at", ["the call", "the commit"])
def test_who_is_at_fault_is_refused_and_the_others_are_recorded(
    log: Ledger, effect: Callable[[str], None], held: Connection, threads: ThreadPoolExecutor, at: str,
    admin_dsn: str, connection: Connection,
) -> None:  # fmt: skip
    if at == "the call":
        effect("refuses")
    else:
        with psycopg.connect(admin_dsn, autocommit=True) as admin:
            admin.execute(DEFERRED)
        as_owner(connection, ATTACH)
    found = waiting(threads, log, appends(log) * 3)
    held.rollback()
    said = [one.result() for one in found]
    kinds = [[type(one).__name__ for one in said[nth::5]] for nth in range(5)]
    assert kinds[0] == kinds[2] == ["Appended"] * 3
    assert sorted(kinds[1]) == sorted(kinds[4]) == ["Appended", "StreamConflict", "StreamConflict"]
    assert kinds[3] == ["EffectFailed"] * 3
    assert sorted(one.repeated for one in said[2::5]) == [False, True, True]
    assert stored(log) == ["s/any"] * 3 + ["s/command", "s/five", "s/new"]


def test_a_statement_timeout_of_the_group_is_none_of_its_appends(
    dsn: str, log: Ledger, effect: Callable[[str], None], held: Connection, threads: ThreadPoolExecutor
) -> None:
    effect("hangs")
    with ledger.connect(make_conninfo(dsn, options="-c statement_timeout=2000")) as hasty:
        hasty.append("s/warm", LampRead())
        found = waiting(threads, hasty, appends(hasty))
        held.rollback()
        said = [one.result() for one in found]
        assert all(isinstance(one, Appended) for one in said), said
    assert len(stored(log)) == 6


def test_a_leader_that_is_interrupted_leaves_nobody_waiting(
    dsn: str, log: Ledger, effect: Callable[[str], None], held: Connection, threads: ThreadPoolExecutor,
    connection: Connection,
) -> None:  # fmt: skip
    """The main thread leads and gets Ctrl-C in the middle; what follows it is repeated, or uncertain."""
    effect("hangs")
    found: list[Future[Any]] = []

    def others() -> None:
        eventually(lambda: len(log.committer._queue) == 1)
        found.extend(threads.submit(told, call) for call in appends(log))
        eventually(lambda: len(log.committer._queue) == 6)
        held.rollback()
        eventually(lambda: connection.execute(f"SELECT FROM pg_stat_activity WHERE {ASLEEP}").fetchall())
        os.kill(os.getpid(), signal.SIGINT)
        connection.execute(END)  # as the server does once it looks for its client

    threads.submit(log.append, "held", LampRead())
    eventually(lambda: log.committer._leading)
    helper = threading.Thread(target=others)
    helper.start()
    with pytest.raises(KeyboardInterrupt):
        log.append("s/mine", LampRead())
    helper.join()
    said = [one.result(60) for one in found]
    assert isinstance(said[0], AppendUncertain)
    assert all(isinstance(one, Appended | AppendUncertain) for one in said), said
    assert not isinstance(said[2], AppendUncertain)
    assert log.append("s/after", LampRead()).version == 1
    assert not log.committer._leading


def test_a_follower_whom_nobody_wakes_looks_by_itself(log: Ledger) -> None:
    """The one before it, who would have woken it, was interrupted just then."""
    append, meta = Append("s/mine", [Body("t", 1, "{}")]), log.meta()
    leader, known, unknown = (Waiting(append, meta) for _ in range(3))
    known.outcome, leader.ended = Appended(7, 7, 0, (("s/mine", 1),)), True
    for one in (known, unknown):
        one.leader, one.turn = leader, threading.Lock()
        one.turn.acquire()
        log.committer._wait(one)
    assert log.committer._result(known) is known.outcome
    with pytest.raises(AppendUncertain):
        log.committer._result(unknown)


def test_one_in_the_queue_that_is_interrupted_is_not_recorded(
    log: Ledger, held: Connection, threads: ThreadPoolExecutor
) -> None:
    def interrupt() -> None:
        eventually(lambda: len(log.committer._queue) == 1)
        os.kill(os.getpid(), signal.SIGINT)

    waiting(threads, log, [])
    helper = threading.Thread(target=interrupt)
    helper.start()
    with pytest.raises(KeyboardInterrupt):
        log.append("s/mine", LampRead())
    helper.join()
    assert not log.committer._queue
    held.rollback()
    assert log.append("s/after", LampRead()).version == 1
    assert [found.stream for found in log.streams("s/")] == ["s/after"]


def test_one_that_is_interrupted_before_it_waits_leaves_the_queue(
    log: Ledger, held: Connection, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupt comes between two steps of Python: it is in the queue, and does not wait yet."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    waiting(threads, log, [])
    with monkeypatch.context() as patched:
        patched.setattr(committer.Committer, "_wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            log.append("s/mine", LampRead())
    assert not log.committer._queue
    assert log.committer._inside == 1
    held.rollback()
    assert log.append("s/after", LampRead()).version == 1
    assert [found.stream for found in log.streams("s/")] == ["s/after"]


def test_a_fork_appends_while_its_parent_has_appends_under_way(
    log: Ledger, held: Connection, threads: ThreadPoolExecutor
) -> None:
    found = waiting(threads, log, appends(log))
    child = os.fork()
    if child == 0:
        try:
            log.append("s/child", LampRead())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    before = log.streams("s/")
    held.rollback()
    assert all(isinstance(one.result(), Appended) for one in found)
    assert [found.stream for found in before] == ["s/child"]


def test_a_server_that_is_busy_is_told_to_each(dsn: str, log: Ledger, held: Connection) -> None:
    with ledger.connect(make_conninfo(dsn, options="-c lock_timeout=20"), max_size=2, timeout=1) as small:
        with ThreadPoolExecutor(8) as threads:
            said = list(threads.map(lambda _: told(lambda: small.append("held", LampRead())), range(8)))
    assert {type(one) for one in said} == {LedgerBusy}
