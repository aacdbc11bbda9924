"""Machines as classes: the table in the body, marked functions, what a subclass inherits and replaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ledger import BadDefinition, InvalidCallback, InvalidState, InvalidTransition
from ledger.machines import (
    From,
    Machine,
    State,
    after,
    after_commit,
    before,
    guard,
    guard_failure,
    transition_failure,
)
from ledger.machines.definition import Kind

Marks = list[tuple[Kind, str, str | None, tuple[str, ...]]]


def marks(machine: type[Machine]) -> Marks:
    return [(one.kind, one.name, one.from_state, one.to_states) for one in machine.callbacks]


def yes(*_: Any) -> bool:
    return True


class Door(Machine, name="door"):
    """shut → open → shut, and locked in between."""

    SHUT = State("shut", initial=True)
    OPEN = State("open")
    LOCKED = State("locked")

    table = (
        From(SHUT, LOCKED).To(SHUT, LOCKED),
        From(SHUT).To(OPEN),
        From(OPEN).To(SHUT),
    )

    @guard(to=LOCKED)
    def has_key(door: Any, last: Any, metadata: Any) -> bool:
        return bool(metadata.get("key"))


def test_the_body_reads_as_the_table() -> None:
    assert (Door.states, Door.initial_state) == (("shut", "open", "locked"), "shut")
    assert dict(Door.successors) == {
        "shut": ("shut", "locked", "open"),
        "open": ("shut",),
        "locked": ("shut", "locked"),
    }


def test_one_line_alone_is_a_table() -> None:
    class Once(Machine):
        A = State("a", initial=True)
        B = State("b")
        table = From(A).To(B)

    assert dict(Once.successors) == {"a": ("b",)}


@pytest.mark.parametrize("line", ["a", None, ("a", "b"), From("a"), {"a": "b"}, 5])
def test_a_line_that_is_no_transition_is_refused(line: Any) -> None:
    with pytest.raises(InvalidState, match=r"^a line of the table must be From\(…\)\.To\(…\), not "):

        class Odd(Machine):
            A = State("a", initial=True)
            table = (line,)


def test_functions_are_marked_in_the_body() -> None:
    class Marked(Door):
        g = guard(to="open")(yes)
        b = before(From("shut").To("open", "locked"))(yes)
        a = after(from_="shut")(yes)
        c = after_commit(to=["open", "locked"])(yes)
        f = transition_failure()(yes)
        r = guard_failure(from_="shut", to="open")(yes)

    assert marks(Marked)[1:] == [
        (Kind.GUARD, "g", None, ("open",)),
        (Kind.BEFORE, "b", "shut", ("open",)),
        (Kind.BEFORE, "b", "shut", ("locked",)),
        (Kind.AFTER, "a", "shut", ()),
        (Kind.AFTER_COMMIT, "c", None, ("open", "locked")),
        (Kind.TRANSITION_FAILURE, "f", None, ()),
        (Kind.GUARD_FAILURE, "r", "shut", ("open",)),
    ]
    assert Marked.g is yes


def test_a_marked_function_stays_a_function() -> None:
    assert Door.has_key(None, None, {"key": 1}) is True
    assert Door(None, 1).has_key(None, None, {}) is False


def test_a_static_method_may_be_marked_inside_or_outside() -> None:
    class Stuck(Door, name="stuck"):
        @guard(to="open")
        @staticmethod
        def inside(*_: Any) -> bool:
            return False

        @staticmethod
        @guard(to="locked")
        def outside(*_: Any) -> bool:
            return False

    stuck = Stuck(None, 1)
    assert (stuck.try_move("open"), stuck.try_move("locked", key=1)) == (False, False)


@pytest.mark.parametrize("mark", [guard, before, after, after_commit, transition_failure, guard_failure])
def test_a_mark_without_parentheses_is_refused(mark: Callable[..., Any]) -> None:
    with pytest.raises(InvalidCallback, match=r"^write @\w+\(…\) with parentheses"):
        mark(yes)


def test_moves_of_a_mark_are_said_in_one_way() -> None:
    class Lines(Door):
        asked = guard([From("shut").To("open"), From("open").To("shut")])(yes)

    assert marks(Lines)[1:] == [
        (Kind.GUARD, "asked", "shut", ("open",)),
        (Kind.GUARD, "asked", "open", ("shut",)),
    ]
    with pytest.raises(InvalidCallback, match="or by from_ and to, not both"):
        guard(From("shut").To("open"), to="locked")
    state: Any = "open"
    with pytest.raises(InvalidState, match=r"must be From\(…\)\.To\(…\), not 'open'"):
        guard(state)


def test_what_could_not_be_called_is_refused() -> None:
    async def later(about: Any, last: Any, metadata: Any) -> bool:
        return False

    def with_self(self: Any, about: Any, last: Any, metadata: Any) -> bool:
        return False

    with pytest.raises(InvalidCallback, match=r"^later is async and would never be awaited"):
        Door.guard_transition(to="open")(later)
    with pytest.raises(InvalidCallback, match=r"^with_self is called with \(object, last tr"):
        Door.guard_transition(to="open")(with_self)
    with pytest.raises(InvalidCallback, match=r"^<lambda> is called with"):
        Door.after_transition()(lambda about: None)
    assert [one.name for one in Door.callbacks] == ["has_key"]


def test_a_function_is_marked_once() -> None:
    with pytest.raises(InvalidCallback, match="give all its moves to one mark"):
        guard(to="open")(guard(to="shut")(yes))


def test_no_function_is_refused() -> None:
    nothing: Any = None
    with pytest.raises(InvalidCallback, match=r"^No callback passed$"):

        class Odd(Door):
            silent = guard()(nothing)


@pytest.mark.parametrize(
    ("condition", "kind", "said"),
    [
        ({"to": "ajar"}, InvalidState, "Invalid state 'ajar'; the states are shut, open, locked"),
        ({"from_": "open", "to": "locked"}, InvalidTransition, "Cannot transition from 'open' to 'locked'"),
        ({"on": From("open").To("locked")}, InvalidTransition, "Cannot transition from 'open' to 'locked'"),
    ],
)
def test_a_mark_that_never_holds_is_refused(condition: Any, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind) as refused:

        class Odd(Door):
            asked = guard(**condition)(yes)

    assert str(refused.value) == said


@pytest.mark.parametrize("name", ["history", "move", "state", "name", "table", "run"])
def test_a_name_that_every_machine_needs_is_refused(name: str) -> None:
    for value in (State("odd"), guard()(yes)):
        with pytest.raises(BadDefinition, match=f"^every machine has a part named {name}"):
            type("Odd", (Door,), {name: value})


# Inheriting (W2-04)


def test_a_subclass_begins_with_all_of_its_parent_and_changes_nothing_of_it() -> None:
    known = Door.definition

    class Gate(Door, name="gate"):
        AJAR = State("ajar")
        table = (From(Door.SHUT).To(AJAR, "open"),)

        @guard(to=AJAR)
        def wind(gate: Any, last: Any, metadata: Any) -> bool:
            return True

    Gate.state("gone")
    Gate.transition("ajar", "gone")
    Gate.remove_state("locked")
    assert (Gate.states, Gate.initial_state) == (("shut", "open", "ajar", "gone"), "shut")
    assert dict(Gate.successors) == {"shut": ("shut", "open", "ajar"), "open": ("shut",), "ajar": ("gone",)}
    assert [one.name for one in Gate.callbacks] == ["wind"]
    assert Door.definition is known
    assert not hasattr(Door, "AJAR")
    assert Gate(None, 1).stream == "gate/1"


def test_a_parent_that_changes_later_changes_no_subclass() -> None:
    class Parent(Door, name="parent"):
        pass

    class Child(Parent, name="child"):
        pass

    Parent.state("gone")
    assert "gone" not in Child.states


def test_a_method_of_the_same_name_takes_the_place_of_the_parents() -> None:
    class Bank(Door):
        @guard(to="open")
        def has_key(door: Any, last: Any, metadata: Any) -> bool:
            return True

    class Barn(Door):
        has_key = guard(to="locked")(lambda door, last, metadata: True)

    class Hut(Barn):
        has_key = None

    assert marks(Bank) == [(Kind.GUARD, "has_key", None, ("open",))]
    assert marks(Barn) == [(Kind.GUARD, "has_key", None, ("locked",))]
    assert marks(Hut) == []
    assert marks(Door) == [(Kind.GUARD, "has_key", None, ("locked",))]


def test_functions_of_a_mixin_are_asked_too() -> None:
    class Guarded:
        @guard()
        def nobody(*_: Any) -> bool:
            return False

    class Vault(Guarded, Door, name="vault"):
        pass

    class Safe(Vault, name="safe"):
        @guard(to="open")
        def nobody(*_: Any) -> bool:
            return True

    assert Vault(None, 1).try_move("open") is False
    assert Safe(None, 1).try_move("open") is True
    assert [one.name for one in Safe.callbacks] == ["has_key", "nobody"]


def test_two_machines_as_parents_are_refused() -> None:
    class Window(Machine):
        UP = State("up", initial=True)

    with pytest.raises(BadDefinition, match="Hatch has 2 machines as parents: it can have one"):

        class Hatch(Door, Window):
            pass


def test_a_machine_of_a_subclass_without_a_name_is_no_other_machine_of_the_parents() -> None:
    class Nameless(Door):
        pass

    assert (Nameless.name, Door.name) == ("", "door")


def test_two_machines_of_one_object_are_apart() -> None:
    class Alarm(Machine, name="alarm"):
        OFF = State("off", initial=True)
        ON = State("on")
        table = (From(OFF).To(ON),)

    door, alarm = Door(None, "front"), Alarm(None, "front")
    alarm.move("on")
    assert (door.current_state(), alarm.current_state()) == ("shut", "on")
    assert (door.stream, alarm.stream) == ("door/front", "alarm/front")
