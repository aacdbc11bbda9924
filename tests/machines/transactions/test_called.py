"""What is called around a move, in the ledger's transaction and in one of the user's own."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from ledger import (
    BadInput,
    Ledger,
    TransitionConflict,
)
from ledger.machines import Transition
from tests.machines.payments import Payment
from tests.machines.transactions.orders import (
    Connect,
    Connection,
    Order,
    Thing,
    Wrong,
    in_thread,
    put,
    states,
    there,
)


def watched(thing: Thing, *connections: Connection) -> list[tuple[str, list[int]]]:
    """Let a thing note, at each call, how many moves each of these connections sees."""
    found: list[tuple[str, list[int]]] = []
    query = "SELECT count(*) FROM ledger.events WHERE stream = %s"

    def look(when: str) -> Callable[[Transition], None]:
        def see(move: Transition) -> None:
            name = Order.streams().name_of(thing.id)
            seen = [one.execute(query, [name]).fetchall()[0][0] for one in connections]
            if move.connection is not None:
                seen.append(move.connection.execute(query, [name]).fetchall()[0][0])
            found.append((when, seen))

        return see

    thing.acts = {when: look(when) for when in ("before", "after", "after_commit")}
    return found


@pytest.mark.parametrize("joins", [True, False])
def test_the_order_of_calls_and_what_others_see_then(log: Ledger, connect: Connect, joins: bool) -> None:
    """Spec S2-40, S2-41: seen by another connection, and by that of the move."""
    thing, user = Thing(), connect()
    seen = watched(thing, connect(autocommit=True))
    if joins:
        with log.transaction(user) as joined:
            Order(joined, thing).move("packed")
    else:
        Order(log, thing).move("packed")
    assert seen == [("before", [0, 0]), ("after", [0, 1]), ("after_commit", [1])]


@pytest.mark.parametrize("joins", [True, False])
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_error_in_a_callback_undoes_the_move(
    log: Ledger, user: Connection, when: str, joins: bool
) -> None:
    """Spec S2-42, and S2-43: it passes as it is."""

    def fail(_: Transition) -> None:
        raise Wrong

    def block() -> None:
        with log.join(user) as joined:
            Order(joined if joins else log, thing).move("packed")

    thing = Thing()
    thing.acts[when] = fail
    put(user, thing.id)
    with pytest.raises(Wrong):
        block()
    user.commit()
    assert (states(log, thing, Order), there(log, thing.id)) == ([], True)
    assert "after_commit packed" not in thing.noted


@pytest.mark.parametrize("joins", [True, False])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("INSERT INTO public.shelf VALUES ('twice'), ('twice')", psycopg.errors.UniqueViolation),
        ("DO $$BEGIN RAISE serialization_failure; END$$", psycopg.errors.SerializationFailure),
        ("SELECT 1 / 0", psycopg.errors.DivisionByZero),
    ],
)
def test_what_psycopg_raises_in_a_callback_passes_unchanged(
    log: Ledger, user: Connection, when: str, joins: bool, statement: str, error: type[Exception]
) -> None:
    """Spec S2-43."""

    def block() -> None:
        if joins:
            with log.transaction(user) as joined:
                Order(joined, thing).move("packed")
        else:
            Order(log, thing).move("packed")

    thing = Thing()
    thing.acts[when] = lambda move: move.connection.execute(statement)
    with pytest.raises(error) as caught:
        block()
    assert type(caught.value) is error
    assert states(log, thing, Order) == []
    thing.acts.clear()
    block()
    assert states(log, thing, Order) == ["packed"]


@pytest.mark.parametrize("joins", [True, False])
@pytest.mark.parametrize("when", ["before", "after"])
def test_rows_that_a_callback_writes_commit_with_the_move(
    log: Ledger, user: Connection, when: str, joins: bool
) -> None:
    thing = Thing()
    thing.acts[when] = lambda move: put(move.connection, thing.id)
    if joins:
        with log.transaction(user) as joined:
            Order(joined, thing).move("packed")
    else:
        Order(log, thing).move("packed")
    assert (states(log, thing, Order), there(log, thing.id)) == (["packed"], True)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_callback_moves_other_machines_in_the_same_transaction(
    log: Ledger, user: Connection, key: str, when: str
) -> None:
    def run(*, fails: bool) -> None:
        with log.transaction(user) as joined:
            thing.acts[when] = lambda _: Payment(joined, key).move("cancelled")
            Order(joined, thing).transition_to("packed").execute(command=f"pack {key}")
            if fails:
                raise Wrong

    thing = Thing()
    with pytest.raises(Wrong):
        run(fails=True)
    assert (states(log, key), states(log, thing, Order)) == ([], [])
    run(fails=False)
    assert (states(log, key), states(log, thing, Order)) == (["cancelled"], ["packed"])


# What a machine remembers


def test_a_machine_does_not_remember_what_was_rolled_back(log: Ledger, user: Connection, key: str) -> None:
    """Spec W2-12: after the block it answers no more, rather than with what never was."""
    outside = Payment(log, key)
    assert outside.current_state() == "pending_submission"
    with log.join(user) as joined:
        inside = Payment(joined, key)
        inside.move("cancelled")
    user.rollback()
    assert outside.current_state(force_reload=True) == "pending_submission"
    for ask in (inside.current_state, inside.history, lambda: inside.move("cancelled")):
        with pytest.raises(BadInput, match="this join is not open"):
            ask()
    assert outside.move("submitted", submission_id="S1").number == 1


def test_a_join_that_was_not_begun_takes_no_moves(log: Ledger, user: Connection, key: str) -> None:
    """What it took would be recorded by nobody."""
    with pytest.raises(BadInput, match="this join is not open"):
        Payment(log.join(user), key).move("cancelled")


def test_a_machine_remembers_nothing_of_a_move_that_a_callback_undid(log: Ledger) -> None:
    def fail(_: Transition) -> None:
        raise Wrong

    thing = Thing()
    order = Order(log, thing)
    thing.acts["after"] = fail
    with pytest.raises(Wrong):
        order.move("packed")
    assert (order.current_state(), order.last_transition(), order.history()) == ("placed", None, [])
    thing.acts.clear()
    assert order.move("packed").number == 1


def test_after_a_conflict_a_machine_knows_the_winners_move(log: Ledger) -> None:
    """Spec S2-44."""
    thing, competitor = Thing(), Thing()
    competitor.id = thing.id
    order = Order(log, thing)
    thing.acts["before"] = lambda _: in_thread(lambda: Order(log, competitor).move("packed"))
    with pytest.raises(TransitionConflict):
        order.move("packed")
    last = order.last_transition()
    assert last is not None
    assert (last.to_state, last.number, order.current_state()) == ("packed", 1, "packed")
