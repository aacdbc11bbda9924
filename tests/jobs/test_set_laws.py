"""Laws of sets: in any order, with any restarts, every round of a parent is closed once, and rightly."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from consumers.jobs.fan_in import NAME, FanIn
from ledger import Ledger
from projections import Follower

from .chaos import Chaos
from .closes import Oracle
from .sets import Sets


@pytest.fixture
def sets(log: Ledger) -> Sets:
    return Sets(log)


def _law(sets: Sets, seed: int, steps: int) -> None:
    chaos = Chaos(sets, random.Random(seed))
    chaos.run(steps)
    sets.fan_in()
    sets.cascade()
    sets.fan_in()
    events = Follower(sets.log, batch=10**6).poll()
    mine = [event for event in events if _bears(event.stream, chaos.job, events)]
    Oracle(mine).check()
    status = sets.jobs.status(chaos.job)
    if status in ("cancelled", "failed"):
        assert set(sets.statuses(chaos.job).values()) <= {"completed", "failed", "cancelled"}
        ends = {sets.jobs.status(child) for child in sets.children(chaos.job)}
        assert ends <= {"succeeded", "failed", "cancelled"}
    answers = [
        answer for event in events for answer in FanIn(sets.log)(event) if answer.stream == f"job/{chaos.job}"
    ]
    closed = {f"{NAME}:{chaos.job}:{number}" for job, number in Oracle(mine).verdicts if job == chaos.job}
    assert closed <= {answer.command for answer in answers}


def _bears(stream: str, job: str, events: Any) -> bool:
    children = {
        event.stream for event in events
        if event.topic == "job.created" and f'"parent": "{job}"' in (event.data or "")
    }  # fmt: skip
    return job in stream or stream in children


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_law_every_round_is_closed_once_and_rightly(sets: Sets, seed: int) -> None:
    _law(sets, seed, steps=30)


@pytest.mark.slow
def test_law_campaign(sets: Sets, minutes: float) -> None:
    end, seed = time.monotonic() + minutes * 60, 0
    while time.monotonic() < end:
        _law(sets, seed, steps=60)
        seed += 1
