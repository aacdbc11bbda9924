"""Moves in transactions that see one moment only: repeatable read and serializable (spec S2-15)."""

from __future__ import annotations

import psycopg
import pytest

import ledger
from ledger import (
    Body,
    Ledger,
    LedgerBusy,
    TransitionConflict,
    retry_conflicts,
)
from ledger.log.join import Joined
from ledger.machines import Transition
from tests.machines.payments import Payment
from tests.machines.transactions.orders import Connect, Connection, Order, Thing, put, states, there

STRICT = [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE]
PLAIN = Body("plain.said", 1, "{}")


@pytest.mark.parametrize("level", STRICT)
@pytest.mark.parametrize("begun", [True, False])
def test_a_strict_transaction_that_is_beaten_is_a_conflict_of_the_whole(
    log: Ledger, user: Connection, key: str, level: psycopg.IsolationLevel, begun: bool
) -> None:
    """Spec S2-15, W2-08: what the transaction sees does not change, so that it alone is not tried again."""
    runs = []

    def block() -> None:
        runs.append(1)
        with log.join(user) as joined:
            Payment(joined, key).move("cancelled")

    if begun:
        Payment(log, key).move("submitted", submission_id="S1")
    user.isolation_level = level
    put(user, key)  # takes the snapshot
    if begun:
        Payment(log, key).move("paid")
    else:
        Payment(log, key).move("submitted", submission_id="S2")
    with pytest.raises(TransitionConflict, match="roll back this transaction and run it again") as caught:
        retry_conflicts(block, attempts=6)
    conflict = caught.value
    assert (conflict.in_transaction, conflict.to_state, len(runs)) == (True, "cancelled", 1)
    assert conflict.found == (2 if begun else 1)
    user.rollback()
    assert not there(log, key)
    assert "cancelled" not in states(log, key)


@pytest.mark.parametrize("level", STRICT)
def test_a_strict_transaction_that_is_run_again_as_a_whole_gets_through(
    log: Ledger, connect: Connect, key: str, level: psycopg.IsolationLevel
) -> None:
    runs = []
    user = connect()
    user.isolation_level = level

    def whole() -> None:
        with log.transaction(user) as joined:
            put(user, key)
            if not runs:
                Payment(log, key).move("submitted", submission_id="S1")
            runs.append(1)
            Payment(joined, key).move("cancelled")

    retry_conflicts(whole, attempts=4)
    assert (states(log, key), len(runs)) == (["submitted", "cancelled"], 2)


def test_a_serializable_transaction_that_is_refused_at_its_commit(log: Ledger, connect: Connect) -> None:
    """Two that each read what the other moves: in no order would both have seen what they saw (S2-15)."""
    one, two = Thing(), Thing()
    users = [connect(), connect()]
    for user in users:
        user.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
    Order(log, one).move("packed")
    Order(log, two).move("packed")

    def first(joined: Joined) -> None:
        if Order(joined, one).current_state() == "packed":
            Order(joined, two).move("sent")

    def both() -> None:
        with log.transaction(users[0]) as outer:
            first(outer)
            with log.transaction(users[1]) as inner:
                if Order(inner, two).current_state() == "packed":
                    Order(inner, one).move("sent")

    with pytest.raises(TransitionConflict) as caught:
        both()
    assert not caught.value.in_transaction
    assert sorted(states(log, one, Order) + states(log, two, Order)) == ["packed", "packed", "sent"]


@pytest.mark.parametrize("level", STRICT)
def test_a_serialization_failure_without_machines_stays_what_it_was(
    log: Ledger, user: Connection, key: str, level: psycopg.IsolationLevel
) -> None:
    def block() -> None:
        with log.join(user) as joined:
            joined.append(f"plain/{key}", PLAIN, expected=1)

    log.append(f"plain/{key}", PLAIN)
    user.isolation_level = level
    put(user, key)
    log.append(f"plain/{key}", PLAIN)
    with pytest.raises(LedgerBusy):
        block()
    user.rollback()


def test_a_server_that_is_strict_by_default_tells_the_same_of_moves_with_callbacks(
    dsn: str, log: Ledger
) -> None:
    """Spec S2-15, in the ledger's own transaction: it is over, so the move may be tried again."""
    thing, competitor = Thing(), Thing()
    competitor.id = thing.id

    def see_then_lose(move: Transition) -> None:
        move.connection.execute("SELECT count(*) FROM ledger.events")
        if competitor.noted == []:
            Order(log, competitor).move("packed")

    thing.acts["before"] = see_then_lose
    strict = psycopg.conninfo.make_conninfo(dsn, options="-c default_transaction_isolation=serializable")
    with ledger.connect(strict) as own:
        with pytest.raises(TransitionConflict) as caught:
            Order(own, thing).move("packed")
        assert not caught.value.in_transaction
        assert retry_conflicts(lambda: Order(own, thing).move("sent")).number == 2
    assert states(log, thing, Order) == ["packed", "sent"]
