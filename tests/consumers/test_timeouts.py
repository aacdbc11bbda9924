"""Timeouts of machines: what is too long in a state moves, by its head, guards asked."""

from __future__ import annotations

import time
from typing import Any

import pytest

from consumers import timeouts
from consumers.timeouts import TimeoutCounts, Timeouts
from ledger import BadInput, Ledger, SchemaMismatch
from ledger.errors import InvalidTransition, TransitionConflict
from ledger.log.append import append_of
from projections.engine.attach import attach
from projections.engine.projector import Projector
from projections.views.in_state import InState
from tests.consumers.claims import DOORS, LONG, SOON, Claim, Reason, eventually, hold, machine, state


@pytest.fixture
def kept(log: Ledger) -> Ledger:
    """A ledger in which the appends keep the view."""
    attach(log, InState())
    return log


def test_what_is_due_is_moved_and_nothing_else(kept: Ledger) -> None:
    """Given a claim that is held for long, one that is done, an open one; then the first is late, once."""
    Claim(kept, "open").move("held")
    Claim(kept, "open").move("open")
    Claim(kept, "done").move("held")
    Claim(kept, "done").move("done")
    hold(kept, "7")
    runner = Timeouts(kept, [Claim])
    assert runner.run_once() == TimeoutCounts(moved=1)
    assert runner.run_once() == TimeoutCounts()  # it is late now, for an hour
    assert [state(kept, name) for name in ("7", "done", "open")] == ["late", "done", "open"]
    first, last = kept.read("timed_claim/7")
    assert last.meta.command == "timeout:timed_claim/7:1:late"
    assert (last.meta.actor, last.meta.causation) == ("timeouts", first.position)
    assert Claim(kept, "7").history()[-1].metadata == {}


def test_the_earliest_that_is_not_refused_is_taken(kept: Ledger) -> None:
    """Given guards; then the next transition that is due is tried, and who has none is asked again later."""
    hold(kept, "never late", "never late, never lost", "7")
    time.sleep(SOON.total_seconds())
    runner, eager = (Timeouts(kept, [Claim], again=again) for again in (3600, 0))
    assert runner.run_once() == TimeoutCounts(moved=2, refused=1)
    assert runner.run_once() == TimeoutCounts(waiting=1)
    assert [state(kept, name) for name in ("never late", "never late, never lost", "7")] == [
        "lost", "held", "late",
    ]  # fmt: skip
    assert [eager.run_once(), eager.run_once()] == [TimeoutCounts(refused=1)] * 2
    Claim(kept, "never late, never lost").move("open")
    assert runner.run_once() == TimeoutCounts()


def test_who_was_refused_is_asked_again_when_its_next_transition_is_due(kept: Ledger) -> None:
    runner = Timeouts(kept, [Claim], again=3600)
    Claim(kept, "never late").move("held")
    eventually(lambda: runner.run_once().moved)
    assert state(kept, "never late") == "lost"


def test_the_head_decides_and_not_the_view(log: Ledger) -> None:
    """Given a view that is behind; then who went away is not moved, nor who came back a moment ago."""
    hold(log, "away", "back", "7")
    Projector(log, [InState()]).catch_up()
    Claim(log, "away").move("done")
    for to_state in ("open", "held"):
        Claim(log, "back").move(to_state)
    assert Timeouts(log, [Claim]).run_once() == TimeoutCounts(moved=1, gone=2)
    assert [state(log, name) for name in ("away", "back", "7")] == ["done", "held", "late"]
    Projector(log, [InState()]).catch_up()
    eventually(lambda: Timeouts(log, [Claim]).run_once() == TimeoutCounts(moved=1))


def test_who_moves_while_its_guard_is_asked_is_not_moved(kept: Ledger) -> None:
    hold(kept, "7", "8")
    DOORS["7"] = lambda: Claim(kept, "7").move("done")
    try:
        assert Timeouts(kept, [Claim]).run_once() == TimeoutCounts(moved=1, gone=1)
    finally:
        DOORS.clear()
    assert (state(kept, "7"), state(kept, "8")) == ("done", "late")


def test_a_move_can_insist_on_how_often_the_object_moved(log: Ledger) -> None:
    Claim(log, "7").transition_to("held").execute(expected=0)
    with pytest.raises(TransitionConflict, match="before the move to done was recorded"):
        Claim(log, "7").transition_to("done").execute(expected=0)
    assert Claim(log, "7").transition_to("done").execute(expected=1).number == 2


def test_what_fails_is_named_and_the_others_go_on(kept: Ledger) -> None:
    hold(kept, "deaf 1", "7", "deaf 2")
    runner = Timeouts(kept, [Claim])
    figures = runner.run_once()
    assert figures == TimeoutCounts(moved=1, failed=2)
    assert [(failure.stream, failure.to_state) for failure in figures.failures] == [
        ("timed_claim/deaf 1", "late"), ("timed_claim/deaf 2", "late"),
    ]  # fmt: skip
    assert isinstance(figures.failures[0].error, LookupError)
    assert state(kept, "deaf 1") == "held"
    assert figures.due == 3


def test_those_of_one_moment_are_all_found(kept: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given more objects of one append, so of one time, than are looked up at once; then none is missed."""
    monkeypatch.setattr(timeouts, "PAGE", 2)
    Claim(kept, "first").move("held")
    streams = [Claim.streams()(f"{number}") for number in range(5)]
    for stream in streams:
        stream.record(stream.MOVED(from_state="open", to_state="held"))
    kept.append_all([append_of(stream) for stream in streams])
    hold(kept, "last")
    assert Timeouts(kept, [Claim]).run_once() == TimeoutCounts(moved=7)


def test_functions_are_called_with_the_object_that_the_machine_makes(kept: Ledger) -> None:
    """Given `object_of`; then guards see the object; and one of another key is refused."""
    seen: list[Any] = []
    kind = machine("timed_object", after=SOON)
    kind.guard_transition()(lambda about, last, metadata: seen.append(about) or True)
    for key in (("a", 1), ("b", 2)):
        kind(kept, key, initial_transition=True)
    time.sleep(SOON.total_seconds() * 1.1)
    kind.object_of = classmethod(lambda cls, key: ("a", "1"))  # type: ignore[attr-defined]
    figures = Timeouts(kept, [kind]).run_once()
    assert (figures.moved, figures.failed) == (1, 1)
    assert "object_of made an object of timed_object/a/1" in str(figures.failures[0].error)
    del kind.object_of  # type: ignore[attr-defined]
    assert Timeouts(kept, [kind]).run_once().moved == 1
    assert seen == [("a", "1"), ("b", "2")]


def test_what_cannot_time_out_is_refused(log: Ledger) -> None:
    with pytest.raises(
        InvalidTransition, match=r"timed_said: the transition from a to b is due by itself, .* why"
    ):
        Timeouts(log, [machine("timed_said", after=LONG, metadata=Reason)])
    with pytest.raises(BadInput, match="no machine here has a timeout"):
        Timeouts(log, [machine("timed_never")])
    with pytest.raises(BadInput, match="has no name to record under"):
        Timeouts(log, [machine("", after=LONG)])
    with pytest.raises(SchemaMismatch, match="the view in_state does not exist yet"):
        Timeouts(log, [Claim]).run_once()
