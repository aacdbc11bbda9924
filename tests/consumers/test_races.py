"""Exactly one fact for each round: strips that end at the same moment, doubled and killed reactors."""

from __future__ import annotations

import multiprocessing
import os
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

import ledger
from consumers.pipelines import readiness
from ledger import Ledger
from ledger.pipelines import LSMChannelState, LSMProjectState, LSMSliceState, LSMStripState
from tests.consumers.conftest import Lab
from tests.faults.conftest import ROOT, eventually
from tests.fork_server import python

Connect = Callable[[], Ledger]


@contextmanager
def reacting(dsn: str) -> Iterator[subprocess.Popen[str]]:
    """A reactor process for the length of the block; then it is killed, if it still lives."""
    command = [*python(), "-m", "tests.consumers.reactor_process", dsn]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def finish(log: Ledger, strip_id: int, channel_id: int) -> None:
    with log.open(LSMStripState, "p", 1, channel_id, strip_id) as strip:
        strip.set_compressed()
        strip.mark_completed()


@pytest.mark.parametrize("channels", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_w0_12_two_last_strips_at_the_same_moment_make_one_fact(
    lab: Lab, log: Ledger, another: Connect, channels: int
) -> None:
    lab.build(strips=2, channels=channels, plan=2)
    barrier = threading.Barrier(2, timeout=60)

    def work(mine: tuple[Ledger, int]) -> None:
        for channel_id in range(1, channels + 1):
            barrier.wait()
            finish(mine[0], mine[1], channel_id)

    with readiness(another()) as one, readiness(another()) as two, ThreadPoolExecutor(2) as threads:
        list(threads.map(work, [(another(), 1), (another(), 2)]))
        for reactor in (one, two):
            assert reactor.wait_for(log.bound())
    counted = Counter(lab.rounds(caught_up=True))
    assert counted == {f"p/1/{channel_id}": 1 for channel_id in range(1, channels + 1)}


def finish_all(dsn: str, strip_id: int, channels: int, barrier: Any) -> None:
    with ledger.connect(dsn) as log:
        for channel_id in range(1, channels + 1):
            barrier.wait(60)
            finish(log, strip_id, channel_id)


def test_two_last_strips_of_two_processes(lab: Lab, dsn: str) -> None:
    spawn = multiprocessing.get_context("spawn")
    channels, barrier = 100, spawn.Barrier(2)
    lab.build(strips=2, channels=channels, plan=2)
    workers = [spawn.Process(target=finish_all, args=(dsn, nth, channels, barrier)) for nth in (1, 2)]
    with reacting(dsn):
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(120)
        assert [worker.exitcode for worker in workers] == [0, 0]
        eventually(lambda: len(lab.log.streams("lsm.channel.ready/")) == channels)
    assert Counter(lab.rounds()) == {f"p/1/{channel_id}": 1 for channel_id in range(1, channels + 1)}


# kill -9


def worry(dsn: str, seed: int, stop: threading.Event) -> int:
    """Change strips, channels and the plan at random; the number of changes."""
    chance, changes = random.Random(seed), 0
    with ledger.connect(dsn, actor=f"worker {seed}") as log:
        while not stop.is_set():
            changes += 1
            try:
                one_change(log, chance)
            except ledger.Refused:  # another came first, or the item is deleted just now
                continue
    return changes


def one_change(log: Ledger, chance: random.Random) -> None:
    channel_id, strip_id = chance.randint(1, 4), chance.randint(1, 3)
    if chance.random() < 0.02:
        with log.open(LSMProjectState, "p") as project:
            project.plan(strips_per_slice=chance.choice([2, 2, 3, None]))
        return
    if chance.random() < 0.02:
        with log.open(LSMChannelState, "p", 1, channel_id) as channel:
            under = log.load_below(("lsm.slice/p/1", LSMSliceState))[0].state.incarnation
            (channel.record(channel.FACTS.deleted()) if channel.state.exists else channel.create(under=under))
        return
    life = log.load(LSMChannelState, "p", 1, channel_id).state.incarnation
    with log.open(LSMStripState, "p", 1, channel_id, strip_id) as strip:
        if not strip.state.exists or strip.state.under != life:
            strip.create(under=life)
        if chance.random() < 0.1:
            chance.choice([strip.mark_failed, strip.mark_started])()
        (strip.reset_compressed if chance.random() < 0.35 else strip.set_compressed)()


def campaign(lab: Lab, dsn: str, seconds: float, seed: int) -> tuple[int, int]:
    """Kill the reactor again and again while strips change; how often, and how many rounds there were."""
    chance, kills, stop = random.Random(seed), 0, threading.Event()
    lab.build(strips=3, channels=4, plan=2)
    deadline = time.monotonic() + seconds
    with ThreadPoolExecutor(2) as threads:
        workers = [threads.submit(worry, dsn, seed * 10 + nth, stop) for nth in range(2)]
        try:
            while kills < 3 or time.monotonic() < deadline or len({*lab.rounds()}) < 4:
                assert time.monotonic() < deadline + 60
                with reacting(dsn) as process:
                    stop.wait(chance.random() * chance.choice([0.05, 0.5, 3]))
                    assert process.poll() is None, "the reactor stopped by itself"
                kills += 1
        finally:
            stop.set()
        assert all(worker.result() > 10 for worker in workers)
    rounds = lab.rounds()
    assert len({*rounds}) == 4
    return kills, len(rounds)


@pytest.mark.slow
def test_a_reactor_that_is_killed_records_each_round_once(lab: Lab, dsn: str) -> None:
    kills, rounds = campaign(lab, dsn, seconds=0.5, seed=1)
    assert kills >= 3
    assert rounds >= 5


@pytest.mark.slow
def test_a_reactor_that_is_killed_for_minutes_records_each_round_once(
    lab: Lab, dsn: str, minutes: float
) -> None:
    kills, rounds = campaign(lab, dsn, seconds=60 * minutes, seed=random.randrange(1000))
    print(f"{kills} kills, {rounds} rounds")
    assert rounds >= 20 * minutes
