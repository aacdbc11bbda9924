"""Holders of scopes that are killed, interrupted or cut off: others get in, and nothing is half there."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

import ledger
from ledger import Ledger, LockLost, LockTimeout, StreamConflict
from ledger.embedded import throwaway
from ledger.log.install import init
from ledger.pipelines import LSMStateService, LSMStripId
from tests.faults.conftest import CHILD_PATH, eventually
from tests.faults.crashes import crash
from tests.fork_server import python
from tests.log import scopes
from tests.log.scopes import Connection, held_by_scopes
from tests.pipelines.recorded_facts import check_heads, recorded, words

STRIP = LSMStripId("p", 1, 1, 7)


class Process:
    """One process of tests/faults/scopers.py; what it says goes to a file."""

    def __init__(self, dsn: str, what: str, number: int, said: Path) -> None:
        self.said = said
        with said.open("w") as out:
            self.popen = subprocess.Popen(
                [*python(), "-m", "tests.faults.scopers", dsn, what, str(number)],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | {"PYTHONPATH": CHILD_PATH},
            )

    def lines(self) -> list[str]:
        return self.said.read_text().split("\n")[:-1]

    def says(self, word: str) -> str:
        """Wait for a line with this word; the rest of it."""
        eventually(lambda: self.popen.poll() is not None or any(word in line for line in self.lines()))
        return next(line.removeprefix(word).strip() for line in self.lines() if line.startswith(word))

    def end(self, how: signal.Signals | None = None) -> tuple[int, str]:
        """End it by a signal, or by closing its stdin: how it ended, and what it complained of."""
        if how is not None and self.popen.poll() is None:
            self.popen.send_signal(how)
        _, err = self.popen.communicate(timeout=60)
        return self.popen.returncode, err


Start = Callable[[str, int], Process]


@pytest.fixture
def start(dsn: str, tmp_path: Path) -> Iterator[Start]:
    """Starts such processes; they are killed at the end."""
    started: list[Process] = []

    def start_one(what: str, number: int) -> Process:
        started.append(Process(dsn, what, number, tmp_path / f"said-{len(started)}"))
        return started[-1]

    yield start_one
    for process in started:
        if process.popen.stdin is not None and not process.popen.stdin.closed:
            process.end(signal.SIGKILL)


@pytest.fixture
def service(log: Ledger) -> LSMStateService:
    service = LSMStateService(log)
    with service.open_strip(STRIP):
        pass
    return service


@pytest.fixture(autouse=True)
def no_locks_left(connection: Connection) -> Iterator[None]:
    yield
    scopes.all_ended(connection)


# kill -9 and Ctrl-C


@pytest.mark.parametrize("strip", [0, 7], ids=["project", "strip"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_holder_that_is_ended_leaves_neither_lock_nor_change(
    service: LSMStateService,
    log: Ledger,
    start: Start,
    strip: int,
    how: signal.Signals,
) -> None:
    before = recorded(log)
    holder = start("hold", strip)
    holder.says("opens")
    holder.says("inside")
    with pytest.raises(LockTimeout, match=rf"by scoper {strip} \(server process \d+\) after 0 s"):
        service.read_strip(STRIP, timeout_seconds=0)
    code, err = holder.end(how)
    assert code == -how
    assert ("KeyboardInterrupt" in err) == (how == signal.SIGINT)
    begin = time.monotonic()
    with service.open_project("p", timeout_seconds=30) as project:
        assert project.processing_state == "pending"
        assert project.find(STRIP).processing_state == "pending"
    assert time.monotonic() - begin < 15
    assert recorded(log) == before


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_who_is_ended_while_it_waits_holds_nothing_for_long(
    service: LSMStateService,
    connection: Connection,
    start: Start,
    how: signal.Signals,
) -> None:
    with service.open_strip(STRIP):
        waiter = start("hold", STRIP.strip_id)
        waiter.says("opens")
        eventually(lambda: held_by_scopes(connection, waiting=True) == 1)
        assert held_by_scopes(connection) == 4 + 3
        waiter.end(how)
        eventually(lambda: held_by_scopes(connection) == 4, seconds=5)
        assert held_by_scopes(connection, waiting=True) == 0
    with service.open_project("p", timeout_seconds=5):
        pass


def test_a_fork_of_a_killed_holder_does_not_keep_its_locks(service: LSMStateService, start: Start) -> None:
    holder = start("fork", STRIP.strip_id)
    holder.says("opens")
    child = int(holder.says("inside"))
    try:
        holder.popen.kill()
        holder.popen.wait(30)
        os.kill(child, 0)  # it lives
        with service.open_project("p", timeout_seconds=5) as project:
            assert project.find(STRIP).processing_state == "pending"
    finally:
        os.kill(child, signal.SIGKILL)


# The server


def test_a_crash_of_the_server_inside_a_scope() -> None:
    with throwaway(durable=True) as server:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute("CREATE DATABASE hardy")
        with psycopg.connect(server.dsn("hardy"), autocommit=True) as connection:
            init(connection)
        with ledger.connect(server.dsn("hardy"), timeout=60) as log, ThreadPoolExecutor(1) as threads:
            service = LSMStateService(log)

            def fail_it() -> None:
                service.store.update_item(
                    STRIP, lambda strip: strip.mark_failed("taken over"), timeout_seconds=5
                )

            def crash_inside(meanwhile: Callable[[], None]) -> None:
                with service.open_strip(STRIP) as strip:
                    strip.mark_completed()
                    crash(server)
                    threads.submit(meanwhile).result(60)

            def crash_after_a_look() -> None:
                with service.open_channel("p", slice_id=1, channel_id=1) as channel:
                    if 7 in channel.strips:
                        channel.set_mip_stitched()
                    crash(server)

            with service.open_strip(STRIP):
                pass
            crash_inside(lambda: None)
            assert words(log, "lsm.strip/p/1/1/7") == ["created", "completed"]
            with pytest.raises(StreamConflict):
                crash_inside(fail_it)
            assert words(log, "lsm.strip/p/1/1/7") == ["created", "completed", "failed"]
            with pytest.raises(LockLost):
                crash_after_a_look()
            assert words(log, "lsm.channel/p/1/1") == ["created"]


# A campaign


def murder(log: Ledger, start: Start, what: str, seconds: float, seed: int) -> dict[str, int]:
    """Four processes work on one small project, and are killed one after the other. What came of it."""
    kills = 0
    workers = [start(what, seed + number) for number in range(4)]
    for worker in workers:
        worker.says("stored")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        workers.append(start(what, seed + len(workers)))
        workers[-1].says("stored")
        _, err = workers[kills].end(signal.SIGKILL)
        assert err == ""
        kills += 1
    for worker in workers[kills:]:
        assert worker.end() == (0, "")
    said = [line for worker in workers for line in worker.lines()]
    figures = {"stored": said.count("stored"), "conflict": said.count("conflict"), "kills": kills}
    began = [words(log, info.stream).count("started") for info in log.streams("lsm.")]
    assert 0 <= sum(began) - figures["stored"] <= kills, "an append that returned is lost, or came twice"
    check_heads(log)
    return figures


def check_murder(log: Ledger, start: Start, seconds: float) -> dict[str, int]:
    """With locks nobody conflicts, but with what a killed one had sent: its lock is free before it is in."""
    figures = murder(log, start, "work", seconds, random.randrange(10**6))
    assert figures["conflict"] <= figures["kills"]
    return figures


def test_workers_that_are_killed_lose_nothing_and_block_nobody(log: Ledger, start: Start) -> None:
    figures = check_murder(log, start, 2)
    assert figures["kills"] >= 1
    assert figures["stored"] >= 5


@pytest.mark.slow
def test_without_locks_the_same_work_conflicts(log: Ledger, start: Start) -> None:
    figures = murder(log, start, "rush", 1, 1)
    assert figures["conflict"] > figures["kills"]


@pytest.mark.slow
def test_minutes_of_killing(log: Ledger, start: Start, minutes: float) -> None:
    figures = check_murder(log, start, 60 * minutes)
    print(f"\nscopes: {figures}")
    assert figures["kills"] > 5
