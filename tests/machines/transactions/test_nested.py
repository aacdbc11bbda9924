"""Machines that their callbacks move on, or that move one another, as one writes it with statesman."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

import ledger
from ledger import Body, Ledger, Refused
from ledger.machines import Machine, Transition
from tests.machines.payments import Payment
from tests.machines.transactions.orders import (
    Connection,
    Order,
    Thing,
    Wrong,
    put,
    states,
    there,
)

PLAIN = Body("plain.said", 1, "{}")


def move_on(log: Any, thing: Thing, *seen: list[Any]) -> Callable[[Transition], None]:
    """What moves a packed order on to sent, by a machine made in the callback."""

    def act(move: Transition) -> None:
        if move.to_state == "packed":
            order = Order(log, thing)
            before = order.current_state()
            order.move("sent")
            for notes in seen:
                notes.append((before, order.current_state(), [one.to_state for one in order.history()]))

    return act


@pytest.mark.parametrize("joins", [True, False])
@pytest.mark.parametrize("inner_joins", [True, False])
def test_a_nested_move_is_recorded_in_the_same_transaction(
    log: Ledger, user: Connection, joins: bool, inner_joins: bool
) -> None:
    def block() -> None:
        if not joins:
            Order(log, thing).move("packed")
            return
        with log.transaction(user) as joined:
            thing.acts["after"] = move_on(joined if inner_joins else log, thing, seen)
            Order(joined, thing).move("packed")

    thing, seen = Thing(), list[Any]()
    thing.acts["after"] = move_on(log, thing, seen)
    block()
    assert seen == [("packed", "sent", ["packed", "sent"])]
    assert states(log, thing, Order) == ["packed", "sent"]
    assert thing.noted == [
        "before packed", "after packed", "before sent", "after sent",
        "after_commit sent", "after_commit packed",
    ]  # fmt: skip
    assert Order(log, thing).move("placed").number == 3


def test_the_same_machine_may_be_moved_on(log: Ledger) -> None:
    thing = Thing()
    order = Order(log, thing)
    thing.acts["after"] = lambda move: order.move("sent") if move.to_state == "packed" else None
    assert order.move("packed").to_state == "packed"
    assert (order.current_state(), order.in_state("sent"), len(order.history())) == ("sent", True, 2)


def test_a_machine_in_memory_may_be_moved_on_by_its_callbacks() -> None:
    thing, seen = Thing(), list[Any]()
    thing.acts["after"] = move_on(None, thing, seen)
    order = Order(None, thing)
    order.move("packed")
    assert seen == [("packed", "sent", ["packed", "sent"])]
    assert (order.current_state(), [one.to_state for one in order.history()]) == ("sent", ["packed", "sent"])


@pytest.mark.parametrize("joins", [True, False])
def test_a_cascade_is_undone_with_the_outer_move(
    log: Ledger, user: Connection, key: str, joins: bool
) -> None:
    def cascade(move: Transition) -> None:
        Payment(log, key).move("cancelled")
        Order(log, other).move("packed")
        put(move.connection, key)
        raise Wrong

    def block() -> None:
        if joins:
            with log.transaction(user) as joined:
                Order(joined, thing).move("packed")
        else:
            Order(log, thing).move("packed")

    thing, other = Thing(), Thing()
    thing.acts["after"] = cascade
    with pytest.raises(Wrong):
        block()
    assert (states(log, thing, Order), states(log, key), states(log, other, Order)) == ([], [], [])
    assert not there(log, key)
    assert other.noted == ["before packed", "after packed"]


def test_a_refused_nested_move_leaves_the_outer_one(log: Ledger) -> None:
    """`try_move` of the inner machine is a False; an error of another machine is raised through (W2-07)."""
    thing, other, answers = Thing(), Thing(), list[bool]()
    thing.acts["after"] = lambda _: answers.append(Order(log, other).try_move("sent"))
    Order(log, thing).move("packed")
    assert (answers, states(log, thing, Order)) == ([False], ["packed"])


def test_a_savepoint_of_the_callbacks_own_takes_its_moves_along(log: Ledger) -> None:
    thing, other = Thing(), Thing()

    def act(move: Transition) -> None:
        with move.connection.transaction() as savepoint:
            Order(log, other).move("packed")
            raise psycopg.Rollback(savepoint)

    thing.acts["after"] = act
    Order(log, thing).move("packed")
    assert (states(log, thing, Order), states(log, other, Order)) == (["packed"], [])
    assert other.noted == ["before packed", "after packed"]


def test_a_callback_that_rolls_the_move_back_is_not_told_it_was_made(log: Ledger) -> None:
    thing = Thing()

    def act(_: Transition) -> None:
        raise psycopg.Rollback

    thing.acts["after"] = act
    with pytest.raises(Refused, match="rolled the move back"):
        Order(log, thing).move("packed")
    assert states(log, thing, Order) == []


def test_a_machine_that_the_ledger_never_saw_is_moved_in_a_callback_on_one_connection(dsn: str) -> None:
    """Its definition is recorded in the same transaction, and undone with it."""

    class Parcel(Order, name="transactions.parcel"):
        pass

    thing, other = Thing(), Thing()

    def cascade(_: Transition) -> None:
        Parcel(only, other).move("packed")
        if not thing.acts.get("again"):
            raise Wrong

    thing.acts["after"] = cascade
    with ledger.connect(dsn, actor="one", max_size=1, timeout=5) as only:
        with pytest.raises(Wrong):
            Order(only, thing).move("packed")
        thing.acts["again"] = cascade
        Order(only, thing).move("packed")
        Parcel(only, other).move("sent")
        moves = Parcel(only, other).history()
        assert [move.definition for move in moves] == [1, 1]
        assert [event.topic for event in only.read("machine/transactions.parcel")] == ["machine.defined"]


def test_another_ledger_of_the_same_place_is_the_same_and_another_role_is_not(
    log: Ledger, dsn: str, key: str
) -> None:
    thing = Thing()

    def act(_: Transition) -> None:
        with ledger.connect(dsn, actor="bookkeeper") as again:
            Payment(again, key).move("cancelled")
        assert Payment(log, key).current_state() == "cancelled"
        with ledger.connect(psycopg.conninfo.make_conninfo(dsn, application_name="another")) as other:
            assert Payment(other, key).current_state() == "pending_submission"

    thing.acts["after"] = act
    Order(log, thing).move("packed")
    (event,) = log.read(f"payment/{key}")
    assert event.meta.actor == "bookkeeper"


def test_what_is_left_after_the_callbacks_is_as_before(log: Ledger, key: str) -> None:
    """No transaction is around anything any more, whatever happened in it."""
    thing = Thing()

    def act(_: Transition) -> None:
        raise Wrong

    thing.acts["after"] = act
    with pytest.raises(Wrong):
        Order(log, thing).move("packed")
    kind: type[Machine] = Payment
    assert kind(log, key).move("cancelled").number == 1
    assert Payment(None, key).move("cancelled").number == 1
