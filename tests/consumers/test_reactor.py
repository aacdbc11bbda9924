"""A reactor answers each event once and in order, whatever happens to it, and stops loudly if it cannot."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from consumers import Answer, Reactor
from ledger import (
    BadInput,
    BadName,
    Cursor,
    CursorMismatch,
    Exact,
    Ledger,
    Recorded,
    StreamConflict,
    acting,
)
from ledger.errors import ReactionFailed
from ledger.log.readers import SQL as READERS
from ledger.log.readers import ParkedStreams, Positions
from ledger.log.sql import run
from tests.consumers.mourner import broken, kept, mourn, mourning, values
from tests.faults.conftest import eventually
from tests.lamp import LampMade, LampRead

Connect = Callable[[], Ledger]


# Answers


def test_it_answers_and_says_why(log: Ledger) -> None:
    with acting(correlation="request 7", actor="mina"):
        (position,) = broken(log, "a")
    with acting(correlation="of nobody's concern", claimed_at=log.read("lamp/a")[0].recorded_at):
        assert mourning(log).catch_up() == 1
    one, two = log.read("mourning")
    (grave,) = log.read("grave/a")
    assert [one.event, two.event, grave.event] == [
        LampRead(value="a"),
        LampRead(value=position),
        LampMade(),
    ]
    for event, key in ((one, ""), (two, ""), (grave, "grave")):
        meta = event.meta
        assert (meta.actor, meta.causation, meta.correlation) == ("reactor mourner", position, "request 7")
        assert (meta.command, meta.claimed_at) == (f"mourner:{position}:{key}", None)


def test_it_answers_once_started_again_anywhere_or_doubled(log: Ledger, another: Connect) -> None:
    broken(log, "a", "b")
    assert mourning(log).catch_up() == 2
    broken(log, "c")
    assert mourning(log, batch=1).catch_up() == 1
    end = log.bound()
    assert Positions(log).forget("mourner")
    assert mourning(another()).catch_up() == 3
    assert log.bound() == end
    assert [value for value in values(log) if isinstance(value, str)] == ["a", "b", "c"]


def test_two_at_once_answer_once(log: Ledger, another: Connect) -> None:
    with mourning(log) as one, mourning(another()) as two:
        positions = broken(log, *map(str, range(50)))
        assert one.wait_for(positions[-1])
        assert two.wait_for(positions[-1])
    assert values(log)[::2] == [str(n) for n in range(50)]
    assert kept(log) == log.bound()


def test_it_follows_its_own_answers_too_if_it_wants_them(log: Ledger) -> None:
    def count_down(event: Recorded) -> list[Answer]:
        left = event.event.value  # type: ignore[union-attr]
        return [Answer("steps", [LampRead(value=left - 1)])] if left else []

    log.append("steps", LampRead(value=5))
    assert Reactor(log, "steps", count_down, topics={"lamp.read"}).catch_up() == 6
    assert values(log, "steps") == [5, 4, 3, 2, 1, 0]


def test_what_an_answer_expects_holds_the_first_time_only(log: Ledger) -> None:
    def once(event: Recorded) -> list[Answer]:
        return [Answer(f"once/{event.stream}", [LampRead()], expected=Exact(0))]

    log.append("a", LampMade())
    for _ in range(2):
        Positions(log).forget("once")
        assert Reactor(log, "once", once, topics={"lamp.made"}).catch_up() == 1
    log.append("a", LampMade())
    late = Reactor(log, "once", once, topics={"lamp.made"})
    late.catch_up()
    (parked,) = ParkedStreams(log).all("once")
    assert (late.parked.keys(), parked.error.partition(":")[0]) == ({"a"}, StreamConflict.__name__)


# Positions


def test_one_that_never_ran_begins_where_it_is_told(log: Ledger) -> None:
    first, second = broken(log, "a", "b")
    assert mourning(log, after=first).catch_up() == 1
    assert values(log) == ["b", second]
    assert mourning(log, after=0).catch_up() == 0, "now it goes on where it stood"


def test_its_position_is_kept_when_it_moved_and_seldom(log: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    keeps, looks = [], []
    keep, look = Positions.keep, log.tail.read
    monkeypatch.setattr(Positions, "keep", lambda *given: (keeps.append(given[-1]), keep(*given)))
    monkeypatch.setattr(log.tail, "read", lambda *given: (looks.append(given), look(*given))[1])
    began = time.monotonic()
    with Reactor(log, "idle", lambda event: [], topics={"none"}) as idle:
        for _ in range(100):
            position = log.append("a", LampRead()).last_position
        assert idle.wait_for(position)
        eventually(lambda: kept(log, "idle") == position)
        assert 1 <= len(keeps) <= 2 + time.monotonic() - began, "about once a second, not once an event"
        so_far, looked = len(keeps), len(looks)
        eventually(lambda: len(looks) > looked + 20)
    assert len(keeps) == so_far, "nothing came, so nothing was written, also not at the end"


def test_its_position_is_never_ahead_of_its_answers(log: Ledger) -> None:
    positions = broken(log, "a", "b", "c", "d")

    def watched(event: Recorded) -> list[Answer]:
        assert kept(log) < event.position
        if event.position == positions[2]:
            raise ConnectionError("c")
        return mourn(event)

    with pytest.raises(ReactionFailed):
        Reactor(log, "mourner", watched, topics={"lamp.broke"}).catch_up()
    assert kept(log) == positions[1]
    assert values(log)[::2] == ["a", "b"]


def test_it_never_goes_back(log: Ledger) -> None:
    log.append("a", LampRead(), LampRead(), LampRead())
    events = log.read("a")
    cursors = [Cursor.after(log.identity.ledger, event) for event in events]
    positions = Positions(log)
    for cursor in (cursors[1], cursors[0]):
        positions.keep("x", cursor)
        assert positions.kept("x") == cursors[1]
    positions.keep("x", cursors[2])
    assert positions.kept("x") == cursors[2]
    assert (positions.forget("x"), positions.forget("x"), positions.kept("x")) == (True, False, None)


def test_a_position_of_another_history_is_refused(log: Ledger) -> None:
    broken(log, "a")
    wrong = Cursor(log.identity.ledger, log.bound() + 100, "0" * 16)
    with pytest.raises(CursorMismatch, match="no event at position"):
        Positions(log).keep("mourner", wrong)
    with log.reader() as connection:  # as an older version of this code may have kept it
        run(connection, log.schema, READERS.keep_position, reader="mourner", cursor=str(wrong))
    with pytest.raises(CursorMismatch, match="no event at position"):
        mourning(log).catch_up()
    with pytest.raises(CursorMismatch), mourning(log) as reactor:
        reactor.wait_for(1)
    Positions(log).forget("mourner")
    assert mourning(log).catch_up() == 1


# Running


def test_stop_ends_it_between_two_events(log: Ledger) -> None:
    stop = threading.Event()
    positions = broken(log, "a", "b", "c")

    def stopping(event: Recorded) -> list[Answer]:
        if event.position == positions[1]:
            stop.set()
        return mourn(event)

    Reactor(log, "mourner", stopping, topics={"lamp.broke"}).run(stop)
    assert kept(log) == positions[1]
    assert mourning(log).catch_up() == 1
    assert values(log)[::2] == ["a", "b", "c"]


def test_one_object_runs_once_at_a_time(log: Ledger) -> None:
    with mourning(log) as reactor:
        eventually(reactor._busy.locked)
        for run in (reactor.catch_up, reactor.run, reactor.__enter__):
            with pytest.raises(BadInput, match="reactor mourner is running already"):
                run()
    broken(log, "a")
    with reactor:
        assert reactor.wait_for(log.bound())
    assert values(log)[::2] == ["a"]


def test_it_does_not_wait_longer_than_it_is_told(log: Ledger) -> None:
    with mourning(log) as reactor:
        assert not reactor.wait_for(1, seconds=0.01)


@pytest.mark.parametrize("name", ["", "A", "a:b", "a b", "x" * 101, "1"])
def test_a_name_that_cannot_be_used(log: Ledger, name: str) -> None:
    with pytest.raises(BadName, match="name of a reactor"):
        Reactor(log, name, mourn)
