"""Histories from elsewhere as moves: what is allowed is recorded with its times, what is not is told."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import ledger.machines.replays
from ledger import BadBody, BadMetadata, GuardRefused, Ledger, StreamNotFound, TransitionFailed, acting
from ledger.machines import From, Machine, PastMove, State, Transition, after, guard, replay
from tests.machines.payments import Payment

DAY = datetime(2013, 5, 1, tzinfo=UTC)
CALLED: list[Any] = []


class Door(Machine, name="door"):
    """closed → open → closed, and locked only by who has the key."""

    CLOSED = State("closed", initial=True)
    OPEN = State("open")
    LOCKED = State("locked")
    table = (From(CLOSED).To(OPEN, LOCKED), From(OPEN).To(CLOSED), From(LOCKED).To(CLOSED))

    @guard(to=LOCKED)
    def has_key(door: Any, last: Transition | None, metadata: Mapping[str, Any]) -> bool:
        """Only who has the key."""
        if metadata.get("meanwhile") is not None:
            metadata["meanwhile"]()
        return bool(metadata.get("key"))

    @after()
    def squeak(door: Any, transition: Transition) -> None:
        """Every move is heard."""
        CALLED.append(transition)


def past(*states: str, **metadata: Any) -> list[PastMove]:
    return [PastMove(state, DAY + timedelta(days=n), metadata) for n, state in enumerate(states)]


def test_a_history_is_recorded_with_its_times_and_actors(log: Ledger) -> None:
    moves = [PastMove("open", DAY, {"why": "air"}, actor="mina"), PastMove("closed", DAY + timedelta(days=1))]
    with acting(correlation="move-in"):
        done = replay(Door, log, [("front", moves)])
    assert (done.objects, done.moves, done.refused, done.left) == (1, 2, [], [])
    first, last = Door(log, "front").history()
    assert (first.from_state, first.to_state, first.claimed_at, first.metadata) == (
        "closed", "open", DAY, {"why": "air"},
    )  # fmt: skip
    assert (last.sort_key, last.claimed_at) == (20, DAY + timedelta(days=1))
    assert {first.definition, last.definition} == {1}
    rows = log.read("door/front")
    assert [row.meta.actor for row in rows] == ["mina", "tester"]
    assert {row.meta.correlation for row in rows} == {"move-in"}
    head = log.head("door/front")
    assert head is not None
    assert (head.version, head.status) == (2, "closed")


def test_what_is_refused_is_left_out_and_the_next_decided_where_the_object_stands(log: Ledger) -> None:
    done = replay(Door, log, [("front", past("open", "locked", "closed", "locked"))])
    assert [(one.about, one.nth, type(one.why)) for one in done.refused] == [
        ("front", 2, TransitionFailed),
        ("front", 4, GuardRefused),
    ]
    assert [(one.why.from_state, one.move.to_state) for one in done.refused] == [
        ("open", "locked"),
        ("closed", "locked"),
    ]
    assert [move.to_state for move in Door(log, "front").history()] == ["open", "closed"]


def test_strict_records_nothing_of_an_object_with_a_refused_move(log: Ledger) -> None:
    histories = [("front", past("open", "locked")), ("back", past("open"))]
    done = replay(Door, log, histories, strict=True)
    assert (done.objects, done.moves, len(done.refused)) == (1, 1, 1)
    with pytest.raises(StreamNotFound):
        log.read("door/front")


def test_a_first_move_to_the_initial_state_is_the_beginning(log: Ledger) -> None:
    replay(Door, log, [("front", past("closed", "open"))])
    assert [(move.from_state, move.to_state) for move in Door(log, "front").history()] == [
        (None, "closed"),
        ("closed", "open"),
    ]


def test_the_initial_state_again_is_a_move_like_any_other(log: Ledger) -> None:
    done = replay(Door, log, [("front", past("closed", "closed", "open"))])
    assert [(one.nth, one.why.from_state, one.why.to_state) for one in done.refused] == [
        (2, "closed", "closed")
    ]


def test_a_state_that_is_not_in_the_table_is_refused_as_a_move(log: Ledger) -> None:
    (one,) = replay(Door, log, [("front", past("painted"))]).refused
    assert (
        str(one.why) == "door: Cannot transition from 'closed' to 'painted'; allowed from there: locked, open"
    )


def test_nothing_but_guards_is_called(log: Ledger) -> None:
    CALLED.clear()
    replay(Door, log, [("front", past("open", "closed"))])
    assert CALLED == []
    Door(log, "front").move("open")
    assert [move.to_state for move in CALLED] == ["open"]


def test_a_second_run_records_nothing(log: Ledger) -> None:
    Door(log, "back").move("open")
    histories = [(name, past("open", "closed")) for name in ("front", "back", "cellar")]
    assert replay(Door, log, histories).left == ["back"]
    done = replay(Door, log, histories)
    assert (done.objects, done.moves, done.left) == (0, 0, ["front", "back", "cellar"])
    assert len(log.read("door/front")) == 2


def test_many_objects_in_pieces_and_one_of_them_twice(log: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger.machines.replays, "PIECE", 4)
    histories = [(n, past("open", "closed", "open")) for n in range(5)] + [(4, past("open"))]
    done = replay(Door, log, iter(histories))
    assert (done.objects, done.moves, done.left) == (5, 15, [4])
    rows = [row for n in range(5) for row in log.read(f"door/{n}")]
    assert [row.position for row in rows] == sorted(row.position for row in rows)
    assert len({row.recorded_at for row in rows}) == 5, "no piece has room for two of them"


def test_who_is_moved_meanwhile_is_left_and_the_others_are_recorded(log: Ledger) -> None:
    moved: list[Transition] = []

    def meanwhile() -> None:
        if not moved:
            moved.append(Door(log, "front").move("open"))

    odd = PastMove("locked", DAY, {"meanwhile": meanwhile})  # refused: it has no key
    done = replay(Door, log, [("front", [odd, *past("open", "closed")]), ("back", past("open"))])
    assert (done.left, done.objects, done.moves, done.refused) == (["front"], 1, 1, [])
    assert [move.to_state for move in Door(log, "front").history()] == ["open"]


def test_metadata_that_fit_no_model_and_times_without_a_zone_stop_the_replay(log: Ledger) -> None:
    with pytest.raises(BadMetadata, match="submission_id"):
        replay(Payment, log, [("PM1", past("submitted"))])
    with pytest.raises(BadBody, match="aware"):
        replay(Door, log, [("front", [PastMove("open", DAY.replace(tzinfo=None))])])
    assert log.streams("payment/") == log.streams("door/") == []
