"""Definitions: what is accepted, and what is refused in which words (spec S2-20 to S2-27)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from enum import Enum, StrEnum
from typing import Any

import pytest

from ledger import (
    BadDefinition,
    InvalidCallback,
    InvalidState,
    InvalidTransition,
    StateConstantConflict,
)
from ledger.machines import From, Machine, State
from ledger.machines.definition import Kind
from tests.machines.payments import Payment, Submission


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class OldColour(str, Enum):  # noqa: UP042  (as it was written before Python 3.11)
    RED = "red"
    BLUE = "blue"


def never(*_: Any) -> bool:
    return False


def letters() -> type[Machine]:
    """x → y → z, a machine of the test's own."""

    class Letters(Machine, name="letters"):
        pass

    Letters.state("x", initial=True)
    Letters.state("y")
    Letters.state("z")
    Letters.transition("x", "y")
    Letters.transition("y", ["z"])
    return Letters


# States (S2-20)


def test_states_are_kept_in_order_and_one_is_initial() -> None:
    made = letters()
    assert (made.states, made.initial_state) == (("x", "y", "z"), "x")
    made.state("x", initial=True)
    assert made.states == ("x", "y", "z")


def test_a_second_initial_state_is_refused() -> None:
    made = letters()
    with pytest.raises(InvalidState, match=r"^Cannot set initial state to 'y', already defined as x\.$"):
        made.state("y", initial=True)
    assert made.initial_state == "x"


def test_each_state_is_a_constant() -> None:
    made = letters()
    made.state("needs-work: 2")
    made.state("2nd")
    made.state("später")
    constants = {name: value for name, value in vars(made).items() if isinstance(value, State)}
    assert constants == {"X": "x", "Y": "y", "Z": "z", "NEEDS_WORK__2": "needs-work: 2", "SPÄTER": "später"}
    made.state("needs-work: 2")


def test_two_states_of_one_constant_are_refused() -> None:
    made = letters()
    made.state("a-b")
    with pytest.raises(
        StateConstantConflict, match=r"^state 'a_b' needs the constant A_B, which 'a-b' has already$"
    ):
        made.state("a_b")
    assert made.states == ("x", "y", "z", "a-b")


def test_a_constant_of_the_users_is_no_state() -> None:
    with pytest.raises(StateConstantConflict, match="the constant TIMEOUT, which 30 has already"):

        class Slow(Machine):
            TIMEOUT = 30
            LATE = State("timeout")


def test_a_constant_may_have_another_name_than_its_state() -> None:
    assert (Payment.PENDING, Payment.PENDING_SUBMISSION) == ("pending_submission", "pending_submission")
    with pytest.raises(StateConstantConflict, match="'paid' needs the constant PAID, which 'settled' has"):

        class Other(Payment):
            PAID = State("settled")


@pytest.mark.parametrize("name", ["", " ", "a\nb", "\x00", None, 5, b"x", ["x"], "x" * 201])
def test_a_bad_name_of_a_state_is_refused(name: Any) -> None:
    made = letters()
    with pytest.raises(InvalidState, match=r"^Invalid state .*: it must be printable text"):
        made.state(name)
    with pytest.raises(InvalidState):
        State(name)


@pytest.mark.parametrize("colours", [Colour, OldColour])
def test_members_of_an_enumeration_are_states(colours: Any) -> None:
    class Lamp(Machine, name="coloured"):
        pass

    Lamp.state(colours.RED, initial=True)
    Lamp.state(colours.BLUE)
    Lamp.transition(colours.RED, [colours.BLUE])
    assert (Lamp.states, dict(Lamp.successors)) == (("red", "blue"), {"red": ("blue",)})
    lamp = Lamp(None, 1)
    assert lamp.in_state(colours.RED, [colours.BLUE])
    moved = lamp.move(colours.BLUE)
    assert (type(moved.from_state), moved.from_state, moved.to_state) == (str, "red", "blue")


# Transitions (S2-21, S2-22)


def test_transitions_accumulate() -> None:
    made = letters()
    made.transition("x", ["z", "y"])
    made.transition("z", "z")
    assert dict(made.successors) == {"x": ("y", "z"), "y": ("z",), "z": ("z",)}


@pytest.mark.parametrize("nothing", [(), [], None])
def test_a_transition_to_nothing_is_refused(nothing: Any) -> None:
    with pytest.raises(InvalidState, match=r"^No to states provided\.$"):
        letters().transition("x", nothing)
    with pytest.raises(InvalidState, match=r"^No to states provided\.$"):
        From("x").To()
    with pytest.raises(InvalidState, match=r"^No from states provided\.$"):
        From()


@pytest.mark.parametrize(("start", "end"), [("nope", "x"), ("x", "nope"), (None, "x"), ("x", ["y", "nope"])])
def test_a_transition_of_an_unknown_state_is_refused(start: Any, end: Any) -> None:
    made = letters()
    before = made.definition
    with pytest.raises(InvalidState, match=r"^Invalid state ('nope'|None); the states are x, y, z$"):
        made.transition(start, end)
    assert made.definition is before


@pytest.mark.parametrize(
    ("parts", "wrong"),
    [
        ({"metadata": dict}, "must be a pydantic model"),
        ({"metadata": "Submission"}, "must be a pydantic model"),
        ({"after": 5}, "must be a timedelta above 0"),
        ({"after": timedelta(0)}, "must be a timedelta above 0"),
    ],
)
def test_what_cannot_be_meant_by_a_transition_is_refused(parts: dict[str, Any], wrong: str) -> None:
    with pytest.raises(InvalidTransition, match=wrong):
        letters().transition("x", "z", **parts)


