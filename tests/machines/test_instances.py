"""An object in a machine: what it answers, how it moves, wherever its moves are kept (S2-30 to S2-39)."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import psycopg
import pytest

from ledger import (
    BadMetadata,
    GuardRefused,
    InvalidState,
    TransitionFailed,
)
from ledger.machines import (
    From,
    Machine,
    State,
    guard,
    guard_failure,
    transition_failure,
)
from tests.machines.payments import Payment, Submission

Connect = Callable[..., psycopg.Connection[Any]]


class Loop(Machine, name="loop"):
    """a → b → a, with nothing asked."""

    A = State("a", initial=True)
    B = State("b")
    table = (From(A).To(B), From(B).To(A))


# What it answers


def test_an_object_that_never_moved_is_in_the_initial_state(place: Any, key: str) -> None:
    payment = Payment(place, key)
    assert payment.current_state() == "pending_submission"
    assert payment.in_state(Payment.PENDING, "paid")
    assert payment.history() == []
    assert payment.last_transition() is None
    assert payment.last_transition_to("paid") is None


def test_a_life(place: Any, key: str) -> None:
    payment = Payment(place, key)
    first = payment.transition_to("submitted").with_(submission_id="SB1").execute()
    second = payment.move("paid", by="bank")
    assert (first.from_state, first.to_state, first.number, first.sort_key) == (
        ("pending_submission", "submitted", 1, 10)
    )
    assert (second.from_state, second.to_state, second.number, second.sort_key) == (
        ("submitted", "paid", 2, 20)
    )
    assert first.metadata == {"submission_id": "SB1"}
    assert first.metadata_as(Submission) == Submission(submission_id="SB1")
    assert second.metadata == {"by": "bank"}
    assert payment.current_state() == "paid"
    assert [(one.to_state, one.metadata, one.number) for one in payment.history()] == [
        ("submitted", {"submission_id": "SB1"}, 1),
        ("paid", {"by": "bank"}, 2),
    ]
    last, there = payment.last_transition(), payment.last_transition_to("submitted")
    assert (last and last.to_state, there and there.number) == ("paid", 1)
    assert payment.last_transition_to("cancelled") is None


def test_states_are_asked_in_every_spelling(place: Any, key: str) -> None:
    class Word(StrEnum):
        PAID = "paid"
        PENDING = "pending_submission"

    payment = Payment(place, key)
    assert payment.in_state("paid", "pending_submission")
    assert payment.in_state(["paid", ["pending_submission"]])
    assert payment.in_state(Word.PENDING)
    assert payment.in_state({Word.PENDING, Word.PAID})
    assert not payment.in_state(Word.PAID)
    assert not payment.in_state()


def test_what_may_follow_is_said_in_the_order_of_declaration(place: Any, key: str) -> None:
    payment = Payment(place, key)
    assert payment.allowed_transitions() == ("submitted", "cancelled")
    assert payment.allowed_transitions({"submission_id": "refused"}) == ("cancelled",)
    assert payment.can_transition_to("submitted", {"submission_id": "SB1"})
    assert not payment.can_transition_to("submitted", {"submission_id": "refused"})
    assert not payment.can_transition_to("paid")
    assert payment.history() == []


def test_a_guard_is_not_asked_where_the_table_says_no(place: Any, key: str) -> None:
    asked: list[tuple[Any, ...]] = []

    class Asking(Loop, name="asking"):
        @guard()
        def ask(*said: Any) -> int:
            asked.append(said)
            return 1  # what counts is whether it is true

    about = (key, 1)
    asking = Asking(place, about)
    assert not asking.can_transition_to("a")
    assert asked == []
    assert asking.can_transition_to("b", {"why": 5})
    assert asked == [(about, None, {"why": 5})]
    first = asking.move("b")
    asking.move("a", why=6)
    assert asked[-1][1].number == first.number
    assert asked[-1][2] == {"why": 6}


def test_guards_are_asked_in_order_until_one_refuses(place: Any, key: str) -> None:
    asked: list[str] = []

    class Ordered(Loop, name="ordered"):
        @guard(to="b")
        def first(*_: Any) -> bool:
            return asked.append("first") is None

        @guard()
        def second(*_: Any) -> None:
            asked.append("second")

        @guard(from_="a")
        def third(*_: Any) -> bool:
            raise AssertionError("asked after a refusal")

    with pytest.raises(GuardRefused, match="returned false: second"):
        Ordered(place, key).move("b")
    assert asked == ["first", "second"]


# How it moves


def test_a_state_that_is_no_successor_is_refused(place: Any, key: str) -> None:
    payment = Payment(place, key)
    with pytest.raises(TransitionFailed) as failed:
        payment.move("paid")
    assert str(failed.value) == (
        "payment: Cannot transition from 'pending_submission' to 'paid'; allowed from there: cancelled, "
        "submitted"
    )
    assert (failed.value.from_state, failed.value.to_state) == ("pending_submission", "paid")
    assert payment.try_move("paid") is False
    assert payment.transition_to("paid").attempt() is None
    assert payment.history() == []


def test_a_guard_that_refuses_names_itself_and_its_place(place: Any, key: str) -> None:
    payment = Payment(place, key)
    with pytest.raises(GuardRefused) as refused:
        payment.transition_to("submitted", submission_id="refused").execute()
    assert str(refused.value).startswith(
        "payment: Guard on transition from: 'pending_submission' to 'submitted' returned false: "
        "is_not_refused ("
    )
    assert refused.value.place.rpartition("/")[2].startswith("payments.py:")
    assert payment.try_move("submitted", submission_id="refused") is False
    assert payment.try_move("submitted", submission_id="SB1") is True


def test_only_refusals_make_an_attempt_false(place: Any, key: str) -> None:
    class Breaking(Loop, name="breaking"):
        @guard(to="b")
        def breaks(*_: Any) -> bool:
            raise ZeroDivisionError

    breaking = Breaking(place, key)
    for act in (breaking.try_move, breaking.can_transition_to, breaking.move):
        with pytest.raises(ZeroDivisionError):
            act("b")
    with pytest.raises(BadMetadata):
        Payment(place, key).try_move("submitted")
    assert breaking.history() == []


def test_failures_are_told_before_they_are_raised(place: Any, key: str) -> None:
    told: list[tuple[str, Any, Any]] = []

    class Telling(Loop, name="telling"):
        @guard(to="b")
        def no(*_: Any) -> bool:
            return False

        @transition_failure(to="a")
        def failed(about: Any, error: TransitionFailed) -> None:
            told.append(("failed", about, error))

        @guard_failure(from_="a", to="b")
        def refused(about: Any, error: GuardRefused) -> None:
            told.append(("refused", about, error))

    telling = Telling(place, key)
    with pytest.raises(TransitionFailed) as failed:
        telling.move("a")
    assert telling.try_move("b") is False
    assert told[0] == ("failed", key, failed.value)
    assert (told[1][:2], type(told[1][2])) == (("refused", key), GuardRefused)
    assert not telling.can_transition_to("b")
    assert len(told) == 2


def test_an_error_of_who_is_told_is_raised(place: Any, key: str) -> None:
    class Shouting(Loop, name="shouting"):
        @transition_failure()
        def shout(about: Any, error: TransitionFailed) -> None:
            raise ZeroDivisionError from error

    with pytest.raises(ZeroDivisionError):
        Shouting(place, key).try_move("a")


@pytest.mark.parametrize(
    "ask", ["in_state", "can_transition_to", "transition_to", "move", "last_transition_to"]
)
def test_an_unknown_state_is_refused(ask: str) -> None:
    payment = Payment(None, "PM1")
    for odd in ("gone", "", 5, None):
        with pytest.raises(InvalidState, match="Invalid state"):
            getattr(payment, ask)(odd)


def dropped() -> None:
    Payment(None, "PM1").transition_to("paid")
    gc.collect()


def test_a_move_that_was_never_executed_says_so() -> None:
    with pytest.warns(ResourceWarning, match="the move to paid was never executed: end it with"):
        dropped()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Payment(None, "PM1").transition_to("paid").attempt()
        with pytest.raises(TransitionFailed):
            Payment(None, "PM1").transition_to("paid").execute()
        gc.collect()
