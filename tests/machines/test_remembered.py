"""What a machine remembers, begins with, calls and tries again (spec S2-30, S2-31, S2-40 to S2-47)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import psycopg
import pytest
from psycopg import errors as pg

from ledger import BadInput, Ledger, MoveNotAllowed, TransitionConflict, retry_conflicts
from ledger.machines import From, Machine, State, after, after_commit, before, guard

Connection = psycopg.Connection[Any]


class Step(Machine, name="step"):
    """a → b → a."""

    A = State("a", initial=True)
    B = State("b")
    table = (From(A).To(B), From(B).To(A))


class Overtaken(Step, name="overtaken"):
    """Its guard lets somebody else move the object first, as often as the object says."""

    @staticmethod
    def key_of(about: Any) -> Any:
        return about[1]

    @before()
    def is_called(about: Any, move: Any) -> None:
        """Where something is called, each move asks first where the object stands."""

    @guard(to="b")
    def overtakes(about: Any, *_: Any) -> bool:
        log, key, times = about
        if times:
            times.pop()
            Overtaken(log, (log, key, [])).move("b")
            Overtaken(log, (log, key, [])).move("a")
        return True


# Beginning (S2-30, S2-31)


def test_what_is_to_be_done_at_the_beginning_is_called_last(place: Any, key: str) -> None:
    class Hooked(Step, name="hooked"):
        def after_initialize(self) -> None:
            self.seen = self.current_state(), len(self.history())

    assert Hooked(place, key).seen == ("a", 0)
    assert Hooked(None, key, initial_transition=True).seen == ("a", 1)


def test_the_beginning_can_be_recorded_once(place: Any, key: str) -> None:
    called: list[tuple[str | None, str]] = []

    class Begun(Step, name="begun"):
        @after()
        def note(about: Any, move: Any) -> None:
            called.append((move.from_state, move.to_state))

    begun = Begun(place, key, initial_transition=True)
    assert [(one.from_state, one.to_state, one.number) for one in begun.history()] == [(None, "a", 1)]
    begun.move("b")
    if place is not None:
        again = Begun(place, key, initial_transition=True)
        assert [one.to_state for one in again.history()] == ["a", "b"]
    if place is None or isinstance(place, Ledger):
        assert called == [(None, "a"), ("a", "b")]


def test_of_many_that_begin_at_once_one_is_recorded(shared: Ledger, key: str) -> None:
    with ThreadPoolExecutor(6) as pool:
        begun = list(pool.map(lambda _: Step(shared, key, initial_transition=True).current_state(), range(6)))
    assert begun == ["a"] * 6
    assert [one.from_state for one in Step(shared, key).history()] == [None]


def test_a_beginning_that_is_not_declared_is_not_recorded(place: Any, key: str) -> None:
    class Unbegun(Machine, name="unbegun"):
        A = State("a")
        B = State("b")
        table = (From(A).To(B),)

    unbegun = Unbegun(place, key, initial_transition=True)
    assert (unbegun.current_state(), unbegun.history(), unbegun.allowed_transitions()) == (None, [], ())
    with pytest.raises(MoveNotAllowed, match="Cannot transition from nothing to 'a'"):
        unbegun.move("a")


def test_a_conflict_of_another_object_does_not_pass_as_a_beginning(shared: Ledger, key: str) -> None:
    class Torn(Step, name="torn"):
        @before()
        def tears(about: Any, move: Any) -> None:
            raise TransitionConflict("other/1", "version 1", 2, "b")

    with pytest.raises(TransitionConflict, match=r"^other/1: "):
        Torn(shared, key, initial_transition=True)
    assert Torn(shared, key).history() == []


# Order (S2-40 to S2-43)


def test_what_is_called_is_called_in_order(shared: Ledger, key: str) -> None:
    seen: list[tuple[str, int]] = []

    def look(what: str, move: Any = None) -> None:
        with (
            shared.reader()
            if move is None or move.connection is None
            else nullcontext(move.connection) as there
        ):
            rows = there.execute("SELECT count(*) FROM ledger.events WHERE stream = %s", [f"watched/{key}"])
            seen.append((what, rows.fetchone()[0]))

    class Watched(Step, name="watched"):
        @after_commit()
        def c(about: Any, move: Any) -> None:
            assert move.connection is None
            look("after commit", move)

        @after()
        def a(about: Any, move: Any) -> None:
            look("after", move)
            look("after, from outside")

        @before()
        def b(about: Any, move: Any) -> None:
            look("before", move)

        @guard()
        def g(*_: Any) -> bool:
            return look("guard") is None

    Watched(shared, key).move("b")
    assert seen == [
        ("guard", 0),
        ("before", 0),
        ("after", 1),
        ("after, from outside", 0),
        ("after commit", 1),
    ]


@pytest.mark.parametrize("mark", [before, after])
def test_an_error_on_the_way_undoes_the_move(place: Any, key: str, mark: Any) -> None:
    if place is not None and not isinstance(place, Ledger):
        mark = before  # in a transaction, what comes after is called at the end of the block
    wrong = [True]

    class Erring(Step, name="erring"):
        @mark()
        def err(about: Any, move: Any) -> None:
            if wrong:
                raise ZeroDivisionError

    erring = Erring(place, key)
    with pytest.raises(ZeroDivisionError):
        erring.try_move("b")
    assert (erring.current_state(), erring.history()) == ("a", [])
    wrong.clear()
    assert erring.move("b").number == 1


def test_an_error_after_the_commit_leaves_the_move(shared: Ledger, key: str) -> None:
    class Late(Step, name="late"):
        @after_commit()
        def err(about: Any, move: Any) -> None:
            raise ZeroDivisionError

    late = Late(shared, key)
    with pytest.raises(ZeroDivisionError):
        late.move("b")
    assert late.current_state() == "b"


def test_a_uniqueness_error_of_a_callback_passes_unchanged(shared: Ledger, key: str) -> None:
    class Unique(Step, name="unique_rows"):
        @before()
        def twice(about: Any, move: Any) -> None:
            move.connection.execute("CREATE TEMP TABLE one (id int PRIMARY KEY) ON COMMIT DROP")
            move.connection.execute("INSERT INTO one VALUES (1), (1)")

    with pytest.raises(pg.UniqueViolation):
        Unique(shared, key).move("b")
    assert Unique(shared, key).history() == []


def test_a_callback_may_move_the_object_on_in_the_same_transaction(shared: Ledger, key: str) -> None:
    class Chain(Step, name="chain"):
        @after(to="b")
        def back(about: Any, move: Any) -> None:
            with shared.join(move.connection) as joined:
                Chain(joined, about).move("a")

    chain = Chain(shared, key)
    assert chain.move("b").to_state == "b"
    assert [one.to_state for one in chain.history()] == ["b", "a"]
    assert chain.current_state(force_reload=True) == "a"


# Remembering (S2-44, S2-45)


def test_what_is_remembered_is_read_again_when_it_is_asked_for(shared: Ledger, key: str) -> None:
    mine, other = Step(shared, key), Step(shared, key)
    assert mine.current_state() == "a"
    other.move("b")
    assert (mine.current_state(), mine.last_transition(), mine.in_state("a")) == ("a", None, True)
    assert len(mine.history()) == 1
    assert mine.current_state(force_reload=True) == "b"
    other.move("a")
    mine.reset()
    assert mine.current_state() == "a"
    other.move("b")
    last = mine.last_transition(force_reload=True)
    assert last is not None
    assert last.number == 3


def test_the_loser_of_a_race_sees_the_winner(shared: Ledger, key: str) -> None:
    loser = Overtaken(shared, (shared, key, [1]))
    with pytest.raises(TransitionConflict, match="before the move to b was recorded"):
        loser.move("b")
    last = loser.last_transition()
    assert last is not None
    assert (last.to_state, last.number, loser.current_state()) == ("a", 2, "a")
    assert loser.move("b").number == 3


def test_many_are_read_at_once_and_asked_without_a_query(
    shared: Ledger, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Step(shared, (key, "x")).move("b")
    machines = Step.load_each(shared, [(key, "x"), (key, "never"), (key, "x")])
    with monkeypatch.context() as patched:
        patched.delattr(Ledger, "reader")
        assert [one.current_state() for one in machines] == ["b", "a", "b"]
        assert [one.allowed_transitions() for one in machines] == [("a",), ("b",), ("a",)]
        assert machines[0].last_transition() == machines[2].last_transition()
        with pytest.raises(AttributeError):
            machines[0].history()
    machines[0].move("a")
    assert [one.current_state() for one in machines] == ["a", "a", "b"]
    assert Step.load_each(shared, []) == []


# Trying again (S2-46)


@pytest.mark.parametrize(("races", "retries", "runs"), [(0, 1, 1), (1, 1, 2), (3, 3, 4)])
def test_a_conflict_is_tried_again(shared: Ledger, key: str, races: int, retries: int, runs: int) -> None:
    ran: list[int] = []
    machine = Overtaken(shared, (shared, key, [1] * races))

    def block() -> int:
        ran.append(1)
        return machine.move("b").number

    assert retry_conflicts(block, attempts=retries + 1, sleep=lambda _: None) == 2 * races + 1
    assert len(ran) == runs


def test_trying_again_ends_and_is_only_for_conflicts(shared: Ledger, key: str) -> None:
    ran: list[int] = []

    def fail(error: Exception) -> None:
        ran.append(1)
        raise error

    with pytest.raises(TransitionConflict):
        retry_conflicts(lambda: fail(TransitionConflict("s", "e", 1, "b")), attempts=3, sleep=ran.append)
    assert len(ran) == 3 + 2
    ran.clear()
    for other in (ValueError(), MoveNotAllowed("a", "b")):
        with pytest.raises(type(other)):
            retry_conflicts(lambda other=other: fail(other), attempts=3)  # type: ignore[misc]
    assert len(ran) == 2
    with pytest.raises(BadInput, match="attempts 0 must be an integer, 1 or more"):
        retry_conflicts(lambda: None, attempts=0)
