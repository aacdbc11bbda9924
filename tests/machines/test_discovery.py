"""A machine found in histories: what it allows, what it refuses as rare, and that it can be a class."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import BadInput, GuardRefused, InvalidState, TransitionFailed
from ledger.machines import Definition, From, Machine, State, discover, guard

STATES = st.sampled_from(["a", "b", "c", "é", "Wait - User", "Done"])
HISTORIES = st.lists(st.lists(STATES, max_size=8), max_size=12)


def refused(definition: Definition, history: list[str]) -> list[str]:
    """The states of a history that the table does not let come: read from the table alone."""
    now, wrong = None, []
    for state in history:
        begins = now is None and state == definition.initial_state
        if begins or (now or definition.initial_state, state) in pairs(definition):
            now = state
        else:
            wrong.append(state)
    return wrong


def pairs(definition: Definition) -> set[tuple[str, str]]:
    return {(edge.from_state, edge.to_state) for edge in definition.edges}


# Laws


@given(HISTORIES, st.none() | STATES | st.just("new"))
@settings(max_examples=80, deadline=None)
def test_every_history_that_it_was_made_from_is_legal(
    histories: list[list[str]], initial: str | None
) -> None:
    definition = discover(histories, initial=initial)
    assert [refused(definition, history) for history in histories] == [[] for _ in histories]


@given(HISTORIES, st.none() | STATES | st.just("new"), st.integers(1, 5), st.floats(0, 1))
@settings(max_examples=80, deadline=None)
def test_a_transition_is_there_as_often_as_was_asked_for(
    histories: list[list[str]], initial: str | None, at_least: int, share: float
) -> None:
    definition = discover(histories, initial=initial, at_least=at_least, share=share)
    whole = [history for history in histories if history]
    if not whole:
        assert definition == (
            Definition() if initial is None else Definition().with_state(initial, initial=True)
        )
        return
    first = definition.initial_state
    assert first is not None
    walks = [history if history[0] == first else [first, *history] for history in whole]
    counted = Counter(pair for walk in walks for pair in set(pairwise(walk)))
    least = max(at_least, share * len(whole))
    assert pairs(definition) == {pair for pair, n in counted.items() if n >= least}
    assert set(definition.states) == {state for history in whole for state in history} | {first}


@given(HISTORIES, st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_asking_for_more_allows_less(histories: list[list[str]], at_least: int) -> None:
    more, less = (discover(histories, at_least=n) for n in (at_least, at_least + 1))
    assert pairs(less) <= pairs(more)
    assert (less.states, less.initial_state) == (more.states, more.initial_state)


# Examples


def test_states_stand_in_the_order_of_their_first_appearance_and_the_commonest_first_is_initial() -> None:
    found = discover([["queued", "open"], ["open", "done"], ["open", "queued", "done"]])
    assert found.states == ("queued", "open", "done")
    assert found.initial_state == "open"
    assert found.successors == {"queued": ("open", "done"), "open": ("queued", "done")}


def test_of_equally_common_first_states_the_first_is_initial() -> None:
    assert discover([["b"], ["a"]]).initial_state == "b"


def test_a_state_of_its_own_to_begin_in() -> None:
    found = discover([["open", "done"], ["queued"]], initial="reported")
    assert found.states == ("reported", "open", "done", "queued")
    assert found.successors == {"reported": ("open", "queued"), "open": ("done",)}


def test_a_rare_move_is_refused_and_its_state_is_still_known() -> None:
    usual = ["open", "done"]
    found = discover([usual, usual, ["open", "cancelled"]], at_least=2)
    assert refused(found, usual) == []
    assert refused(found, ["open", "cancelled"]) == ["cancelled"]
    assert "cancelled" in found.states


def test_a_history_that_goes_twice_the_same_way_counts_once() -> None:
    assert discover([["a", "b", "a", "b"]], at_least=2).edges == ()


def test_a_share_is_of_the_histories_that_say_anything() -> None:
    histories = [["a", "b"], ["a", "b"], ["a", "c"], [], []]
    assert pairs(discover(histories, share=0.5)) == {("a", "b")}
    assert pairs(discover(iter(histories), share=0.5)) == {("a", "b")}, "one pass is enough"


@pytest.mark.parametrize("wrong", [{"at_least": 0}, {"at_least": 0.5}, {"at_least": True}, {"share": 1.5}])
def test_what_cannot_be_meant_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=f"{next(iter(wrong))} .* must be"):
        discover([["a", "b"]], **wrong)


def test_one_history_in_the_place_of_many_is_refused() -> None:
    with pytest.raises(BadInput, match="not the text 'open'"):
        discover(["open", "done"])


def test_what_cannot_be_a_state_is_refused() -> None:
    with pytest.raises(InvalidState):
        discover([["a", ""]])


# As a class


class Found(Machine, name="found"):
    """A machine whose table was found, with a guard of its own."""

    definition = discover([["open", "wait - user", "done"], ["open", "done"]])

    @guard(to="done")
    def is_answered(found: Any, last: Any, metadata: Any) -> bool:
        """Somebody said what was done."""
        return bool(metadata.get("answer"))


class Reopened(Found, name="found.reopened"):
    """One that may be opened again, and given up."""

    LOST = State("lost")
    table = (From("done").To("open"), From("open").To(LOST))


class Both(Machine, name="found.both"):
    """What was found, and a line of one's own, in one body."""

    definition = discover([["open", "done"]])
    table = (From("done").To("open"),)


def test_a_definition_in_the_body_of_a_class_is_its_table() -> None:
    one = Found(None, 1)
    assert (one.current_state(), Found.WAIT___USER, Found.OPEN.initial) == ("open", "wait - user", True)
    with pytest.raises(GuardRefused):
        one.move("done")
    one.move("wait - user")
    one.move("done", answer="42")
    with pytest.raises(TransitionFailed):
        one.move("open")


def test_a_subclass_has_what_was_found_and_more() -> None:
    one = Reopened(None, 1)
    one.move("done", answer="42")
    one.move("open")
    one.move("lost")
    assert "done" not in Found.successors
    assert "lost" not in Found.states


def test_a_table_beside_a_definition_adds_to_it() -> None:
    assert Both.successors == {"open": ("done",), "done": ("open",)}


def test_a_definition_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidState, match="definition must be a Definition"):
        type("Odd", (Machine,), {"definition": {"a": ["b"]}})
