"""States as members of an enumeration, wherever a state is said; and objects in a state that is gone."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, StrEnum
from typing import Any

import pytest

from ledger import GuardRefused, InvalidState, InvalidTransition, Ledger, TransitionFailed
from ledger.domain.known import KNOWN
from ledger.machines import (
    From,
    Machine,
    PastMove,
    State,
    after,
    after_commit,
    before,
    guard,
    guard_failure,
    replay,
    transition_failure,
)
from projections.shipped import load


class Word(StrEnum):
    A = "a"
    B = "b"
    C = "c"


class Plain(Enum):
    A = "a"
    B = "b"
    C = "c"


@pytest.fixture(autouse=True)
def machines() -> Iterator[None]:
    load()  # what is imported meanwhile would be forgotten, and is imported once only
    before_ = dict(KNOWN.machines)
    yield
    KNOWN.machines.clear()
    KNOWN.machines.update(before_)


@pytest.fixture(params=[Word, Plain], ids=["StrEnum", "Enum"])
def word(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_members_are_states_in_every_declaration(word: Any) -> None:
    class Spelt(Machine, name="spelt"):
        pass

    Spelt.state(word.A, initial=True)
    Spelt.state(word.B)
    Spelt.state(word.C)
    Spelt.transition(word.A, word.B)
    Spelt.transition(word.B, [word.A, word.C])
    Spelt.transition(word.C, word.A)
    Spelt.guard_transition(word.A, word.B)(lambda *_: True)
    for declare in (Spelt.before_transition, Spelt.after_transition, Spelt.after_guard_failure):
        declare(from_=word.B, to=[word.C])(lambda *_: None)
    Spelt.after_transition_failure(to=word.C)(lambda *_: None)
    assert {type(one) for call in Spelt.callbacks for one in (call.from_state, *call.to_states)} <= {
        str,
        type(None),
    }
    assert Spelt.successors == {"a": ("b",), "b": ("a", "c"), "c": ("a",)}
    Spelt.remove_transitions(word.B, word.A)
    assert Spelt.successors["b"] == ("c",)
    Spelt.remove_transitions(to=[word.A])
    assert "c" not in Spelt.successors
    Spelt.remove_state(word.C)
    assert (Spelt.states, Spelt.successors) == (("a", "b"), {"a": ("b",)})
    assert [call.to_states for call in Spelt.callbacks] == [("b",)]
    with pytest.raises(InvalidState, match="Invalid state 'c'"):
        Spelt.remove_state(word.C)
    with pytest.raises(InvalidTransition, match="Cannot transition to initial state 'a'"):
        Spelt.guard_transition(to=word.A)(lambda *_: True)


def test_members_are_states_in_every_mark_and_question(word: Any, place: Any, key: str) -> None:
    called: list[str] = []

    class Marked(Machine, name="marked"):
        A, B, C = State(word.A, initial=True), State(word.B), State(word.C)
        table = (From(word.A).To(word.B, word.C), From(word.B).To(word.A))

        @guard(to=word.C)
        def never(*_: Any) -> bool:
            return False

        @guard(From(word.A).To(word.B))
        def always(*_: Any) -> bool:
            return called.append("guard") is None

        @before(from_=word.A, to=[word.B])
        def one(*_: Any) -> None:
            called.append("before")

        @after(to=(word.B,))
        @staticmethod
        def two(*_: Any) -> None:
            called.append("after")

        @after_commit(from_=word.A)
        def three(*_: Any) -> None:
            called.append("after_commit")

        @transition_failure(to=word.B)
        def four(*_: Any) -> None:
            called.append("failure")

        @guard_failure(to=word.C)
        def five(*_: Any) -> None:
            called.append("refused")

    marked = Marked(place, key)
    assert (marked.can_transition_to(word.B), marked.can_transition_to(word.C)) == (True, False)
    with pytest.raises(GuardRefused):
        marked.move(word.C)
    assert marked.transition_to(word.B).execute().to_state == "b"
    assert not marked.try_move(word.B)
    assert marked.in_state(word.B, word.C)
    assert marked.last_transition_to(word.B) is not None
    last = [] if place is not None and not isinstance(place, Ledger) else ["after", "after_commit"]
    assert called == ["guard", "refused", "guard", "before", *last, "failure"]


def test_members_are_states_of_what_is_replayed(word: Any, shared: Ledger, key: str) -> None:
    class Replayed(Machine, name="replayed_words"):
        A, B = State("a", initial=True), State("b")
        table = (From(A).To(B),)

    done = replay(Replayed, shared, [(key, [PastMove(word.A), PastMove(word.B)])])
    assert (done.moves, done.refused) == (2, [])


# A state that is gone


def test_an_object_in_a_state_that_is_gone_is_told_so_and_how_it_gets_out(place: Any, key: str) -> None:
    class Lost(Machine, name="lost_things"):
        HERE, AWAY, LOST = State("here", initial=True), State("away"), State("lost")
        table = (From(HERE).To(AWAY, LOST), From(AWAY).To(HERE))

    thing = Lost(place, key)
    thing.move("lost")
    Lost.remove_state("lost")
    assert (thing.current_state(), thing.allowed_transitions()) == ("lost", ())
    with pytest.raises(TransitionFailed) as caught:
        thing.move("here")
    assert str(caught.value) == (
        "lost_things: Cannot transition from 'lost' to 'here': the definition no longer has the state "
        "'lost'; "
        "declare it with a transition out, such as From('lost').To('here')"
    )
    assert not thing.try_move("away")
    Lost.state("lost")
    Lost.transition("lost", "here")
    assert thing.move("here").from_state == "lost"
