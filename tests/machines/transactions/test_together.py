"""Moves in a transaction of the user's own: they and the user's rows commit together, or not at all."""

from __future__ import annotations

import pytest
from psycopg.pq import TransactionStatus

from ledger import (
    BadInput,
    GuardRefused,
    Ledger,
    TransitionConflict,
    TransitionFailed,
    retry_conflicts,
)
from ledger.errors import BadMetadata
from ledger.log.join import Joined
from tests.machines.payments import Payment
from tests.machines.transactions.orders import Connect, Connection, Order, Thing, Wrong, put, states, there


@pytest.mark.parametrize("autocommit", [True, False])
def test_a_move_and_a_row_commit_together(log: Ledger, connect: Connect, key: str, autocommit: bool) -> None:
    user = connect(autocommit=autocommit)
    with log.transaction(user) as joined:
        put(user, key)
        move = Payment(joined, key).move("submitted", submission_id="S1")
        assert (states(log, key), there(log, key)) == ([], False)
    assert (states(log, key), there(log, key), move.number) == (["submitted"], True, 1)
    with log.transaction(user) as joined:  # the connection is free for the next
        Payment(joined, key).move("paid")
    assert user.info.transaction_status == TransactionStatus.IDLE
    assert Payment(log, key).current_state() == "paid"


@pytest.mark.parametrize("autocommit", [True, False])
def test_a_move_and_a_row_are_rolled_back_together(
    log: Ledger, connect: Connect, key: str, autocommit: bool
) -> None:
    def fail() -> None:
        with user.transaction():
            put(user, key)
            with log.join(user) as joined:
                Payment(joined, key).move("submitted", submission_id="S1")
            raise Wrong

    user = connect(autocommit=autocommit)
    with pytest.raises(Wrong):
        fail()
    assert (states(log, key), there(log, key)) == ([], False)


def test_without_autocommit_the_users_commit_counts(log: Ledger, user: Connection, key: str) -> None:
    put(user, key)
    with log.join(user) as joined:
        Payment(joined, key).move("submitted", submission_id="S1")
    assert states(log, key) == []
    user.commit()
    assert (states(log, key), there(log, key)) == (["submitted"], True)


def test_a_connection_in_autocommit_needs_a_transaction(log: Ledger, connect: Connect, key: str) -> None:
    with pytest.raises(BadInput, match="autocommit"), log.join(connect(autocommit=True)) as joined:
        Payment(joined, key).current_state()
    assert states(log, key) == []


def test_a_transaction_that_is_open_is_joined_and_not_begun(log: Ledger, user: Connection) -> None:
    user.execute("SELECT 1")
    with pytest.raises(BadInput, match=r"use `ledger\.join"), log.transaction(user):
        raise AssertionError("not reached")


def test_several_moves_and_machines_in_one_block(log: Ledger, user: Connection, key: str) -> None:
    thing = Thing()
    with log.transaction(user) as joined:
        payment, order = Payment(joined, key), Order(joined, thing)
        payment.move("submitted", submission_id="S1")
        order.move("packed")
        payment.move("paid")
        assert (payment.current_state(), order.current_state()) == ("paid", "packed")
        assert [move.number for move in Payment(joined, key).history()] == [1, 2]
        assert not payment.try_move("cancelled")
    assert (states(log, key), states(log, thing, Order)) == (["submitted", "paid"], ["packed"])
    assert [event.version for event in log.read(f"payment/{key}")] == [1, 2]
    assert thing.noted == ["before packed", "after packed", "after_commit packed"]


# What is refused leaves the transaction as it was


def test_refused_moves_leave_the_transaction_usable(log: Ledger, user: Connection, key: str) -> None:
    with log.transaction(user) as joined:
        payment = Payment(joined, key)
        put(user, key)
        with pytest.raises(TransitionFailed):
            payment.move("paid")
        with pytest.raises(GuardRefused):
            payment.move("submitted", submission_id="refused")
        with pytest.raises(BadMetadata):
            payment.move("submitted")
        assert (payment.current_state(), payment.history()) == ("pending_submission", [])
        payment.move("cancelled")
    assert (states(log, key), there(log, key)) == (["cancelled"], True)


@pytest.mark.parametrize("moves", [1, 2])
@pytest.mark.parametrize("called", [True, False])
def test_a_beaten_competitor_leaves_the_transaction_usable(
    log: Ledger, user: Connection, key: str, moves: int, called: bool
) -> None:
    """Spec S2-12: read committed. The block alone may be run again, and sees then what the winner did."""
    thing, runs = Thing(), []

    def block() -> Joined:
        runs.append(1)
        with log.join(user) as joined:
            payment = Payment(joined, key)
            if payment.current_state() == "pending_submission":
                payment.move("submitted", submission_id="S1")
            if moves == 2 or len(runs) == 2:
                payment.move("paid")
            if called:
                Order(joined, thing).move("packed")
            if len(runs) == 1:
                Payment(log, key).move("submitted", submission_id="S2")
        return joined

    put(user, key)
    with pytest.raises(TransitionConflict) as caught:
        retry_conflicts(block, attempts=1)
    assert not caught.value.in_transaction
    assert caught.value.to_state == ("paid" if moves == 2 else "submitted")
    assert states(log, key) == ["submitted"]
    joined = retry_conflicts(block, attempts=1)
    user.commit()
    assert joined.committed()
    assert (states(log, key), there(log, key)) == (["submitted", "paid"], True)
    assert states(log, thing, Order) == (["packed"] if called else [])


def test_a_conflict_of_one_stream_undoes_the_moves_of_all(log: Ledger, user: Connection, key: str) -> None:
    def block() -> None:
        with log.join(user) as joined:
            Payment(joined, f"{key}-a").move("cancelled")
            Payment(joined, f"{key}-b").move("cancelled")
            Payment(log, f"{key}-b").move("submitted", submission_id="S2")

    with pytest.raises(TransitionConflict, match=f"payment/{key}-b: another writer moved it"):
        block()
    user.commit()
    assert (states(log, f"{key}-a"), states(log, f"{key}-b")) == ([], ["submitted"])


# Commands


def test_a_block_that_is_run_again_under_its_command_moves_once(
    log: Ledger, user: Connection, key: str
) -> None:
    thing = Thing()
    numbers = []
    for _ in range(2):
        with log.transaction(user) as joined:
            move = Order(joined, thing).transition_to("packed")
            numbers.append(move.execute(command=f"pack {key}").number)
    assert (numbers, states(log, thing, Order)) == ([1, 1], ["packed"])
    assert thing.noted == ["before packed", "after packed", "after_commit packed"]


def test_a_command_that_went_round_is_told_what_it_did(log: Ledger, key: str) -> None:
    """The object is where the command could move it again, but it has done that once."""
    order = Order(log, Thing())
    first = order.transition_to("packed").execute(command=f"pack {key}")
    for state in ("sent", "placed"):
        order.move(state)
    assert order.transition_to("packed").execute(command=f"pack {key}") == first
    assert (order.current_state(), len(order.history())) == ("placed", 3)


def test_two_commands_in_one_block_are_refused(log: Ledger, user: Connection, key: str) -> None:
    """One join is one append, which one command id stands for."""

    def block() -> None:
        with log.transaction(user) as joined:
            Order(joined, Thing()).transition_to("packed").execute(command=f"one {key}")
            Payment(joined, key).transition_to("cancelled").execute(command=f"two {key}")

    with pytest.raises(BadInput, match="a join is one append"):
        block()
    assert states(log, key) == []
