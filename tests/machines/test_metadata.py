"""What is said with a move: it fits its model, it is read back as it was kept, a command moves once."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar

import psycopg
import pytest
from pydantic import BaseModel, Field

from ledger import BadBody, BadMetadata, CommandReused, Ledger
from ledger.machines import From, Machine, Move, State, guard
from tests.machines.payments import Payment, Submission

Connection = psycopg.Connection[Any]


class Loop(Machine, name="talk"):
    """a → b → a, with nothing asked."""

    A = State("a", initial=True)
    B = State("b")
    table = (From(A).To(B), From(B).To(A))


# What is said with a move


SAID: list[tuple[Any, Any]] = [
    ("text", "text"),
    ("\x01\x02\x03", "\x01\x02\x03"),
    ('"moves":0,"from_state":null', '"moves":0,"from_state":null'),
    ({"from_state": None, "moves": 0}, {"from_state": None, "moves": 0}),
    (2**70, 2**70),
    (0.1, 0.1),
    (None, None),
    ({"a": [1, {"b": (2, 3)}]}, {"a": (1, {"b": (2, 3)})}),
    ({3, 1, 2}, (1, 2, 3)),
    (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00Z"),
    (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (Payment.PAID, "paid"),
    (Submission(submission_id="x"), {"submission_id": "x"}),
]


def test_what_is_said_comes_back_as_it_is_read_later(place: Any, key: str) -> None:
    for nth, (said, kept) in enumerate(SAID):
        loop = Loop(place, (key, nth))
        moved = loop.move("b", said=said)
        last = loop.last_transition()
        assert last is not None
        assert moved.metadata == last.metadata == loop.history()[0].metadata == {"said": kept}
        assert loop.move("a", from_state=None, said=said).metadata["said"] == kept
        (_, back) = loop.history()
        assert (back.from_state, back.metadata) == ("b", {"from_state": None, "said": kept})
        assert loop.last_transition(force_reload=True) == back


def test_what_json_would_change_is_refused(place: Any, key: str) -> None:
    loop = Loop(place, key)
    odd: list[Any] = [float("nan"), -0.0, "\x00", {1: "x"}, "\ud800"]
    for said in odd:
        with pytest.raises(BadBody, match=r"metadata\.said"):
            loop.move("b", said=said)
    assert (loop.current_state(), loop.history()) == ("a", [])


def test_what_is_no_json_is_refused(place: Any, key: str) -> None:
    loop = Loop(place, key)
    odd: list[Any] = [object(), b"\xff", [object()], len]
    for said in odd:
        with pytest.raises(BadMetadata, match=r"^the metadata of the move from a to b does not fit JSON: "):
            loop.try_move("b", said=said)
    assert (loop.current_state(), loop.history()) == ("a", [])


def test_what_does_not_fit_the_model_is_refused(place: Any, key: str) -> None:
    payment = Payment(place, key)
    with pytest.raises(BadMetadata) as refused:
        payment.move("submitted", submission_id=5)
    assert str(refused.value) == (
        "the metadata of the move from pending_submission to submitted does not fit Submission: "
        "submission_id: Input should be a valid string, given 5"
    )
    with pytest.raises(BadMetadata, match="submission_id: Field required"):
        payment.move("submitted")
    assert payment.history() == []


def test_a_model_with_other_names_outside_reads_back_what_it_wrote(place: Any, key: str) -> None:
    class Wire(BaseModel, extra="forbid"):
        when: datetime = Field(alias="occurred-at")
        span: timedelta = timedelta(0)

    class Wired(Loop, name="wired"):
        table = (From("a").To("b", metadata=Wire),)

    at = datetime(2026, 1, 2, tzinfo=UTC)
    moved = Wired(place, key).transition_to("b").with_(**{"occurred-at": at}).execute()
    assert moved.metadata == {"occurred-at": "2026-01-02T00:00:00Z", "span": "PT0S"}
    assert moved.metadata_as(Wire).when == at


def test_anything_may_be_the_name_of_what_is_said(key: str) -> None:
    loop = Loop(None, key)
    said: dict[str, Any] = {"state": 1, "self": 2, "metadata": 3, "to_state": 4, "command": 5}
    assert loop.move("b", **said).metadata == said
    assert loop.transition_to("a", **said).with_(**said | {"state": 9}).execute().metadata["state"] == 9
    assert isinstance(move := loop.transition_to("b"), Move)
    assert loop.try_move("b", **said)
    assert move.attempt() is None


# Commands and times


def test_a_command_moves_once(place: Any, key: str) -> None:
    loop = Loop(place, key)
    first = loop.transition_to("b").execute(command=key)
    if place is None or isinstance(place, Ledger):
        again = loop.transition_to("b").execute(command=key)
        assert (again, len(loop.history())) == (first, 1)
        loop.move("a")
        again = loop.transition_to("b").attempt(command=key)
        assert (again, loop.current_state(), len(loop.history())) == (first, "a", 2)
        with pytest.raises(CommandReused):
            loop.transition_to("a").execute(command=key)


def test_a_transaction_that_is_repeated_moves_once(shared: Ledger, user: Connection, key: str) -> None:
    for _ in range(2):
        with shared.transaction(user) as joined:
            moved = Loop(joined, key).transition_to("b").execute(command=key)
            assert (moved.to_state, moved.number) == ("b", 1)
    Loop(shared, key).move("a")
    with shared.transaction(user) as joined:
        Loop(joined, key).transition_to("b").execute(command=key)
    assert [one.to_state for one in Loop(shared, key).history()] == ["b", "a"]


def test_a_command_of_another_object_is_refused(shared: Ledger, key: str) -> None:
    Loop(shared, key).transition_to("b").execute(command=key)
    with pytest.raises(CommandReused):
        Loop(shared, (key, 2)).transition_to("b").execute(command=key)
    assert Loop(shared, (key, 2)).history() == []


def test_a_claimed_time_is_kept_beside_the_ledgers(place: Any, key: str) -> None:
    claimed = datetime(2020, 5, 17, 8, tzinfo=UTC)
    loop = Loop(place, key)
    moved = loop.transition_to("b").execute(claimed_at=claimed)
    assert moved.claimed_at == claimed
    assert moved.at > claimed + timedelta(days=365)
    if place is None or isinstance(place, Ledger):
        assert loop.history()[0].claimed_at == claimed


def test_who_moved_it_is_in_the_ledger(shared: Ledger, key: str) -> None:
    Loop(shared, key).transition_to("b").execute(actor="clerk", correlation="r5")
    (row,) = shared.read(f"talk/{key}")
    assert (row.meta.actor, row.meta.correlation, row.event.topic) == ("clerk", "r5", "talk.moved")


def test_a_guard_cannot_change_what_is_said(place: Any, key: str) -> None:
    class Meddled(Loop, name="meddled"):
        @guard()
        def meddles(about: Any, last: Any, metadata: Any) -> bool:
            metadata["sum"] = 0
            return True

    with pytest.raises(TypeError, match="does not support item assignment"):
        Meddled(place, key).move("b", sum=5)


# Guards are given what is kept


class Booking(BaseModel):
    """With what is said, and what need not be."""

    sum: Decimal
    currency: str = "EUR"


class Booked(Machine, name="booked"):
    OPEN = State("open", initial=True)
    DONE = State("done")
    table = (From(OPEN).To(DONE, metadata=Booking),)
    asked: ClassVar[list[Any]] = []

    @guard()
    def in_euros(about: Any, last: Any, metadata: Any) -> bool:
        Booked.asked.append(dict(metadata))
        return metadata.get("currency") == "EUR" and metadata.get("sum", 0) < 100


def test_guards_are_given_what_the_model_makes_of_what_is_said(place: Any, key: str) -> None:
    """With its defaults and in its types; before, they saw what was said, and asked in vain for the rest."""
    Booked.asked.clear()
    booked = Booked(place, key)
    assert booked.can_transition_to("done", {"sum": "7.50"})
    assert not booked.can_transition_to("done", {"sum": "750"})
    move = booked.move("done", sum="7.50")
    assert move.metadata == {"sum": "7.50", "currency": "EUR"}
    assert Booked.asked == [{"sum": Decimal(sum), "currency": "EUR"} for sum in ("7.50", "750", "7.50")]


def test_what_does_not_fit_is_refused_before_guards_are_asked(place: Any, key: str) -> None:
    Booked.asked.clear()
    booked = Booked(place, key)
    for wrong in ({"sum": "much"}, {}):
        with pytest.raises(BadMetadata, match="does not fit Booking: sum: "):
            booked.try_move("done", **wrong)
    assert Booked.asked == []


def test_a_question_need_not_say_all(place: Any, key: str) -> None:
    """Whether the object may go there at all: guards are given as much as is said."""
    Booked.asked.clear()
    booked = Booked(place, key)
    assert booked.can_transition_to("done", {"currency": "EUR"})
    assert booked.allowed_transitions() == ()
    assert Booked.asked == [{"currency": "EUR"}, {}]
