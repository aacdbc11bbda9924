"""Locks of scopes: who waits for whom and how long, who is named, what may nest, and who may take them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg import sql

import ledger
from ledger import AdvisoryLocks, AlreadyOpen, BadInput, LockTimeout
from ledger.log.install import init
from ledger.log.scope_locks import NO_LOCKS, checked_timeout
from tests.log.scopes import (
    PROJECT,
    SIBLING,
    SLICE,
    STRIP,
    Connection,
    Other,
    elsewhere,
    eventually,
    held_by_scopes,
    is_free,
    sessions,
    waits,
)

pytestmark = pytest.mark.usefixtures("no_locks_left")


# Who waits for whom


@pytest.mark.parametrize(
    ("held", "wanted", "free"),
    [
        (("exclusive", STRIP), ("exclusive", STRIP), False),
        (("exclusive", STRIP), ("exclusive", SIBLING), True),
        (("exclusive", STRIP), ("exclusive", PROJECT), False),
        (("exclusive", PROJECT), ("exclusive", STRIP), False),
        (("exclusive", SLICE), ("exclusive", STRIP), False),
        (("exclusive", STRIP), ("shared", STRIP), False),
        (("exclusive", STRIP), ("shared", SLICE), True),
        (("exclusive", PROJECT), ("shared", STRIP), False),
        (("exclusive", PROJECT), ("exclusive", ("lsm.project/q",)), True),
        (("exclusive", PROJECT), ("exclusive", ("psoct.project/p",)), True),
        (("exclusive", PROJECT), ("exclusive", ("lsm.project/P",)), True),
        (("shared", STRIP), ("exclusive", STRIP), False),
        (("shared", STRIP), ("exclusive", PROJECT), False),
        (("shared", PROJECT), ("exclusive", STRIP), True),
        (("shared", STRIP), ("shared", STRIP), True),
    ],
)
def test_who_waits_for_whom(locks: AdvisoryLocks, held: Any, wanted: Any, free: bool) -> None:
    with getattr(locks, held[0])(held[1], timeout_seconds=None):
        assert is_free(getattr(locks, wanted[0])(wanted[1], timeout_seconds=0)) is free
    assert is_free(getattr(locks, wanted[0])(wanted[1], timeout_seconds=5))


def test_who_waits_goes_on_when_the_scope_ends(locks: AdvisoryLocks, connection: Connection) -> None:
    with locks.exclusive(STRIP, timeout_seconds=None):
        other = Other(locks.exclusive(PROJECT, timeout_seconds=None))
        eventually(lambda: held_by_scopes(connection, waiting=True) == 1)
        assert not other.inside.is_set()
    other.entered()
    other.leave()


def test_nobody_overtakes_who_waits(locks: AdvisoryLocks, connection: Connection) -> None:
    """Else a busy project could never be opened as a whole."""
    with locks.exclusive(STRIP, timeout_seconds=None):
        other = waits(connection, locks.exclusive(PROJECT, timeout_seconds=0.5))
        assert not is_free(locks.exclusive(SIBLING, timeout_seconds=0))
        eventually(lambda: other.error)
        assert isinstance(other.error, LockTimeout)
        assert is_free(locks.exclusive(SIBLING, timeout_seconds=0))


def test_without_locks_nobody_waits() -> None:
    with NO_LOCKS.exclusive(STRIP, timeout_seconds=None) as held, NO_LOCKS.shared(STRIP, timeout_seconds=0):
        assert not held.lost
    with pytest.raises(BadInput), NO_LOCKS.exclusive(STRIP, timeout_seconds=-1):
        pass


def test_two_ledgers_of_one_database_do_not_wait_for_each_other(
    locks: AdvisoryLocks, dsn: str, connection: Connection
) -> None:
    init(connection, "second")
    with ledger.connect(dsn, schema="second") as second, locks.exclusive(PROJECT, timeout_seconds=None):
        assert is_free(second.locks.exclusive(PROJECT, timeout_seconds=0))
        with second.locks.exclusive(PROJECT, timeout_seconds=0):  # nor is it a nested scope
            pass


# How long


def test_a_timeout_is_for_the_whole_path(locks: AdvisoryLocks, connection: Connection) -> None:
    first, second = (
        Other(locks.exclusive(["a"], timeout_seconds=None)),
        locks.exclusive(["b"], timeout_seconds=None),
    )
    first.entered()
    with second:
        begin = time.monotonic()
        other = Other(locks.exclusive(["a", "b"], timeout_seconds=5.0))
        eventually(lambda: time.monotonic() > begin + 3.5)
        first.leave()
        other.thread.join(30)
    assert isinstance(other.error, LockTimeout)
    assert other.error.stream == "b"
    assert 4.95 < time.monotonic() - begin < 8.4, "each lock has a time-out of its own"


@pytest.mark.parametrize("seconds", [0, 0.0, 0.001, 0.3])
def test_a_timeout_says_who_has_what(locks: AdvisoryLocks, connection: Connection, seconds: float) -> None:
    with elsewhere(locks.exclusive(SLICE, timeout_seconds=None)):
        begin = time.monotonic()
        with pytest.raises(LockTimeout) as caught, locks.exclusive(STRIP, timeout_seconds=seconds):
            pass
        assert seconds <= time.monotonic() - begin < seconds + 10
        (pid,) = {pid for pid in sessions(connection) if f"server process {pid})" in str(caught.value)}
        assert (caught.value.stream, caught.value.seconds) == (SLICE[-1], seconds)
        assert caught.value.holder == f"tester (server process {pid})"
        assert isinstance(caught.value, TimeoutError)
        eventually(lambda: held_by_scopes(connection) == 2)  # the server gives back in its own time


def test_of_many_holders_one_is_named(locks: AdvisoryLocks) -> None:
    with (
        elsewhere(locks.exclusive(STRIP, timeout_seconds=None)),
        elsewhere(locks.exclusive(SIBLING, timeout_seconds=None)),
        pytest.raises(LockTimeout, match=r"by tester \(server process \d+\) and 1 more after 0 s"),
        locks.exclusive(PROJECT, timeout_seconds=0),
    ):
        pass


@pytest.mark.parametrize("seconds", [-1, -0.001, float("nan"), "3", True, [1]])
def test_bad_timeouts_are_refused(locks: AdvisoryLocks, connection: Connection, seconds: Any) -> None:
    for scope in (locks.exclusive, locks.shared):
        with pytest.raises(BadInput, match="must be a number of seconds, 0 or more"):
            with scope(STRIP, timeout_seconds=seconds):
                pass
    assert sessions(connection) == []
    with locks.exclusive(STRIP, timeout_seconds=0):
        pass


def test_timeouts_are_rounded_up_and_may_be_huge() -> None:
    given = [None, 0, 1e-9, 0.25, 1e12, float("inf")]
    assert [checked_timeout(seconds) for seconds in given] == [None, 0, 1, 250, 2**31 - 1, 2**31 - 1]


def test_time_limits_of_the_role_do_not_end_a_wait(
    only: Callable[[str], str], postgres: Any, locks: AdvisoryLocks, connection: Connection
) -> None:
    dsn = only("ledger_reader")
    role = sql.Identifier(psycopg.conninfo.conninfo_to_dict(dsn)["user"])
    limits = ["statement_timeout", "lock_timeout", "idle_session_timeout"]
    limits += ["transaction_timeout"] if connection.info.server_version >= 170000 else []
    with psycopg.connect(postgres.admin_dsn(), autocommit=True) as admin:
        for limit in limits:
            admin.execute(sql.SQL("ALTER ROLE {} SET {} = '200ms'").format(role, sql.Identifier(limit)))
    with ledger.connect(dsn) as limited:
        with locks.exclusive(STRIP, timeout_seconds=None):
            begin = time.monotonic()
            other = waits(connection, limited.locks.shared(STRIP, timeout_seconds=None))
            eventually(lambda: time.monotonic() > begin + 0.6)
            assert other.error is None
        other.entered()
        other.leave()


# Nested scopes of one thread


@pytest.mark.parametrize("inner", [STRIP, SLICE, PROJECT])
@pytest.mark.parametrize("outer", [STRIP, SLICE, PROJECT])
def test_a_scope_within_another_on_its_path_is_refused(
    locks: AdvisoryLocks, outer: tuple[str, ...], inner: tuple[str, ...]
) -> None:
    with locks.exclusive(outer, timeout_seconds=None):
        with pytest.raises(AlreadyOpen) as caught, locks.exclusive(inner, timeout_seconds=None):
            pass
        assert caught.value.stream == inner[-1]
        assert outer[-1] in caught.value.scope
        assert not is_free(locks.exclusive(outer, timeout_seconds=0))
    with locks.exclusive(inner, timeout_seconds=None):
        pass


def test_two_objects_for_one_ledger_know_of_each_others_scopes(locks: AdvisoryLocks, dsn: str) -> None:
    with ledger.connect(dsn) as second, locks.exclusive(STRIP, timeout_seconds=None):
        with pytest.raises(AlreadyOpen), second.locks.exclusive(PROJECT, timeout_seconds=None):
            pass


def test_siblings_nest_also_past_somebody_who_waits(locks: AdvisoryLocks, connection: Connection) -> None:
    """On sessions of their own the second would wait for who waits for the first, and nobody would see it."""
    with locks.exclusive(STRIP, timeout_seconds=None):
        waits(connection, locks.exclusive(PROJECT, timeout_seconds=None))
        with locks.exclusive(SIBLING, timeout_seconds=5), locks.shared(PROJECT, timeout_seconds=5):
            assert len(sessions(connection)) == 2
        assert held_by_scopes(connection, waiting=True) == 1
        assert not is_free(locks.shared(STRIP, timeout_seconds=0))


def test_a_nested_scope_gives_back_its_own_locks_only(locks: AdvisoryLocks, connection: Connection) -> None:
    with locks.exclusive(STRIP, timeout_seconds=None):
        with locks.exclusive(SIBLING, timeout_seconds=None):
            assert held_by_scopes(connection) == 5
        eventually(lambda: held_by_scopes(connection) == 4)
        assert is_free(locks.exclusive(SIBLING, timeout_seconds=0))
        assert not is_free(locks.exclusive(PROJECT, timeout_seconds=0))
    assert is_free(locks.exclusive(PROJECT, timeout_seconds=5))


@pytest.mark.parametrize("path", [STRIP, SLICE, PROJECT])
def test_reading_within_a_scope_does_not_wait_for_itself(
    locks: AdvisoryLocks, connection: Connection, path: tuple[str, ...]
) -> None:
    with locks.exclusive(STRIP, timeout_seconds=None):
        waits(connection, locks.shared(STRIP, timeout_seconds=None))
        with locks.shared(path, timeout_seconds=1):
            pass
        assert not is_free(locks.shared(STRIP, timeout_seconds=0))


def test_threads_that_wait_for_each_other_are_told(locks: AdvisoryLocks) -> None:
    gate, told = threading.Barrier(2, timeout=30), []

    def work(outer: str, inner: str) -> None:
        with locks.exclusive(["x", outer], timeout_seconds=None):
            gate.wait()
            try:
                with locks.exclusive(["x", inner], timeout_seconds=None):
                    pass
            except LockTimeout as error:
                told.append(error)

    threads = [threading.Thread(target=work, args=pair) for pair in (("a", "b"), ("b", "a"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(told) == 1
    assert "in a scope that waits for this one (deadlock)" in str(told[0])
    assert told[0].stream in "ab"
    assert is_free(locks.exclusive(["x"], timeout_seconds=5))
