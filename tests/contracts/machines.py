"""What every keeper of moves owes, wherever it keeps them: the port `Backend` of machines as tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from itertools import count
from typing import Any, TypeVar

import psycopg
import pytest

import ledger
from ledger import CommandReused, Ledger, TransitionConflict
from ledger.embedded import Embedded
from ledger.machines import Transition
from ledger.machines.backends import Backend, Calls
from ledger.machines.definition import Edge
from ledger.machines.move import NOTHING, record_move
from ledger.machines.transition import MachineStream
from tests.machines.payments import Payment

T = TypeVar("T")
NUMBERS = count(1)
STREAM = Payment.streams()
PLACES = ("pending_submission", "submitted", "paid")
CLAIMED = datetime(2020, 2, 29, 12, tzinfo=UTC)


class Wrong(Exception):
    """What a callback raises."""


def brief(moves: list[Transition]) -> list[tuple[int, str | None, str]]:
    return [(move.number, move.from_state, move.to_state) for move in moves]


class Kept:
    """One object and its keeper: `acting` gives the keeper, and at the end all is committed.

    other: of a competitor. anew: the keeper of a machine that a callback makes. cousin: of another object.
    """

    def __init__(
        self,
        acting: Callable[[], AbstractContextManager[Backend]],
        other: Callable[[], AbstractContextManager[Backend]],
        anew: Callable[[], Backend],
        cousin: Callable[[], Backend],
        anew_after_commit: Callable[[], Backend] | None = None,
    ) -> None:
        self.acting, self.other, self.anew, self.cousin = acting, other, anew, cousin
        self.anew_after_commit = anew_after_commit or anew

    def do(self, act: Callable[[Backend], T]) -> T:
        with self.acting() as keeper:
            return act(keeper)

    def history(self) -> list[Transition]:
        return self.do(lambda keeper: keeper.history())

    def seen(self, move: Transition, keeper: Backend) -> int:
        """How many moves a callback sees that asks where it was told to ask."""
        if move.connection is None:
            return len(keeper.history())
        query = "SELECT count(*) FROM ledger.events WHERE stream = %s"
        ((found,),) = move.connection.execute(query, [keeper.load().name]).fetchall()
        return int(found)


def decide(stream: MachineStream, to: str, **metadata: Any) -> MachineStream:
    """A stream with one move as its news."""
    record_move(stream, Edge(stream.state.status or "", to), metadata or NOTHING, 0)
    return stream


def go(to: str, calls: Calls | None = None, **meta: Any) -> Callable[[Backend], Transition]:
    """One move, decided on what is there and recorded."""
    return lambda keeper: keeper.record(decide(keeper.load(), to), calls or Calls(), **meta)


class KeeperContract:
    """Give `kept`; the rest is owed."""

    @pytest.fixture
    def kept(self) -> Kept:
        raise NotImplementedError

    def test_nothing_is_there_of_an_object_that_never_moved(self, kept: Kept) -> None:
        with kept.acting() as keeper:
            stream = keeper.load()
            assert (stream.version, stream.state.status, stream.last) == (0, None, None)
            assert (keeper.history(), keeper.last_to("paid"), keeper.repeated("c", "paid")) == (
                [],
                None,
                None,
            )

    def test_moves_are_kept_in_their_order_with_room_between_their_keys(self, kept: Kept) -> None:
        for place in PLACES:
            kept.do(go(place))
        moves = kept.history()
        assert brief(moves) == [
            (1, None, "pending_submission"),
            (2, "pending_submission", "submitted"),
            (3, "submitted", "paid"),
        ]
        assert [move.sort_key for move in moves] == [10, 20, 30]
        assert [move.at for move in moves] == sorted(move.at for move in moves)

    def test_several_moves_in_one_go_each_see_the_one_before(self, kept: Kept) -> None:
        with kept.acting() as keeper:
            for nth, place in enumerate(PLACES, 1):
                assert go(place)(keeper).number == nth
                assert keeper.load().state.status == place
                assert len(keeper.history()) == nth
        assert [move.to_state for move in kept.history()] == list(PLACES)

    def test_a_move_is_answered_with_what_is_kept_of_it(self, kept: Kept) -> None:
        said = {"submission_id": "S1", "rows": 2**70, "note": None}
        with kept.acting() as keeper:
            stream = decide(keeper.load(), "submitted", **said)
            answer = keeper.record(stream, Calls(), claimed_at=CLAIMED)
        (move,) = kept.history()
        assert (answer.number, answer.from_state, answer.to_state) == (1, None, "submitted")
        assert move.metadata == said == answer.metadata
        assert (move.claimed_at, answer.claimed_at) == (CLAIMED, CLAIMED)
        assert move.at > CLAIMED

    def test_the_last_move_to_a_state_is_the_latest_of_several(self, kept: Kept) -> None:
        for place in ("submitted", "paid", "submitted"):
            kept.do(go(place))
        with kept.acting() as keeper:
            go("paid")(keeper)
            found = [keeper.last_to(place) for place in ("submitted", "paid", "pending_submission")]
        assert [one and one.number for one in found] == [3, 4, None]
        assert kept.do(lambda keeper: keeper.last_to("paid")) == kept.history()[3]

    def test_what_is_called_sees_the_old_before_and_the_new_after(self, kept: Kept) -> None:
        """Spec S2-40, S2-41."""
        kept.do(go("submitted"))
        seen: list[tuple[str, Any, int]] = []
        with kept.acting() as keeper:

            def noting(when: str) -> Callable[[Transition], None]:
                def note(move: Transition) -> None:
                    seen.append((when, brief([move])[0], kept.seen(move, keeper)))

                return note

            def committed(move: Transition) -> None:
                seen.append(("committed", brief([move])[0], len(kept.history())))

            calls = Calls([noting("before"), noting("too")], [noting("after")], [committed])
            go("paid", calls)(keeper)
        move = (2, "submitted", "paid")
        assert seen == [("before", move, 1), ("too", move, 1), ("after", move, 2), ("committed", move, 2)]

    def test_what_is_called_after_gets_the_time_that_is_kept(self, kept: Kept) -> None:
        seen: list[Transition] = []
        kept.do(go("submitted", Calls(after=[seen.append], after_commit=[seen.append])))
        assert seen == kept.history() * 2

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_an_error_before_or_after_undoes_the_move_and_nothing_else(self, kept: Kept, when: str) -> None:
        """Spec S2-42."""
        called: list[Transition] = []

        def fail(_: Transition) -> None:
            raise Wrong

        kept.do(go("submitted"))
        with pytest.raises(Wrong), kept.acting() as keeper:
            go("paid", Calls(**{when: [fail]}, after_commit=[called.append]))(keeper)  # type: ignore[arg-type]
        assert brief(kept.history()) == [(1, None, "submitted")]
        assert kept.do(go("cancelled")).number == 2
        assert called == []

    def test_an_error_before_that_is_caught_leaves_no_move_behind(self, kept: Kept) -> None:
        def fail(_: Transition) -> None:
            raise Wrong

        with kept.acting() as keeper:
            with pytest.raises(Wrong):
                go("paid", Calls(before=[fail]))(keeper)
            assert keeper.load().state.status is None
            go("cancelled")(keeper)
        assert brief(kept.history()) == [(1, None, "cancelled")]

    def test_of_two_that_decided_on_the_same_the_second_is_in_conflict(self, kept: Kept) -> None:
        def twice(keeper: Backend) -> None:
            one, two = decide(keeper.load(), "submitted"), decide(keeper.load(), "cancelled")
            keeper.record(one, Calls())
            keeper.record(two, Calls())

        with pytest.raises(TransitionConflict, match="before the move to cancelled"):
            kept.do(twice)
        assert "cancelled" not in [move.to_state for move in kept.history()]

    def test_who_is_beaten_by_another_is_in_conflict(self, kept: Kept) -> None:
        """Spec S2-12, S2-44."""
        called: list[str] = []

        def note(_: Transition) -> None:
            called.append("called")

        def beaten(keeper: Backend) -> None:
            stream = decide(keeper.load(), "submitted")
            with kept.other() as another:
                go("cancelled")(another)
            keeper.record(stream, Calls(after=[note], after_commit=[note]))

        with pytest.raises(TransitionConflict) as caught:
            kept.do(beaten)
        conflict = caught.value
        assert (conflict.to_state, conflict.found, conflict.in_transaction) == ("submitted", 1, False)
        assert (called, brief(kept.history())) == ([], [(1, None, "cancelled")])

    def test_a_command_is_found_again_with_what_it_recorded(self, kept: Kept) -> None:
        command = f"pay-{next(NUMBERS)}"
        kept.do(go("submitted", command=command))
        kept.do(go("paid"))
        with kept.acting() as keeper:
            assert keeper.repeated(command, "submitted") == keeper.history()[0]
            assert keeper.repeated("another", "submitted") is None
            with pytest.raises(CommandReused):
                keeper.repeated(command, "paid")


@contextmanager
def just(keeper: Backend) -> Iterator[Backend]:
    """A keeper that commits each move by itself."""
    yield keeper


@contextmanager
def ledger_of_its_own(postgres: Embedded, template: str) -> Iterator[tuple[Ledger, str]]:
    """A ledger and its DSN for all tests of a module, each of which takes objects of its own."""
    name = f"moved_{os.getpid()}_{next(NUMBERS)}"
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")  # type: ignore[arg-type]
    with ledger.connect(postgres.dsn(name), actor="tester") as log:
        yield log, postgres.dsn(name)
    with psycopg.connect(postgres.admin_dsn(), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")  # type: ignore[arg-type]