@pytest.mark.parametrize(
    ("less", "left"),
    [
        ({"from_": "x"}, {"y": ("z",)}),
        ({"to": "z"}, {"x": ("y",)}),
        ({"to": ["y", "z"]}, {}),
        ({"from_": "x", "to": "z"}, {"x": ("y",), "y": ("z",)}),
        ({"from_": "x", "to": ["y", "z"]}, {"y": ("z",)}),
    ],
)
def test_transitions_are_removed(less: dict[str, Any], left: dict[str, Any]) -> None:
    made = letters()
    made.transition("x", "z")
    made.remove_transitions(**less)
    assert dict(made.successors) == left


def test_removing_no_transitions_is_refused() -> None:
    with pytest.raises(InvalidTransition, match="give from_state or to_states"):
        letters().remove_transitions()
    with pytest.raises(InvalidState, match=r"^Invalid state 'nope'"):
        letters().remove_transitions(to="nope")


# Removing a state (S2-23)


def test_a_state_is_removed_with_all_that_was_only_for_it() -> None:
    made = letters()
    made.transition("x", "z")
    made.guard_transition(to="y")(never)
    made.guard_transition(from_="y")(never)
    made.guard_transition("x", ["y", "z"])(never)
    made.guard_transition()(never)
    made.remove_state("y")
    assert (made.states, dict(made.successors)) == (("x", "z"), {"x": ("z",)})
    assert [(one.kind, one.from_state, one.to_states) for one in made.callbacks] == [
        (Kind.GUARD, "x", ("z",)),
        (Kind.GUARD, None, ()),
    ]
    with pytest.raises(InvalidState, match=r"^Invalid state 'y'; the states are x, z$"):
        made.remove_state("y")


# Callbacks (S2-24 to S2-27)

WAYS: list[tuple[Callable[[type[Machine]], Callable[..., Any]], Kind]] = [
    (lambda made: made.guard_transition, Kind.GUARD),
    (lambda made: made.before_transition, Kind.BEFORE),
    (lambda made: made.after_transition, Kind.AFTER),
    (lambda made: made.after_transition_failure, Kind.TRANSITION_FAILURE),
    (lambda made: made.after_guard_failure, Kind.GUARD_FAILURE),
]


@pytest.mark.parametrize(("way", "kind"), WAYS)
def test_callbacks_are_registered_with_their_conditions(way: Any, kind: Kind) -> None:
    made = letters()
    assert way(made)("x", ["y"])(never) is never
    way(made)(to="z")(never)
    assert [(one.kind, one.function, one.from_state, one.to_states) for one in made.callbacks] == [
        (kind, never, "x", ("y",)),
        (kind, never, None, ("z",)),
    ]


def test_after_transition_is_also_for_after_the_commit() -> None:
    made = letters()
    made.after_transition(to="y", after_commit=True)(never)
    assert [one.kind for one in made.callbacks] == [Kind.AFTER_COMMIT]


@pytest.mark.parametrize(("way", "kind"), WAYS)
def test_no_callback_is_refused(way: Any, kind: Kind) -> None:
    made = letters()
    for nothing in (None, 5, "guard"):
        with pytest.raises(InvalidCallback, match=r"^No callback passed$"):
            way(made)(to="y")(nothing)
    assert made.callbacks == ()


@pytest.mark.parametrize(
    ("condition", "kind", "said"),
    [
        ({"to": "nope"}, InvalidState, "Invalid state 'nope'; the states are x, y, z"),
        ({"from_": "nope"}, InvalidState, "Invalid state 'nope'; the states are x, y, z"),
        ({"from_": "z"}, InvalidTransition, "Cannot transition away from terminal state 'z'"),
        ({"to": "x"}, InvalidTransition, "Cannot transition to initial state 'x'"),
        ({"from_": "x", "to": "z"}, InvalidTransition, "Cannot transition from 'x' to 'z'"),
        ({"from_": "x", "to": ["y", "z"]}, InvalidTransition, "Cannot transition from 'x' to 'z'"),
    ],
)
@pytest.mark.parametrize(("way", "_kind"), WAYS)
def test_a_condition_that_never_holds_is_refused(
    way: Any, _kind: Kind, condition: dict[str, Any], kind: type[BadDefinition], said: str
) -> None:
    made = letters()
    with pytest.raises(kind) as refused:
        way(made)(**condition)(never)
    assert (type(refused.value), str(refused.value)) == (kind, said)
    assert made.callbacks == ()


@pytest.mark.parametrize(
    ("condition", "moves"),
    [
        ({}, {"xy", "xz", "yz"}),
        ({"to": "z"}, {"xz", "yz"}),
        ({"to": ["y", "z"]}, {"xy", "xz", "yz"}),
        ({"from_": "x"}, {"xy", "xz"}),
        ({"from_": "x", "to": "z"}, {"xz"}),
    ],
)
def test_a_callback_is_called_on_the_moves_that_it_is_for(condition: dict[str, Any], moves: set[str]) -> None:
    made = letters()
    made.transition("x", "z")
    made.guard_transition(**condition)(never)
    for start, ends in made.successors.items():
        for end in ends:
            asked = made.definition.called(Kind.GUARD, start, end)
            assert bool(asked) == (start + end in moves)


def test_the_payment_of_the_article_is_its_table() -> None:
    assert dict(Payment.successors) == {
        "pending_submission": ("submitted", "cancelled"),
        "submitted": ("cancelled", "paid"),
    }
    edge = Payment.definition.edge("pending_submission", "submitted")
    assert edge is not None
    assert edge.metadata is Submission
    assert [one.name for one in Payment.callbacks] == ["is_not_refused"]
