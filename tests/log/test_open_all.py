"""Several streams open together: all is appended or nothing, and only if all still stand as read."""

from __future__ import annotations

import pytest

from ledger import AlreadyOpen, Ledger, MoveNotAllowed, StreamConflict
from tests.lamp import LampRead, OpenLamp
from tests.lamp import Status as LampStatus


def switch_on(log: Ledger, *, also_b: bool) -> None:
    """Switch on two lamps, or the first while the second is looked at; somebody else reads the second."""
    with log.open_all(OpenLamp("a"), OpenLamp("b")) as (a, b):
        a.switch_on()
        if also_b:
            b.switch_on()
        log.append("lamp/b", LampRead(value=1))


def make_and_switch_on(log: Ledger) -> None:
    with log.open_all(OpenLamp("a"), OpenLamp("b")) as (a, b):
        a.make()
        b.switch_on()


def test_what_all_recorded_is_one_append(log: Ledger) -> None:
    with log.open_all(OpenLamp("a"), OpenLamp("b"), command="both") as (a, b):
        a.make()
        b.make()
        a.switch_on()
    assert (a.version, b.version, a.news) == (2, 1, [])
    (first, last) = (log.read("lamp/a"), log.read("lamp/b"))
    assert {event.meta.command for event in (*first, *last)} == {"both"}
    assert sorted(event.position for event in (*first, *last)) == [1, 2, 3]
    head = log.head("lamp/b")
    assert head is not None
    assert head.status == "made"


def test_a_conflict_on_one_stores_nothing_of_the_others(log: Ledger) -> None:
    with log.open_all(OpenLamp("a"), OpenLamp("b")) as (a, b):
        a.make()
        b.make()
    with pytest.raises(StreamConflict, match="lamp/b") as caught:
        switch_on(log, also_b=True)
    assert caught.value.stream == "lamp/b"
    assert log.load(OpenLamp, "a").state.status == LampStatus.MADE


def test_what_was_only_looked_at_must_stand_too(log: Ledger) -> None:
    with log.open_all(OpenLamp("a"), OpenLamp("b")) as (a, b):
        a.make()
        b.make()
    with pytest.raises(StreamConflict, match="lamp/b"):
        switch_on(log, also_b=False)
    assert log.load(OpenLamp, "a").version == 1
    with log.open_all(OpenLamp("a"), OpenLamp("b")) as (a, b):
        log.append("lamp/b", LampRead(value=1))  # nothing is recorded, so nothing can be wrong


def test_an_error_in_the_block_stores_nothing(log: Ledger) -> None:
    with pytest.raises(MoveNotAllowed):
        make_and_switch_on(log)
    assert log.bound() == 0


def test_a_stream_is_open_once(log: Ledger) -> None:
    with pytest.raises(AlreadyOpen, match="lamp/a"), log.open_all(OpenLamp("a"), OpenLamp("a")):
        pass
