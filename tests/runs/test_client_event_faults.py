"""Servers that are killed while they record what clients report: all of a transaction is there or nothing."""

from __future__ import annotations

import json
import random
import subprocess
import threading
import time
from collections import defaultdict
from pathlib import Path

import psycopg
import pytest

import ledger
from ledger.runs.client_events import ClientEvents
from ledger.runs.task_run import OpenTaskRun, TaskRunStateSet
from tests.fork_server import python

from .given_frames import Client, Frame

THREE = ("Pending", "Running", "Completed")
BATCHES, CLIENTS = 60, 4


def batches(count: int = BATCHES) -> tuple[list[list[Client]], list[list[Frame]]]:
    """Clients, and a batch of frames of each few of them."""
    clients = [[Client() for _ in range(CLIENTS)] for _ in range(count)]
    return clients, [[one.report(name) for name in THREE for one in some] for some in clients]


def states(log: ledger.Ledger) -> dict[str, list[str]]:
    """The ids of the states in the log, by the id of their task run, in the order of the log."""
    found, after, bound = defaultdict[str, list[str]](list), 0, log.bound()
    while page := log.log(after, bound):
        for one in page:
            if isinstance(fact := one.event, TaskRunStateSet):
                found[one.stream.removeprefix("task_run/")].append(str(fact.state["id"]))
        after = page[-1].position
    return found


def sent(clients: list[list[Client]], frames: list[list[Frame]]) -> dict[str, list[str]]:
    """What the log must have in the end, as `states`."""
    return {
        client.id: [one["id"] for one in batch[nth::CLIENTS]]
        for some, batch in zip(clients, frames, strict=True)
        for nth, client in enumerate(some)
    }


def killed_reporter(dsn: str, path: Path, after: int, delay: float) -> int:
    """Start a process that records the batches, and kill it a moment after a batch; how many it confirmed."""
    command = [*python(), "-m", "tests.runs.report_process", dsn, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(after):
            process.stdout.readline()
        time.sleep(delay)
        process.kill()
        return after + len(process.stdout.readlines())


def check_killed(log: ledger.Ledger, dsn: str, path: Path, after: int, delay: float) -> None:
    clients, frames = batches()
    path.write_text(json.dumps(frames))
    confirmed = killed_reporter(dsn, path, after, delay)
    assert after <= confirmed < BATCHES
    found = states(log)
    there = [[len(found[client.id]) for client in some] for some in clients]
    assert all(set(counts) in ({0}, {3}) for counts in there)  # a transaction, or nothing
    whole = [counts[0] == 3 for counts in there]
    assert all(whole[:confirmed])
    assert sum(whole) in (confirmed, confirmed + 1)  # one may be committed and not yet said

    events = ClientEvents(log)  # the clients send to the next server what was not confirmed, and more
    for batch in frames[confirmed - 1 :]:
        assert not any(events.record(batch))
    assert states(log) == sent(clients, frames)
    last = [log.load(OpenTaskRun, some[0].id).state.status for some in clients[confirmed - 1 : confirmed + 2]]
    assert set(last) == {"completed"}


def test_a_killed_server_leaves_whole_transactions(log: ledger.Ledger, dsn: str, tmp_path: Path) -> None:
    check_killed(log, dsn, tmp_path / "frames", 3, 0.004)


@pytest.mark.slow
@pytest.mark.parametrize("nth", range(20))
def test_a_server_that_is_killed_at_any_moment_leaves_whole_transactions(
    log: ledger.Ledger, dsn: str, tmp_path: Path, nth: int
) -> None:
    moments = random.Random(nth)
    check_killed(log, dsn, tmp_path / "frames", moments.randrange(1, 40), moments.random() * 0.03)


def test_connections_that_break_lose_and_double_nothing(log: ledger.Ledger, dsn: str, admin_dsn: str) -> None:
    clients, frames = batches(12)
    events, moments = ClientEvents(log), random.Random(7)

    def cut(seconds: float) -> None:
        with psycopg.connect(admin_dsn, autocommit=True) as connection:
            time.sleep(seconds)
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )

    for batch in frames:
        cutter = threading.Thread(target=cut, args=[moments.random() * 0.02])
        cutter.start()
        for _ in range(5):
            try:
                assert not any(events.record(batch))
                break
            except ledger.ServerUnavailable:  # the caller sends the same frames again
                pass
        cutter.join()
    with ledger.connect(dsn) as other:
        assert states(other) == sent(clients, frames)
