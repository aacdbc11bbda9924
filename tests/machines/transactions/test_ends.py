"""Moves whose transaction, or a savepoint of it, is rolled back: as if they had never been."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import psycopg
import pytest

from ledger import (
    BadInput,
    Ledger,
    TransitionConflict,
)
from ledger.log.join import Joined
from tests.machines.payments import Payment
from tests.machines.transactions.orders import Connection, Order, Thing, Wrong, put, states, there


def test_after_commit_waits_for_the_outermost_transaction(log: Ledger, user: Connection) -> None:
    """Spec S2-42."""
    thing = Thing()
    with user.transaction(), user.transaction():
        with log.join(user) as joined:
            Order(joined, thing).move("packed")
        with pytest.raises(BadInput, match="still open"):
            joined.committed()
    assert thing.noted == ["before packed", "after packed"]
    assert joined.committed()
    joined.committed()  # for a second time, nothing is left to do
    assert thing.noted == ["before packed", "after packed", "after_commit packed"]


def rolled_back_whole(log: Ledger, user: Connection, thing: Thing) -> Joined:
    with log.join(user) as joined:
        Order(joined, thing).move("packed")
    user.rollback()
    return joined


def rolled_back_by_error(log: Ledger, user: Connection, thing: Thing) -> Joined:
    with suppress(Wrong), user.transaction():
        joined = rolled_back_nothing(log, user, thing)
        raise Wrong
    return joined


def rolled_back_nothing(log: Ledger, user: Connection, thing: Thing) -> Joined:
    with log.join(user) as joined:
        Order(joined, thing).move("packed")
    return joined


def rolled_back_savepoint(log: Ledger, user: Connection, thing: Thing) -> Joined:
    with user.transaction():
        with user.transaction() as savepoint:
            joined = rolled_back_nothing(log, user, thing)
            raise psycopg.Rollback(savepoint)
        put(user, thing.id)
    return joined


def failed_and_committed(log: Ledger, user: Connection, thing: Thing) -> Joined:
    joined = log.join(user)
    with user.transaction():
        with suppress(Wrong), joined:
            Order(joined, thing).move("packed")
            raise Wrong
    return joined


def beaten_and_committed(log: Ledger, user: Connection, thing: Thing) -> Joined:
    joined, competitor = log.join(user), Thing()
    competitor.id = thing.id
    with user.transaction():
        with suppress(TransitionConflict), joined:
            Order(joined, thing).move("packed")
            Order(log, competitor).move("packed")
    return joined


def left_by_rollback(log: Ledger, user: Connection, thing: Thing) -> Joined:
    with log.transaction(user) as joined:
        Order(joined, thing).move("packed")
        raise psycopg.Rollback
    return joined


def closed(log: Ledger, user: Connection, thing: Thing) -> Joined:
    joined = rolled_back_nothing(log, user, thing)
    user.close()
    return joined


@pytest.mark.parametrize(
    "undo",
    [
        rolled_back_whole,
        rolled_back_by_error,
        rolled_back_savepoint,
        failed_and_committed,
        beaten_and_committed,
        left_by_rollback,
        closed,
    ],
)
def test_after_commit_is_never_called_where_the_move_was_undone(
    log: Ledger, user: Connection, undo: Callable[[Ledger, Connection, Thing], Joined]
) -> None:
    """Spec S2-42."""
    thing = Thing()
    joined = undo(log, user, thing)
    assert not joined.committed()
    assert thing.noted[0] == "before packed"
    assert "after_commit packed" not in thing.noted
    assert states(log, thing, Order) == (["packed"] if undo is beaten_and_committed else [])


# Savepoints inside of the block


def test_a_savepoint_that_is_rolled_back_takes_its_moves_along(
    log: Ledger, user: Connection, key: str
) -> None:
    thing, other = Thing(), Thing()
    with log.transaction(user) as joined:
        order, payment = Order(joined, thing), Payment(joined, key)
        order.move("packed")
        with user.transaction() as savepoint:
            put(user, key)
            order.move("sent")
            payment.move("cancelled")
            Order(joined, other).move("packed")
            with user.transaction():
                order.move("placed")
            raise psycopg.Rollback(savepoint)
        assert (order.current_state(), payment.current_state()) == ("packed", "pending_submission")
        with user.transaction():
            payment.move("submitted", submission_id="S1")
    assert (states(log, thing, Order), states(log, key)) == (["packed"], ["submitted"])
    assert (states(log, other, Order), there(log, key)) == ([], False)
    assert thing.noted[-2:] == ["after packed", "after_commit packed"]
    assert thing.noted.count("after sent") == 0
    assert other.noted == ["before packed"]


def test_one_item_that_fails_leaves_the_others(log: Ledger, user: Connection) -> None:
    """The usual way to go through many rows: a savepoint each."""
    things = [Thing() for _ in range(4)]
    with log.transaction(user) as joined:
        for nth, thing in enumerate(things):
            with user.transaction() as savepoint:
                Order(joined, thing).move("packed")
                put(user, thing.id)
                if nth % 2:
                    raise psycopg.Rollback(savepoint)
    assert [states(log, thing, Order) for thing in things] == [["packed"], [], ["packed"], []]
    assert [there(log, thing.id) for thing in things] == [True, False, True, False]
    assert [thing.noted[-1] for thing in things] == ["after_commit packed", "before packed"] * 2


def test_all_that_was_decided_may_be_rolled_back(log: Ledger, user: Connection, key: str) -> None:
    with log.transaction(user) as joined:
        put(user, key)
        with user.transaction() as savepoint:
            Payment(joined, key).move("cancelled")
            raise psycopg.Rollback(savepoint)
    assert (states(log, key), there(log, key)) == ([], True)


def test_a_join_that_is_never_told_its_end_says_what_it_did_not_call(log: Ledger, user: Connection) -> None:
    """`join` alone cannot see the commit, and callbacks that are dropped in silence are missed by nobody."""
    thing = Thing()

    def drop() -> None:
        with log.join(user) as joined:
            Order(joined, thing).move("packed")
        user.commit()

    with pytest.warns(RuntimeWarning, match=r"1 calls that wait .* call `joined\.committed\(\)` after"):
        drop()
    assert (states(log, thing, Order), thing.noted[-1]) == (["packed"], "after packed")


@pytest.mark.parametrize("said", ["committed", "rolled_back"])
def test_a_join_that_is_told_its_end_says_nothing(log: Ledger, user: Connection, said: str) -> None:
    """Warnings are errors here."""
    thing = Thing()
    with log.join(user) as joined:
        Order(joined, thing).move("packed")
    getattr(user, "commit" if said == "committed" else "rollback")()
    getattr(joined, said)()
    del joined
    assert (thing.noted[-1] == "after_commit packed") == (said == "committed")
