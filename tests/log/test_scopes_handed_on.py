"""Scopes that end elsewhere: in another thread, in a fork, amid a wait, by the garbage collector."""

from __future__ import annotations

import gc
import multiprocessing
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ledger import AdvisoryLocks, LockTimeout
from ledger.log.lock_sessions import IDLE
from tests.log.scopes import (
    PROJECT,
    SIBLING,
    STRIP,
    Connection,
    elsewhere,
    eventually,
    held_by_scopes,
    is_free,
    sessions,
)

pytestmark = pytest.mark.usefixtures("no_locks_left")


def handed_on(locks: AdvisoryLocks, path: tuple[str, ...]) -> Iterator[None]:
    """A scope in a generator."""
    with locks.exclusive(path, timeout_seconds=None):
        yield


def test_a_scope_may_be_closed_by_another_thread(locks: AdvisoryLocks, connection: Connection) -> None:
    one, two = handed_on(locks, STRIP), handed_on(locks, SIBLING)
    next(one), next(two)
    closer = threading.Thread(target=one.close)  # type: ignore[attr-defined]
    closer.start()
    closer.join()
    eventually(lambda: held_by_scopes(connection) == 4)
    assert is_free(locks.exclusive(STRIP, timeout_seconds=0))
    assert not is_free(locks.exclusive(SIBLING, timeout_seconds=0))
    with locks.exclusive(STRIP, timeout_seconds=0):  # nor is it noted as open in this thread
        pass
    closer = threading.Thread(target=two.close)  # type: ignore[attr-defined]
    closer.start()
    closer.join()
    with elsewhere(locks.exclusive(SIBLING, timeout_seconds=5)):
        assert not is_free(locks.exclusive(SIBLING, timeout_seconds=0))
        with pytest.raises(LockTimeout), locks.exclusive(SIBLING, timeout_seconds=0):
            pass


def test_a_scope_that_is_closed_while_its_thread_waits_ends_after_that(
    locks: AdvisoryLocks, connection: Connection
) -> None:
    with elsewhere(locks.exclusive(SIBLING, timeout_seconds=None)):
        opened, given = threading.Event(), []

        def work() -> None:
            scope = handed_on(locks, STRIP)
            next(scope)
            given.append(scope)
            opened.set()
            with pytest.raises(LockTimeout), locks.exclusive(SIBLING, timeout_seconds=1):
                pass

        thread = threading.Thread(target=work)
        thread.start()
        opened.wait(30)
        eventually(lambda: held_by_scopes(connection, waiting=True) == 1)
        given[0].close()
        thread.join(30)
        eventually(lambda: held_by_scopes(connection) == 4)


def test_the_garbage_collector_ends_scopes_at_any_moment(
    locks: AdvisoryLocks, connection: Connection
) -> None:
    def leave_in_a_circle(name: str) -> None:
        scope = handed_on(locks, (*PROJECT, name))
        next(scope)
        circle: list[Any] = [scope]
        circle.append(circle)

    threshold = gc.get_threshold()
    gc.set_threshold(7)  # so that it runs in the midst of nearly everything
    try:
        for number in range(150):
            leave_in_a_circle(f"strip {number}")
            with locks.exclusive(STRIP, timeout_seconds=5), locks.shared(SIBLING, timeout_seconds=5):
                pass
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    eventually(lambda: held_by_scopes(connection) == 0)
    assert len(sessions(connection)) == 1


def test_threads_that_hand_scopes_to_each_other_lose_none(
    locks: AdvisoryLocks, connection: Connection
) -> None:
    """Eight threads open, and close what any of them opened, for a while."""
    shelf: list[Any] = []
    until = time.monotonic() + 2
    errors: list[BaseException] = []
    inside: dict[str, int] = {}

    def work(number: int) -> None:
        try:
            count = 0
            while time.monotonic() < until:
                count += 1
                name = f"{number} {count}"
                scope = handed_on(locks, (*PROJECT, name))
                next(scope)
                shelf.append(scope)
                with locks.exclusive(["other", str(count % 3)], timeout_seconds=30):
                    assert inside.setdefault(str(count % 3), number) == number
                    del inside[str(count % 3)]
                if len(shelf) > 4:
                    shelf.pop(0).close()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    for scope in shelf:
        scope.close()
    eventually(lambda: held_by_scopes(connection) == 0)
    assert len(sessions(connection)) <= 8 + IDLE


def test_a_fork_holds_nothing_and_leaves_its_parent_alone(
    locks: AdvisoryLocks, connection: Connection
) -> None:
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    scope: Any = locks.exclusive(STRIP, timeout_seconds=None)

    def child() -> None:
        said = [scope.lost]
        try:
            with locks.exclusive(STRIP, timeout_seconds=0):
                said.append("in")
        except LockTimeout:
            said.append("out")
        with locks.exclusive(SIBLING, timeout_seconds=0):
            said.append("in")
        scope.__exit__(None, None, None)
        locks.close()
        answers.put(said)

    with scope as held:
        process = context.Process(target=child)
        process.start()
        assert answers.get() == [True, "out", "in"]
        process.join(30)
        assert process.exitcode == 0
        assert not held.lost
        assert not is_free(locks.exclusive(STRIP, timeout_seconds=0))
    assert is_free(locks.exclusive(STRIP, timeout_seconds=5))
