"""Of any number of concurrent claims of one item exactly one is started (W0-07), with locks and without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from ledger import NO_LOCKS, Ledger
from ledger.log.ledger import connect
from ledger.pipelines import (
    Entry,
    LSMStateService,
    LSMStripId,
    LSMStripState,
    RunDecision,
    complete_stage,
    flow_decision,
    should_skip_run,
    stages,
)
from tests.fork_server import python
from tests.pipelines.crowd import Crowd, both_stages, both_ways, enter, entered, service_of
from tests.pipelines.recorded_facts import check_heads

ROOT = Path(__file__).parents[2]
STRIP = LSMStripId("p", 1, 0, 2)
STREAM = "lsm.strip/p/1/0/2"

# On the same state: all have decided to start before any has recorded it


class Rendezvous:
    """Lets the first `size` calls pass together, the later ones at once."""

    def __init__(self, size: int) -> None:
        self._calls, self._size = 0, size
        self._lock, self._gate = threading.Lock(), threading.Barrier(size, timeout=30)

    def __call__(self) -> None:
        with self._lock:
            self._calls += 1
            early = self._calls <= self._size
        if early:
            self._gate.wait()


@pytest.mark.parametrize("there", [True, False], ids=["there", "new"])
@both_stages
def test_of_eight_that_decided_to_start_one_is_started(
    log: Ledger, monkeypatch: pytest.MonkeyPatch, guard: str, there: bool
) -> None:
    service, meet, claims = LSMStateService(log, locks=NO_LOCKS), Rendezvous(8), []
    if there:
        with service.open_strip(STRIP):
            pass
    claim = getattr(stages, f"claim_{guard}")

    def slow_claim(*args: Any, **ways: Any) -> Entry:
        entry: Entry = claim(*args, **ways)
        claims.append(entry)
        meet()
        return entry

    monkeypatch.setattr(stages, f"claim_{guard}", slow_claim)
    with Crowd(8) as crowd:
        entries = crowd.all(lambda: enter(guard, service, STRIP))
    assert Counter(entry.decision for entry in entries) == {RunDecision.STARTED: 1, RunDecision.SKIPPED: 7}
    assert [entry.skipped for entry in claims[:8]] == [False] * 8  # each was about to start
    assert entered(log, STREAM) == 1
    check_heads(log)


def test_the_origins_guard_starts_all_of_them(log: Ledger) -> None:
    """What W0-07 is about: look, decide, and then mark in a scope of its own. A control of the test above."""
    service, meet = LSMStateService(log), Rendezvous(8)

    def enter_as_the_origin() -> RunDecision:
        decision = flow_decision(service.peek_strip(STRIP))
        meet()
        if not should_skip_run(decision):
            service.store.update_item(STRIP, LSMStripState.mark_started)
        return decision

    with Crowd(8) as crowd:
        assert crowd.all(enter_as_the_origin) == [RunDecision.STARTED] * 8
    assert entered(log, STREAM) == 8


# Rounds


def rounds_of_threads(
    services: Sequence[LSMStateService], guard: str, rounds: Iterator[int], size: int
) -> int:
    """Rounds in which `size` threads claim a strip of its own at one moment; how many rounds."""
    log, done = services[0].ledger, 0
    with Crowd(size) as crowd:
        for number in rounds:
            strip = LSMStripId("p", 1, number % 50, number)
            entries = crowd.all(*[lambda s=s, strip=strip: enter(guard, s, strip) for s in services])
            started = [entry for entry in entries if not entry.skipped]
            assert [entry.decision for entry in started] == [RunDecision.STARTED], number
            assert entered(log, f"lsm.strip/p/1/{number % 50}/{number}") == 1
            if number % 2:  # of those that come late, when it is done, none is started
                complete_stage(services[0], started[0])
                assert all(entry.skipped for entry in crowd.all(lambda: enter(guard, services[0], strip)))  # noqa: B023
            done += 1
    return done


@both_ways
@both_stages
def test_dozens_of_rounds_of_threads(log: Ledger, guard: str, locked: bool) -> None:
    service = service_of(log, locked)
    assert rounds_of_threads([service], guard, iter(range(36)), 6) == 36
    check_heads(log)


def test_who_locks_and_who_does_not_agree_too(log: Ledger, dsn: str) -> None:
    with connect(dsn, actor="other") as theirs:
        services = [LSMStateService(log), LSMStateService(theirs), LSMStateService(log, locks=NO_LOCKS)]
        rounds_of_threads(services, "flow", iter(range(24)), 6)


def until(end: float) -> Iterator[int]:
    number = 0
    while time.monotonic() < end:
        yield number
        number += 1


@pytest.mark.slow
@both_ways
@both_stages
def test_minutes_of_rounds_of_threads(log: Ledger, guard: str, locked: bool, minutes: float) -> None:
    rounds = rounds_of_threads([service_of(log, locked)], guard, until(time.monotonic() + 60 * minutes), 16)
    print(f"\nclaims: {rounds} rounds of 16 threads, {guard}, locked: {locked}")
    assert rounds > 60 * minutes


WORKER = """
import json, sys
import ledger
from ledger.pipelines import LSMStateService, LSMStripId, enter_flow_stage, enter_milestone_stage

