"""Histories as they may be found: long, moved on by others, with events of other kinds, without a head."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import ledger
from ledger import Body, GuardRefused, Ledger, TransitionConflict
from ledger.machines import From, Machine, State, guard
from tests.machines.payments import Payment


class Step(Machine, name="walk"):
    """a → b → a."""

    A = State("a", initial=True)
    B = State("b")
    table = (From(A).To(B), From(B).To(A))


@pytest.fixture
def elsewhere(shared: Ledger) -> Iterator[Ledger]:
    """The same ledger, as another process has it."""
    with ledger.connect(shared.address.conninfo) as opened:
        yield opened


def test_what_another_process_did_counts_where_this_one_moved_last(
    shared: Ledger, elsewhere: Ledger, key: str
) -> None:
    here, there = Step(shared, key), Step(elsewhere, key)
    assert [here.move("b").number, there.move("a").number, here.move("b").number] == [1, 2, 3]
    assert [there.move("a").number, there.move("b").number, here.move("a").number] == [4, 5, 6]
    there.move("b")
    assert here.try_move("b") is False
    assert here.current_state() == "b"
    assert [one.to_state for one in here.history()] == ["b", "a"] * 3 + ["b"]


def test_a_guard_is_asked_about_what_another_process_did(shared: Ledger, elsewhere: Ledger, key: str) -> None:
    class Told(Step, name="told"):
        @guard(to="a")
        def was_told(about: Any, last: Any, metadata: Any) -> bool:
            return bool(last.metadata["why"] == "good")

    here, there = Told(shared, key), Told(elsewhere, key)
    here.move("b", why="good")
    there.move("a")
    there.move("b", why="bad")
    assert here.try_move("a") is False
    assert Told(shared, (key, 2)).move("b", why="bad").number == 1
    Told(elsewhere, (key, 2))  # and nobody moved this one
    with pytest.raises(GuardRefused):
        Told(shared, (key, 2)).move("a")


def test_a_block_sees_one_history_to_its_end(shared: Ledger, user: psycopg.Connection[Any], key: str) -> None:
    def block() -> None:
        with shared.transaction(user) as joined:
            step = Step(joined, key)
            assert step.current_state() == "a"
            Step(shared, key).move("b")
            assert (step.current_state(), step.history()) == ("a", [])
            step.move("b")
            assert [one.number for one in step.history()] == [1]

    with pytest.raises(TransitionConflict):
        block()
    assert [one.number for one in Step(shared, key).history()] == [1]


def test_a_long_history_is_read_whole(shared: Ledger, key: str) -> None:
    step, moved = Step(shared, key), Step.streams().MOVED
    there_and_back = [moved(from_state="a", to_state="b"), moved(from_state="b", to_state="a")]
    shared.append(step.stream, *there_and_back * 600)
    assert [one.number for one in Step(shared, key).history()] == list(range(1, 1201))
    there = Step(shared, key).last_transition_to("b")
    assert there is not None
    assert there.sort_key == 11990


def test_an_event_of_another_kind_is_no_move_but_counts(shared: Ledger, key: str) -> None:
    step = Step(shared, key)
    step.move("b")
    shared.append(step.stream, Body("odd.thing", 1, '{"to_state":"a"}'))
    Payment(shared, key).move("cancelled")
    shared.append(step.stream, *[row.event for row in shared.read(f"payment/{key}")])
    step.reset()
    assert (step.current_state(), step.move("a").number) == ("b", 4)
    assert [(one.to_state, one.number) for one in step.history()] == [("b", 1), ("a", 4)]


def test_an_object_whose_head_is_gone_stands_where_it_stood(log: Ledger, admin_dsn: str) -> None:
    step = Step(log, 1)
    step.move("b")
    step.move("a")
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute("TRUNCATE ledger.heads")
    step.reset()
    assert (step.current_state(), step.move("b").number) == ("a", 3)
    head = log.head(step.stream)
    assert head is not None
    assert (head.status, head.version) == ("b", 3)
