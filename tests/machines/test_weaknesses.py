"""The weaknesses of state machines on a table of transitions (spec W2-01 to W2-15), one by one not here."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from ledger import (
    GuardRefused,
    Ledger,
    StreamConflict,
    TransitionConflict,
    TransitionFailed,
    retry_conflicts,
)
from ledger.machines import From, Machine, State, after, guard
from ledger.machines import before as before_it
from tests.machines.payments import Payment

Connection = psycopg.Connection[Any]


class Case(Machine, name="case"):
    """open → held → closed, and back."""

    OPEN = State("open", initial=True)
    HELD = State("held")
    CLOSED = State("closed")
    table = (From(OPEN).To(HELD, CLOSED), From(HELD).To(OPEN, CLOSED), From(CLOSED).To(OPEN))


class Raced(Case, name="raced"):
    """Somebody else moves the object to `held` after it was looked at and before the move is recorded."""

    @staticmethod
    def key_of(about: Any) -> Any:
        return about["key"]

    @before_it()
    def is_called(about: Any, move: Any) -> None:
        """Where something is called, each move asks first where the object stands."""

    @guard(to="closed")
    def late(about: Any, *_: Any) -> bool:
        if act := about.pop("meanwhile", None):
            act()
        return True


def raced(log: Ledger, key: str, *moves: str) -> Raced:
    """An object that somebody else moves so, once it is being closed."""

    def meanwhile() -> None:
        for move in moves:
            Raced(log, {"key": key}).move(move)

    return Raced(log, {"key": key, "meanwhile": meanwhile})


def at_once(*acts: Callable[[], Any]) -> list[Any]:
    """What each returns or raises, all begun in the same moment."""
    begin, came = threading.Barrier(len(acts)), [None] * len(acts)

    def run(nth: int, act: Callable[[], Any]) -> None:
        begin.wait(20)
        try:
            came[nth] = act()
        except Exception as error:
            came[nth] = error  # type: ignore[call-overload]

    threads = [threading.Thread(target=run, args=one) for one in enumerate(acts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return came


def test_w2_01_a_stale_machine_decides_on_what_is_recorded(shared: Ledger, key: str) -> None:
    stale, other = Case(shared, key), Case(shared, key)
    assert stale.current_state() == "open"
    other.move("closed")
    with pytest.raises(TransitionFailed, match="from 'closed' to 'held'"):
        stale.move("held")
    other.move("open")
    assert stale.move("closed").number == 3


def test_w2_01_guards_are_asked_about_what_the_move_is_checked_against(shared: Ledger, key: str) -> None:
    class Once(Case, name="once"):
        @guard(to="closed")
        def was_never_held(about: Any, last: Any, metadata: Any) -> bool:
            return last is None or last.to_state != "held"

    stale = Once(shared, key)
    assert stale.can_transition_to("closed")
    Once(shared, key).move("held")
    with pytest.raises(GuardRefused) as refused:
        stale.move("closed")
    assert refused.value.from_state == "held"


def test_w2_02_who_is_beaten_at_the_first_move_is_in_conflict(shared: Ledger, key: str) -> None:
    with pytest.raises(TransitionConflict) as beaten:
        raced(shared, key, "held").move("closed")
    assert (beaten.value.stream, beaten.value.found) == (f"raced/{key}", 1)
    with pytest.raises(TransitionConflict):
        raced(shared, key, "open").try_move("closed")


def test_w2_02_of_many_first_moves_one_wins_and_nobody_is_told_nonsense(shared: Ledger, key: str) -> None:
    came = at_once(*[lambda: Payment(shared, key).move("submitted", submission_id="1")] * 8)
    lost = [one for one in came if isinstance(one, Exception)]
    assert len(lost) == 7
    for error in lost:
        assert isinstance(error, TransitionConflict | TransitionFailed), repr(error)
        if isinstance(error, TransitionFailed):
            assert error.from_state == "submitted"
    assert len(Payment(shared, key).history()) == 1


def test_w2_03_a_guard_of_several_states_goes_on_refusing_when_one_is_removed() -> None:
    class Shorter(Case, name="shorter"):
        @guard(to=["held", "closed"])
        def never(*_: Any) -> bool:
            return False

    Shorter.remove_state("held")
    assert [(one.kind, one.to_states) for one in Shorter.callbacks] == [("guard", ("closed",))]
    with pytest.raises(GuardRefused):
        Shorter(None, 1).move("closed")


def test_w2_04_a_subclass_has_what_its_parent_has() -> None:
    class Child(Payment, name="child_payment"):
        pass

    assert Child.definition == Payment.definition
    assert Child(None, 1).try_move("submitted", submission_id="refused") is False
    Child.state("lost")
    assert "lost" not in Payment.states


def test_w2_05_what_is_declared_twice_is_kept_once() -> None:
    class Twice(Case, name="twice"):
        OPEN = State("open", initial=True)
        table = (From("open").To("held", "held"), From("open").To("held"))

    Twice.state("held")
    Twice.transition("open", ["held", "held"])
    assert (Twice.states, Twice.definition.edges) == (Case.states, Case.definition.edges)
    assert Twice(None, 1).allowed_transitions() == ("held", "closed")


def test_w2_06_a_refusal_names_the_move_that_was_tried() -> None:
    class Shut(Case, name="shut_case"):
        @guard()
        def never(*_: Any) -> bool:
            return False

    with pytest.raises(GuardRefused) as refused:
        Shut(None, 1).move("closed")
    error = refused.value
    assert (error.machine, error.from_state, error.to_state, error.guard) == (
        ("shut_case", "open", "closed", "never")
    )
    assert error.place.rpartition("/")[2].startswith("test_weaknesses.py:")


@pytest.mark.parametrize("mark", [before_it, after])
@pytest.mark.parametrize(("key_of_other", "kind"), [("free", TransitionFailed), ("locked", GuardRefused)])
def test_w2_07_a_refusal_of_another_machine_is_not_taken_for_ones_own(
    place: Any, key: str, mark: Any, key_of_other: str, kind: type[Exception]
) -> None:
    told: list[Any] = []

    class Other(Case, name="other_case"):
        @guard()
        def free(about: Any, *_: Any) -> bool:
            return about != "locked"

    class Outer(Case, name="outer_case"):
        @(mark if place is None or isinstance(place, Ledger) else before_it)()
        def moves_another(about: Any, move: Any) -> None:
            Other(None, key_of_other).move("open" if key_of_other == "free" else "held")

    Outer.after_transition_failure()(lambda *said: told.append(said))
    Outer.after_guard_failure()(lambda *said: told.append(said))
    with pytest.raises(kind, match="other_case"):
        Outer(place, key).try_move("held")
    assert (told, Outer(place, key).history()) == ([], [])


def test_w2_07_a_conflict_of_another_stream_stays_what_it_is(shared: Ledger, key: str) -> None:
    class Outermost(Case, name="outermost"):
        @before_it()
        def appends(about: Any, move: Any) -> None:
            raise StreamConflict("elsewhere/1", "version 1", 2)

    with pytest.raises(StreamConflict, match=r"^elsewhere/1: expected version 1") as conflict:
        Outermost(shared, key).move("held")
    assert type(conflict.value) is StreamConflict


def test_w2_08_retries_wait_longer_each_time_and_by_chance() -> None:
    slept: list[float] = []

    def beaten() -> None:
        raise TransitionConflict("s", "version 1", 2, "b")

    for _ in range(50):
        with pytest.raises(TransitionConflict):
            retry_conflicts(beaten, attempts=7, pause=1.0, max_pause=8.0, sleep=slept.append)
    longest = [max(slept[nth::6]) for nth in range(6)]
    for most, bound in zip(longest, [1, 2, 4, 8, 8, 8], strict=True):
        assert bound / 2 < most <= bound
    assert len(set(slept)) == 300


def test_w2_08_what_a_transaction_goes_on_seeing_is_not_retried_in_it(
    shared: Ledger, user: Connection, key: str
) -> None:
    ran: list[int] = []
    user.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ

    def block() -> None:
        ran.append(1)
        with shared.join(user) as joined:
            Case(joined, key).move("held")

    user.execute("SELECT 1")
    Case(shared, key).move("closed")
    with pytest.raises(TransitionConflict) as conflict:
        retry_conflicts(block, attempts=4)
    assert (conflict.value.in_transaction, len(ran)) == (True, 1)


def test_w2_08_a_transaction_that_sees_what_is_new_is_retried(
    shared: Ledger, user: Connection, key: str
) -> None:
    ran: list[str] = []

    def block() -> None:
        with shared.join(user) as joined:
            ran.append(str(Case(joined, key).current_state()))
            Case(joined, key).move("closed")
            if len(ran) == 1:
                Case(shared, key).move("held")

    retry_conflicts(block)
    user.commit()
    assert ran == ["open", "held"]
    assert [one.to_state for one in Case(shared, key).history()] == ["held", "closed"]


def test_w2_09_a_history_cannot_be_changed(shared: Ledger, user: Connection, key: str) -> None:
    case = Case(shared, key)
    case.move("held")
    for statement in (
        "UPDATE ledger.events SET data = '{}' WHERE stream = %s",
        "DELETE FROM ledger.events WHERE stream = %s",
    ):
        with pytest.raises(psycopg.Error), user.transaction():
            user.execute(statement, [case.stream])
    with pytest.raises(AttributeError):
        case.history()[0].to_state = "closed"  # type: ignore[misc]
    assert [one.number for one in case.history()] == [1]


def test_w2_10_transactions_that_move_the_same_objects_cannot_deadlock(shared: Ledger, key: str) -> None:
    pairs = [((key, "x"), (key, "y")), ((key, "y"), (key, "x"))]

    def move_both(first: Any, second: Any) -> str:
        with psycopg.connect(shared.address.conninfo) as own, shared.transaction(own) as joined:
            to = "closed" if Case(joined, first).current_state() != "closed" else "open"
            Case(joined, first).move(to)
            Case(joined, second).move(to)
        return to

    won = 0
    for _ in range(6):
        came = at_once(*[lambda pair=pair: move_both(*pair) for pair in pairs])
        for one in came:
            assert isinstance(one, str | TransitionConflict | TransitionFailed), repr(one)
        won += sum(isinstance(one, str) for one in came)
    x, y = (Case(shared, one) for one in pairs[0])
    assert won >= 6
    assert len(x.history()) == len(y.history()) == won
    assert x.current_state() == y.current_state()


def test_w2_10_the_present_state_is_kept_beside_the_history(shared: Ledger, key: str) -> None:
    case = Case(shared, key)
    for state in ("held", "open", "closed"):
        case.move(state)
        assert getattr(shared.head(case.stream), "status", None) == state