dsn, guard, locked = json.loads(sys.argv[1])
with ledger.connect(dsn, max_size=2) as log:
    service = LSMStateService(log) if locked else LSMStateService(log, locks=ledger.NO_LOCKS)
    print("ready", flush=True)
    for line in sys.stdin:
        strip = LSMStripId("p", 1, 0, int(line))
        flow = guard == "flow"
        ways = [] if flow else ["compressed"]
        entry = (enter_flow_stage if flow else enter_milestone_stage)(service, strip, *ways)
        print(entry.decision, flush=True)
"""


@contextmanager
def workers(size: int, dsn: str, guard: str, locked: bool) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that claim the strips whose numbers they are sent, and answer with the decision."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    command = [*python(), "-c", WORKER, json.dumps([dsn, guard, locked])]
    ways: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with ExitStack() as stack:
        found = [subprocess.Popen(command, env=environment, **ways) for _ in range(size)]
        for one in found:
            stack.enter_context(one)
            stack.callback(one.kill)
        assert [one.stdout.readline() for one in found if one.stdout] == ["ready\n"] * size
        yield found
        for one in found:
            assert one.stdin
            one.stdin.close()
            assert one.wait(timeout=30) == 0


def rounds_of_processes(
    log: Ledger, guard: str, locked: bool, rounds: Iterator[int], size: int
) -> Counter[int]:
    """How many rounds each process won."""
    won: Counter[int] = Counter()
    with workers(size, log.address.conninfo, guard, locked) as found:
        for number in rounds:
            for one in found:
                assert one.stdin
                one.stdin.write(f"{number}\n")
                one.stdin.flush()
            said = [one.stdout.readline().strip() for one in found if one.stdout]
            assert Counter(said) == {"started": 1, "skipped": size - 1}, number
            assert entered(log, f"lsm.strip/p/1/0/{number}") == 1
            won[said.index("started")] += 1
    return won


@pytest.mark.parametrize(("guard", "locked"), [("flow", True), ("milestone", False)])
def test_rounds_of_processes(log: Ledger, guard: str, locked: bool) -> None:
    won = rounds_of_processes(log, guard, locked, iter(range(50)), 3)
    assert won.total() == 50
    assert len(won) > 1, "one process was always first: they did not meet"


@pytest.mark.slow
@both_ways
def test_minutes_of_rounds_of_processes(log: Ledger, locked: bool, minutes: float) -> None:
    won = rounds_of_processes(log, "milestone", locked, until(time.monotonic() + 60 * minutes), 8)
    print(f"\nclaims: rounds won by each of 8 processes, locked: {locked}: {sorted(won.values())}")
    assert len(won) > 1
