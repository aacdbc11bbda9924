"""While others append, verify raises no alarm and a rebuild ends right; killed, they leave nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import psutil
import psycopg
import pytest

import ledger
from ledger import Ledger, StreamConflict
from projections.verify import rebuild_commands, rebuild_heads, verify
from projections.verify.difference import Difference
from tests.benchmarks.mixed_log import fill
from tests.lamp import LampRead, OpenLamp
from tests.verify.damage import as_owner, commands, heads, use

Connection = psycopg.Connection[Any]
ROOT = Path(__file__).parents[2]


@contextmanager
def writing(dsn: str, writers: int) -> Iterator[Callable[[], int]]:
    """Writers that append in all ways, to few streams; yields how many appends there were."""
    stop, made = threading.Event(), [0] * writers

    def write(number: int) -> None:
        chance = Random(number)
        with ledger.connect(dsn, create=False, actor=f"writer {number}") as log:
            while not stop.is_set():
                name = str(chance.randrange(12))
                command = f"{number}-{made[number]}" if chance.random() < 0.3 else None
                try:
                    if chance.random() < 0.3:
                        log.append(f"lamp/{name}", LampRead(value=1), command=command)
                    else:
                        with log.open(OpenLamp, name, command=command) as lamp:
                            lamp.read(2) if lamp.state.status else lamp.make()
                except StreamConflict:
                    continue
                made[number] += 1

    threads = [threading.Thread(target=write, args=(n,)) for n in range(writers)]
    for thread in threads:
        thread.start()
    try:
        yield lambda: sum(made)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def looking(log: Ledger, **options: Any) -> list[Difference]:
    found: list[Difference] = []
    verify(log, processes=1, found=found.append, **options)
    return found


def campaign(log: Ledger, connection: Connection, dsn: str, seconds: float) -> None:
    """Verify, lose all that is derived, rebuild it; all while eight writers append."""
    with writing(dsn, 8) as made:
        deadline = time.monotonic() + seconds
        while made() < 50:
            time.sleep(0.01)
        while True:
            assert looking(log) == []
            as_owner(connection, "TRUNCATE ledger.heads", "DELETE FROM ledger.commands")
            rebuild_heads(log, processes=1)
            rebuild_commands(log, processes=1)
            assert looking(log) == []
            if time.monotonic() > deadline:
                break
    kept = commands(connection)
    as_owner(connection, "TRUNCATE ledger.commands")
    rebuild_commands(log, processes=1)
    assert commands(connection) == kept
    rebuild_heads(log, processes=1)
    kept = heads(connection)
    as_owner(connection, "TRUNCATE ledger.heads")
    rebuild_heads(log, processes=1)
    assert heads(connection) == kept
    assert looking(log) == []


def test_writers_cause_no_alarm_and_a_rebuild_beside_them_is_right(
    log: Ledger, connection: Connection, dsn: str
) -> None:
    use(log)
    campaign(log, connection, dsn, 0.5)


@pytest.mark.slow
def test_a_campaign_of_rebuilding_beside_writers(
    log: Ledger, connection: Connection, dsn: str, minutes: float
) -> None:
    fill(log, 5_000)
    campaign(log, connection, dsn, minutes * 60)


def verifying(dsn: str, *more: str, **ways: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "gateway.cli.main", "verify", "--processes", "2", *more]
    return subprocess.Popen(
        command, env=os.environ | {"LEDGER_DSN": dsn, "PYTHONPATH": str(ROOT)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, **ways,
    )  # fmt: skip


def children(process: subprocess.Popen[str], many: int) -> list[psutil.Process]:
    """The processes that a run started, once there are so many."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        if len(found := psutil.Process(process.pid).children(recursive=True)) >= many:
            return found
        time.sleep(0.005)
    raise AssertionError("they were not started")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_is_ended_leaves_no_process_and_can_be_run_again(
    log: Ledger, connection: Connection, dsn: str, number: signal.Signals
) -> None:
    fill(log, 16_000)  # two ranges
    before = heads(connection)
    as_owner(connection, "DELETE FROM ledger.heads WHERE stream < 'm'")
    with verifying(dsn, "--repair") as process:
        found = children(process, 2)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal sends it
        else:
            process.kill()
        _, alive = psutil.wait_procs(found, timeout=20)
        said = process.communicate()[1]
    assert alive == []
    assert "Traceback" not in said
    assert process.returncode == (130 if number == signal.SIGINT else -9)
    with verifying(dsn, "--repair", "--json") as process:
        children(process, 2)[0].kill()
        out, said = process.communicate()
    assert process.returncode == 0, said
    assert json.loads(out.splitlines()[-1])["summary"]["equal"]
    assert heads(connection) == before
