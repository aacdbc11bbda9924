"""Callbacks whose moves wait for their own transaction, or for one another: each wait comes to an end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import ledger
from ledger import AlreadyOpen, AppendUncertain, Body, Ledger, LedgerBusy, TransitionConflict, retry_conflicts
from ledger.machines import Transition
from tests.machines.transactions.orders import Connection, Order, Thing, in_thread, states

PLAIN = Body("plain.said", 1, "{}")


@pytest.mark.parametrize("joins", [True, False])
def test_an_append_that_would_wait_for_its_own_transaction_is_refused(
    log: Ledger, user: Connection, joins: bool
) -> None:
    thing, refused = Thing(), list[str]()
    name = Order.streams().name_of(thing.id)

    def act(move: Transition) -> None:
        with pytest.raises(AlreadyOpen) as caught:
            log.append(name, PLAIN)
        refused.append(str(caught.value))
        log.append(f"plain/{thing.id}", PLAIN)  # what the transaction does not hold commits by itself
        with log.join(move.connection) as joined:
            joined.append(f"plain/{thing.id}-too", PLAIN)

    thing.acts["after"] = act
    if joins:
        with log.transaction(user) as joined:
            Order(joined, thing).move("packed")
    else:
        Order(log, thing).move("packed")
    assert refused == [
        f"{name} is already open in the transaction that this callback runs in; "
        "append there: `ledger.join(transition.connection)`"
    ]
    assert [len(log.read(f"plain/{thing.id}{more}")) for more in ("", "-too")] == [1, 1]


@pytest.mark.parametrize("joins", [True, False])
def test_a_callback_that_waits_for_another_thread_that_waits_for_it_comes_to_an_end(
    dsn: str, connect: Callable[..., Connection], joins: bool
) -> None:
    """The server ends the transaction that nothing is heard of; nobody else waits longer than that."""
    thing = Thing()

    def act(_: Transition) -> None:
        in_thread(append)

    def append() -> None:
        log.append(Order.streams().name_of(thing.id), PLAIN)

    def block() -> None:
        if joins:
            with log.transaction(connect()) as joined:
                Order(joined, thing).move("packed")
        else:
            Order(log, thing).move("packed")

    thing.acts["after"] = act
    with ledger.connect(dsn, timeout=1) as log:
        with pytest.raises(LedgerBusy, match="took too long while others waited"):
            block()
        assert [event.topic for event in log.read(Order.streams().name_of(thing.id))] == ["plain.said"]


def test_a_move_whose_connection_breaks_at_the_commit_is_uncertain(log: Ledger) -> None:
    thing = Thing()

    def act(move: Transition) -> None:
        with log.reader() as other:
            other.execute("SELECT pg_terminate_backend(%s, 10000)", [move.connection.info.backend_pid])

    thing.acts["after"] = act
    with pytest.raises(AppendUncertain, match=Order.streams().name_of(thing.id)):
        Order(log, thing).move("packed")
    assert states(log, thing, Order) == []


def test_a_limit_that_the_session_has_set_is_kept_and_given_back(log: Ledger, user: Connection) -> None:
    show = "SELECT current_setting('idle_in_transaction_session_timeout')"
    thing, limits = Thing(), list[str]()
    thing.acts["after"] = lambda move: limits.append(move.connection.execute(show).fetchone()[0])
    for set_to in ("0", "7s"):
        user.execute("SELECT set_config('idle_in_transaction_session_timeout', %s, false)", [set_to])
        user.commit()
        with user.transaction():
            with log.join(user) as joined:
                Order(joined, thing).move("packed")
                Order(joined, thing).move("sent")
                Order(joined, thing).move("placed")
            limits.append(user.execute(show).fetchall()[0][0])
        joined.committed()
    assert limits == ["30s"] * 3 + ["0"] + ["7s"] * 4


def test_two_objects_that_move_one_another_do_not_deadlock_for_ever(log: Ledger) -> None:
    """Each holds its own and wants the other's: one is in conflict, undone as a whole, and may try again."""
    one, two = Thing(), Thing()
    both = threading.Barrier(2)
    conflicts: list[TransitionConflict] = []

    def cascade(first: Thing, second: Thing) -> Callable[[Transition], None]:
        def act(move: Transition) -> None:
            if move.to_state == "packed" and not conflicts:
                both.wait(20)
                Order(log, second_of[first.id]).move("packed")

        second_of = {first.id: Thing()}
        second_of[first.id].id = second.id
        return act

    def run(thing: Thing) -> str:
        try:
            return Order(log, thing).move("packed").to_state
        except TransitionConflict as conflict:
            conflicts.append(conflict)
            return "beaten"

    one.acts["after"], two.acts["after"] = cascade(one, two), cascade(two, one)
    with ThreadPoolExecutor(2) as pool:
        came = sorted(pool.map(run, [one, two]))
    assert came == ["beaten", "packed"]
    assert not conflicts[0].in_transaction
    assert "another writer moved it before the move to packed was recorded" in str(conflicts[0])
    assert (states(log, one, Order), states(log, two, Order)) == (["packed"], ["packed"])


def test_a_nested_conflict_is_decided_again_in_the_callback(log: Ledger) -> None:
    """Read committed: the second look sees what the winner did, and the outer move is not touched."""
    thing, other, runs = Thing(), Thing(), list[str]()
    rival = Thing()
    rival.id = other.id

    def compete(_: Transition) -> None:
        if not rival.noted:
            in_thread(lambda: Order(log, rival).move("packed"))

    def nested() -> None:
        state = Order(log, other).current_state()
        runs.append(str(state))
        Order(log, other).move("packed" if state == "placed" else "sent")

    other.acts["before"] = compete
    thing.acts["after"] = lambda _: retry_conflicts(nested, attempts=2)
    Order(log, thing).move("packed")
    assert runs == ["placed", "packed"]
    assert (states(log, thing, Order), states(log, other, Order)) == (["packed"], ["packed", "sent"])
