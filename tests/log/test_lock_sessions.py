"""LockSessions of locks: few, replaced when they are lost, and right after a signal, a cancel and a fork."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import psycopg
import pytest

from ledger import AdvisoryLocks, Ledger, LedgerBusy, ServerUnavailable
from ledger.log.lock_sessions import IDLE
from tests.log.scopes import (
    PROJECT,
    SCOPES,
    SIBLING,
    STRIP,
    Connection,
    Other,
    elsewhere,
    eventually,
    held_by_scopes,
    is_free,
    sessions,
)
from tests.log.test_leaving import IGNORED, ROOT

pytestmark = pytest.mark.usefixtures("no_locks_left")


# Signals


class Signalled(Exception):
    """What a handler raises."""


@contextmanager
def handler(react: Callable[[], None]) -> Iterator[None]:
    """SIGUSR1 does this while the block runs."""
    before = signal.signal(signal.SIGUSR1, lambda *_: react())
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def when_waiting(connection: Connection, dsn: str, then: Callable[[], None]) -> threading.Thread:
    """In a thread: do it as soon as somebody waits for a lock."""

    def watch() -> None:
        with psycopg.connect(dsn, autocommit=True) as own:
            eventually(lambda: held_by_scopes(own, waiting=True) == 1)
            then()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def signal_us() -> None:
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)


def raise_signalled() -> None:
    raise Signalled


@pytest.mark.parametrize("within", [False, True])
def test_a_signal_ends_the_waiting_at_once_and_leaves_nothing(
    locks: AdvisoryLocks, connection: Connection, dsn: str, within: bool
) -> None:
    with elsewhere(locks.exclusive(STRIP, timeout_seconds=None)), ExitStack() as outer:
        mine = outer.enter_context(locks.exclusive(SIBLING, timeout_seconds=None)) if within else None
        watch = when_waiting(connection, dsn, signal_us)
        with handler(raise_signalled), pytest.raises(Signalled), locks.exclusive(STRIP, timeout_seconds=None):
            pass
        watch.join()
        eventually(lambda: held_by_scopes(connection, waiting=True) == 0)
        if mine is not None:
            assert not mine.lost
            assert not is_free(locks.exclusive(SIBLING, timeout_seconds=0))
        else:
            eventually(lambda: held_by_scopes(connection) == 4)
    with locks.exclusive(STRIP, timeout_seconds=5):
        assert len(sessions(connection)) == 2 + within


def test_a_handler_may_open_a_scope_while_its_thread_waits(
    locks: AdvisoryLocks, connection: Connection, dsn: str
) -> None:
    done = []

    def react() -> None:
        with locks.exclusive(["other"], timeout_seconds=5):
            done.append(held_by_scopes(connection))
        other.leaving.set()

    other = Other(locks.exclusive(STRIP, timeout_seconds=None))
    other.entered()
    watch = when_waiting(connection, dsn, signal_us)
    with handler(react), locks.exclusive(STRIP, timeout_seconds=30):
        pass
    watch.join()
    other.leave()
    assert done == [4 + 3 + 1]


@pytest.mark.parametrize("within", [False, True])
def test_an_administrators_cancel_leaves_no_lock_behind(
    locks: AdvisoryLocks, connection: Connection, dsn: str, within: bool
) -> None:
    def cancel() -> None:
        with psycopg.connect(dsn, autocommit=True) as own:
            own.execute(f"SELECT pg_cancel_backend(pid) {SCOPES} AND wait_event_type = 'Lock'")  # type: ignore[arg-type]

    with elsewhere(locks.exclusive(STRIP, timeout_seconds=None)), ExitStack() as outer:
        if within:
            outer.enter_context(locks.exclusive(SIBLING, timeout_seconds=None))
        watch = when_waiting(connection, dsn, cancel)
        with (
            pytest.raises(LedgerBusy, match="canceling statement"),
            locks.exclusive(STRIP, timeout_seconds=None),
        ):
            pass
        watch.join()
        if within:
            assert not is_free(locks.exclusive(SIBLING, timeout_seconds=0))
        else:
            eventually(lambda: held_by_scopes(connection) == 4)
    assert len(sessions(connection)) == 2 + within


# LockSessions


def test_sessions_are_as_many_as_threads_with_scopes(locks: AdvisoryLocks, connection: Connection) -> None:
    assert sessions(connection) == []
    for _ in range(3):
        with ExitStack() as all_of_them:
            for number in range(20):
                all_of_them.enter_context(
                    elsewhere(locks.exclusive([*PROJECT, f"s{number}"], timeout_seconds=5))
                )
            assert len(sessions(connection)) == 20
            assert not is_free(locks.exclusive(PROJECT, timeout_seconds=0))
        eventually(lambda: len(sessions(connection)) == IDLE)
        for number in range(20):
            with locks.exclusive([*PROJECT, f"s{number}"], timeout_seconds=None):
                assert len(sessions(connection)) == IDLE


def test_twenty_threads_on_one_item_are_one_at_a_time(locks: AdvisoryLocks, connection: Connection) -> None:
    inside, most, done = [0], [0], []

    def work() -> None:
        for _ in range(5):
            with locks.exclusive(STRIP, timeout_seconds=60):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1
                done.append(1)

    threads = [threading.Thread(target=work) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (most, len(done)) == ([1], 100)
    eventually(lambda: len(sessions(connection)) <= IDLE)


def test_a_closed_ledger_has_no_sessions_and_opens_again(log: Ledger, connection: Connection) -> None:
    with log.locks.exclusive(STRIP, timeout_seconds=None) as held:
        with elsewhere(log.locks.exclusive(SIBLING, timeout_seconds=None)):
            assert len(sessions(connection)) == 2
        log.close()
        eventually(lambda: len(sessions(connection)) == 1)  # the one in use, until its scope ends
        assert not held.lost
    eventually(lambda: sessions(connection) == [])
    with log.locks.exclusive(STRIP, timeout_seconds=5):
        assert len(sessions(connection)) == 1


def test_a_session_that_ended_is_seen_and_replaced(locks: AdvisoryLocks, connection: Connection) -> None:
    with locks.exclusive(STRIP, timeout_seconds=None) as held:
        assert not held.lost
        (pid,) = sessions(connection)
        connection.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
        assert held.lost
        with locks.exclusive(SIBLING, timeout_seconds=5) as nested:
            assert not nested.lost
            assert held.lost
        assert is_free(locks.exclusive(STRIP, timeout_seconds=0))
    for pid in sessions(connection):
        connection.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    with locks.exclusive(STRIP, timeout_seconds=5) as again:
        assert not again.lost


def test_what_the_server_says_unasked_is_no_loss(locks: AdvisoryLocks, connection: Connection) -> None:
    with locks.exclusive(STRIP, timeout_seconds=None) as held:
        (session,) = locks.sessions._live
        assert not held.lost  # which reads what is left to be read
        session.connection.execute("LISTEN news")
        connection.execute("NOTIFY news")
        eventually(session.connection.is_dead)
        assert not held.lost
        assert not session.connection.is_dead()
        assert not is_free(locks.exclusive(STRIP, timeout_seconds=0))


def test_a_session_that_cannot_be_had_in_time_is_told(log: Ledger) -> None:
    gone = AdvisoryLocks("host=/nowhere dbname=x", "ledger", log.identity.ledger, actor="tester", timeout=30)
    begin = time.monotonic()
    with pytest.raises(ServerUnavailable), gone.exclusive(STRIP, timeout_seconds=0.2):
        pass
    assert time.monotonic() - begin < 20
    with log.locks.exclusive(STRIP, timeout_seconds=0):  # it is not noted as open
        pass


# The end


@pytest.mark.parametrize("word", ["idle", "open", "fork"])
def test_a_process_that_closes_nothing_ends_quietly(dsn: str, connection: Connection, word: str) -> None:
    ended = subprocess.run(
        [sys.executable, *IGNORED, "-c", PROGRAM, word],
        env=os.environ | {"LEDGER_DSN": dsn, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "False\n", "")
    eventually(lambda: sessions(connection) == [])


PROGRAM = """
import os, sys
import ledger

log = ledger.connect()

def scope():
    with log.locks.exclusive(["a", "b"], timeout_seconds=5) as held:
        yield held

opened = scope()
held = next(opened)
if "fork" in sys.argv:
    child = os.fork()
    if not child:
        opened.close()
        with log.locks.exclusive(["a", "c"], timeout_seconds=5):
            sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
print(held.lost)
if "open" not in sys.argv:
    opened.close()
"""
