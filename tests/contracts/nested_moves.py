"""What every keeper owes to moves that callbacks make: statesman's idiom, the next move in `after`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ledger import AlreadyOpen, Refused, TransitionConflict
from ledger.log.callbacks import DEEPEST
from ledger.machines import Transition
from ledger.machines.backends import Backend, Calls
from tests.contracts.machines import NUMBERS, Kept, Wrong, brief, decide, go

FIRST, SECOND = (1, None, "submitted"), (2, "submitted", "paid")


def fail(_: Transition) -> None:
    raise Wrong


class NestedMovesContract:
    """Give `kept`, with `anew` and `cousin`; the rest is owed."""

    @pytest.fixture
    def kept(self) -> Kept:
        raise NotImplementedError

    @pytest.fixture(params=["the same machine", "a machine made anew"])
    def again(self, kept: Kept, request: pytest.FixtureRequest) -> Callable[[Backend], Backend]:
        """The keeper that a callback moves the object on with."""
        return (lambda keeper: keeper) if request.param == "the same machine" else (lambda _: kept.anew())

    def test_a_move_in_after_is_made_from_the_state_that_the_outer_one_led_to(
        self, kept: Kept, again: Callable[[Backend], Backend]
    ) -> None:
        seen: list[list[tuple[int, str | None, str]]] = []

        def move_on(move: Transition) -> None:
            inner = again(keeper)
            assert (inner.load().state.status, inner.load().version) == ("submitted", 1)
            seen.append(brief(inner.history()))
            seen.append(brief([go("paid")(inner)]))
            assert inner.load().state.status == "paid"
            found = inner.last_to("paid")
            seen.append(brief([*inner.history(), *([found] if found else [])]))

        with kept.acting() as keeper:
            assert brief([go("submitted", Calls(after=[move_on]))(keeper)]) == [FIRST]
        assert seen == [[FIRST], [SECOND], [FIRST, SECOND, SECOND]]
        assert brief(kept.history()) == [FIRST, SECOND]
        assert kept.do(go("cancelled")).number == 3

    def test_callbacks_of_nested_moves_are_called_in_statesmans_order(self, kept: Kept) -> None:
        """The inner move with all in its transaction, then the rest of the outer one; then the commits."""
        said: list[str] = []

        def note(what: str) -> Callable[[Transition], None]:
            return lambda move: said.append(f"{what} {move.to_state}")

        def move_on(_: Transition) -> None:
            go("paid", Calls([note("before")], [note("after")], [note("committed")]))(kept.anew())

        with kept.acting() as keeper:
            outer = Calls([note("before")], [note("after"), move_on, note("too")], [note("committed")])
            go("submitted", outer)(keeper)
        assert said == [
            "before submitted", "after submitted", "before paid", "after paid", "too submitted",
            "committed paid", "committed submitted",
        ]  # fmt: skip

    def test_an_error_after_a_nested_move_undoes_both_and_what_waits_for_the_commit(
        self, kept: Kept, again: Callable[[Backend], Backend]
    ) -> None:
        called: list[Transition] = []

        def move_on(_: Transition) -> None:
            go("paid", Calls(after_commit=[called.append]))(again(keeper))

        with pytest.raises(Wrong), kept.acting() as keeper:
            go("submitted", Calls(after=[move_on, fail], after_commit=[called.append]))(keeper)
        assert (kept.history(), called) == ([], [])
        assert kept.do(go("cancelled")).number == 1

    def test_a_nested_move_that_fails_and_is_caught_is_undone_alone(self, kept: Kept) -> None:
        called: list[str] = []

        def move_on(_: Transition) -> None:
            inner = kept.anew()
            with pytest.raises(Wrong):
                go("paid", Calls(after=[fail], after_commit=[lambda _: called.append("paid")]))(inner)
            assert brief(inner.history()) == [FIRST]
            go("cancelled", Calls(after_commit=[lambda _: called.append("cancelled")]))(inner)

        with kept.acting() as keeper:
            go("submitted", Calls(after=[move_on]))(keeper)
        assert brief(kept.history()) == [FIRST, (2, "submitted", "cancelled")]
        assert called == ["cancelled"]

    def test_a_cascade_to_another_object_is_recorded_with_the_outer_move(self, kept: Kept) -> None:
        cousin = kept.cousin()
        with kept.acting() as keeper:
            go("submitted", Calls(after=[lambda _: go("cancelled")(cousin)]))(keeper)
        assert brief(kept.history()) == [FIRST]
        assert brief(cousin.history()) == [(1, None, "cancelled")]

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_a_cascade_to_another_object_is_undone_with_the_outer_move(self, kept: Kept, when: str) -> None:
        cousin, called = kept.cousin(), list[Transition]()

        def cascade(_: Transition) -> None:
            go("cancelled", Calls(after_commit=[called.append]))(cousin)
            assert len(cousin.history()) == 1

        with pytest.raises(Wrong), kept.acting() as keeper:
            go("submitted", Calls(**{when: [cascade, fail]}))(keeper)  # type: ignore[arg-type]
        assert (kept.history(), cousin.history(), called) == ([], [], [])
        assert go("submitted")(cousin).number == 1

    def test_a_cascade_before_a_move_that_fails_and_is_caught_is_undone_with_it(self, kept: Kept) -> None:
        cousin = kept.cousin()
        with kept.acting() as keeper:
            with pytest.raises(Wrong):
                go("submitted", Calls(before=[lambda _: go("cancelled")(cousin), fail]))(keeper)
            go("paid")(keeper)
        assert cousin.history() == []
        assert brief(kept.history()) == [(1, None, "paid")]

    def test_a_move_of_the_same_object_before_its_move_is_refused_and_leaves_the_outer_one(
        self, kept: Kept, again: Callable[[Backend], Backend]
    ) -> None:
        def too_early(_: Transition) -> None:
            with pytest.raises(AlreadyOpen, match="move it on in a callback after the move"):
                go("paid")(again(keeper))

        with kept.acting() as keeper:
            go("submitted", Calls(before=[too_early]))(keeper)
        assert brief(kept.history()) == [FIRST]

    def test_a_move_after_the_commit_is_a_move_of_its_own(self, kept: Kept) -> None:
        seen: list[int] = []

        def move_on(_: Transition) -> None:
            inner = kept.anew_after_commit()
            seen.append(len(inner.history()))
            go("paid", Calls(after=[lambda move: seen.append(move.number)]))(inner)
            seen.append(len(kept.history()))

        with kept.acting() as keeper:
            go("submitted", Calls(after_commit=[move_on]))(keeper)
        assert (seen, brief(kept.history())) == ([1, 2, 2], [FIRST, SECOND])

    def test_an_error_after_the_commit_of_a_nested_move_leaves_both(self, kept: Kept) -> None:
        def move_on(_: Transition) -> None:
            go("paid", Calls(after_commit=[fail]))(kept.anew())

        with pytest.raises(Wrong), kept.acting() as keeper:
            go("submitted", Calls(after=[move_on]))(keeper)
        assert brief(kept.history()) == [FIRST, SECOND]

    def test_moves_may_be_nested_deep(self, kept: Kept) -> None:
        def move_on(move: Transition) -> None:
            if move.number < 30:
                go("submitted", Calls(after=[move_on]))(kept.anew())

        with kept.acting() as keeper:
            go("submitted", Calls(after=[move_on]))(keeper)
        assert [move.number for move in kept.history()] == [*range(1, 31)]

    def test_a_circle_of_callbacks_ends_with_a_clear_refusal_and_leaves_nothing(self, kept: Kept) -> None:
        made: list[int] = []

        def move_on(move: Transition) -> None:
            made.append(move.number)
            go("submitted", Calls(after=[move_on]))(kept.anew())

        with pytest.raises(Refused, match="look for a cycle of callbacks"), kept.acting() as keeper:
            go("submitted", Calls(after=[move_on]))(keeper)
        assert len(made) in (DEEPEST, DEEPEST + 1)
        assert kept.history() == []

    def test_of_two_nested_moves_that_decided_on_the_same_the_second_is_in_conflict(self, kept: Kept) -> None:
        def twice(_: Transition) -> None:
            inner = kept.anew()
            one, two = decide(inner.load(), "paid"), decide(inner.load(), "cancelled")
            inner.record(one, Calls())
            with pytest.raises(TransitionConflict, match="before the move to cancelled"):
                inner.record(two, Calls())

        with kept.acting() as keeper:
            go("submitted", Calls(after=[twice]))(keeper)
        assert brief(kept.history()) == [FIRST, SECOND]

    def test_a_command_of_a_nested_move_is_found_again_in_its_transaction(self, kept: Kept) -> None:
        command = f"nested-{next(NUMBERS)}"

        def move_on(_: Transition) -> None:
            inner = kept.anew()
            go("paid", command=command)(inner)
            found = inner.repeated(command, "paid")
            assert found is not None
            assert brief([found]) == [SECOND]

        with kept.acting() as keeper:
            go("submitted", Calls(after=[move_on]))(keeper)
        found = kept.do(lambda keeper: keeper.repeated(command, "paid"))
        assert found is not None
        assert brief([found]) == [SECOND]
