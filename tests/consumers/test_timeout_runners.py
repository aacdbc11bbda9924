"""Runners of timeouts: many at once, in the same moment, for ever, while the server is away."""

from __future__ import annotations

import threading
import time

import pytest

import ledger
from consumers.timeouts import TimeoutCounts, Timeouts
from ledger import Ledger, ServerUnavailable
from ledger.errors import NoPermission
from projections.engine.attach import attach
from projections.views.in_state import InState
from tests.consumers.claims import DOORS, LONG, Claim, eventually, hold, machine, running, state


@pytest.fixture
def kept(log: Ledger) -> Ledger:
    """A ledger in which the appends keep the view."""
    attach(log, InState())
    return log


def test_two_runners_at_once_move_each_object_once(kept: Ledger, dsn: str) -> None:
    """Given thirty claims and two runners, each with a ledger of its own; then each claim is late, once."""
    claims = [f"{n}" for n in range(30)]
    seen: list[TimeoutCounts] = []
    with ledger.connect(dsn, actor="other") as other:
        runners = [Timeouts(one, [Claim], longest_pause=0.01) for one in (kept, other)]
        with running(runners[0], seen.append), running(runners[1], seen.append):
            for claim in claims:
                Claim(kept, claim).move("held")
            eventually(lambda: all(state(kept, claim) == "late" for claim in claims))
    assert all(len(kept.read(f"timed_claim/{claim}")) == 2 for claim in claims)
    assert sum(figures.moved for figures in seen) >= 30
    assert not any(figures.failures for figures in seen)


def test_runners_that_decide_in_the_same_moment_move_it_once(kept: Ledger, dsn: str) -> None:
    """Given two runners that have both looked at the head before either moves; then one move is recorded."""
    hold(kept, "7")
    both = threading.Barrier(2, timeout=20)
    DOORS["7"] = both.wait
    try:
        with ledger.connect(dsn, actor="other") as other:
            found: list[TimeoutCounts] = []
            threads = [
                threading.Thread(target=lambda one=one: found.append(Timeouts(one, [Claim]).run_once()))
                for one in (kept, other)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(20)
    finally:
        DOORS.clear()
    assert [row.event.to_state for row in kept.read("timed_claim/7")] == ["held", "late"]  # type: ignore[union-attr]
    assert [figures.due for figures in found] == [1, 1]
    assert not any(figures.failures for figures in found)


def test_it_runs_until_it_is_stopped_and_sees_what_comes(kept: Ledger) -> None:
    """Given a runner that may pause for long; then what is recorded meanwhile is moved when it is due."""
    seen: list[TimeoutCounts] = []
    with running(Timeouts(kept, [Claim], longest_pause=60), seen.append):
        for claim in ("1", "2"):
            Claim(kept, claim).move("held")
            eventually(lambda: state(kept, claim) == "late")  # noqa: B023
    assert sum(seen, TimeoutCounts()).moved == 2


def test_it_pauses_until_the_next_is_due(kept: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a claim that is due in an hour; then nobody looks all the time, and stopping is prompt."""
    monkeypatch.setattr(Claim, "definition", Claim.definition.without_edges("held", ["late", "lost"]))
    hold(kept, "7")
    kind = machine("timed_hour", after=LONG)
    runner = Timeouts(kept, [kind, Claim], longest_pause=60)
    looks: list[int] = []
    run_once = runner.run_once
    monkeypatch.setattr(runner, "run_once", lambda stop: (looks.append(1), run_once(stop))[1])
    with running(runner):
        eventually(lambda: looks)
        time.sleep(0.2)
    assert len(looks) == 1
    assert runner._pause() == 60


def test_a_server_that_goes_away_is_waited_for(kept: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a server that is away for two looks; then it goes on; for longer than the timeout, it ends."""
    runner, away = Timeouts(kept, [Claim]), [1, 1]
    run_once = runner.run_once

    def look(stop: threading.Event | None = None) -> TimeoutCounts:
        if away:
            away.pop()
            raise ServerUnavailable("away")
        return run_once(stop)

    monkeypatch.setattr(runner, "run_once", look)
    hold(kept, "7")
    with running(runner):
        eventually(lambda: state(kept, "7") == "late")
    monkeypatch.setattr(kept.pool, "timeout", 0.1)
    away += [1] * 1000
    with pytest.raises(ServerUnavailable):
        runner.run()
    away.clear()

    def forbidden(stop: threading.Event | None = None) -> TimeoutCounts:
        raise NoPermission("no")

    monkeypatch.setattr(runner, "run_once", forbidden)
    with pytest.raises(NoPermission):
        runner.run()
