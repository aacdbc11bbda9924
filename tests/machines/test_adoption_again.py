"""An adoption that runs again: after a kill, after the table grew, after objects moved on."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

import ledger
from ledger import Ledger, StreamConflict
from tests.machines.desk import INSERT, Connection, Desk
from tests.machines.payments import Payment


@pytest.fixture
def desk(log: Ledger, connection: Connection) -> Desk:
    return Desk(log, connection)


def test_a_run_that_was_killed_goes_on_and_doubles_nothing(desk: Desk) -> None:
    """Given a run that ends in the middle; when it runs again, in other pieces; then all is there once."""
    for number in range(20):
        desk.write(f"P{number:02}", ("submitted", 10), ("paid", 20))
    seen: list[int] = []

    def stop(done: int, size: int) -> None:
        seen.append(done)
        if done > 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        desk.adopt(batch=3, progress=stop)
    done = desk.adopt(batch=5)
    assert seen == [4, 8, 12]
    assert (done.recorded, done.there, done.new, done.left) == (28, 12, 14, 6)
    assert all(desk.states(f"P{number:02}") == ["submitted", "paid"] for number in range(20))


def test_a_long_history_goes_over_several_appends(desk: Desk) -> None:
    states = ["submitted", "paid", "cancelled", "submitted", "paid"]

    def stop(done: int, size: int) -> None:
        raise KeyboardInterrupt

    for batch in (1, 2, 3, 1000):
        desk.connection.execute("TRUNCATE payment_transitions")
        name = f"P{batch}"
        desk.write(name, *((state, 10 * n) for n, state in enumerate(states, 1)))
        desk.write(f"Q{batch}", ("submitted", 10))
        with pytest.raises(KeyboardInterrupt):
            desk.adopt(batch=batch, progress=stop)
        first = len(desk.states(name))
        assert first == min(batch, 5)
        done = desk.adopt(batch=batch)
        assert desk.states(name) == states
        assert (done.there + done.recorded, done.parents) == (6, 2)
        assert done.continued == (1 if first < 5 else 0)
        assert [move.from_state for move in desk.history(name)] == ["pending_submission", *states[:-1]]
        head = desk.log.head(f"payment/{name}")
        assert head is not None
        assert (head.version, head.status) == (5, "paid")
        assert Payment(desk.log, name).current_state() == "paid"


def test_what_came_since_is_taken_and_what_moved_on_is_left(desk: Desk) -> None:
    for payment in ("P", "Q", "R"):
        desk.write(payment, ("submitted", 10))
    desk.adopt()
    Payment(desk.log, "Q").move("paid")
    Payment(desk.log, "R").move("cancelled")
    desk.connection.execute(
        "UPDATE payment_transitions SET most_recent = false WHERE payment_id IN ('P', 'R')"
    )
    desk.write("P", ("paid", 20))
    desk.write("R", ("paid", 20))
    desk.write("S", ("submitted", 10))
    done = desk.adopt()
    assert (done.continued, done.left, done.new, done.differ, done.recorded) == (1, 1, 1, 1, 2)
    assert done.differing == (
        ("payment/R", "move 2 of the ledger led to cancelled, the row with sort_key 20 to paid"),
    )
    assert [desk.states(payment)[-1] for payment in "PQRS"] == ["paid", "paid", "cancelled", "submitted"]


def test_a_history_that_was_rewritten_is_told(desk: Desk) -> None:
    for payment in ("P", "Q"):
        desk.write(payment, ("submitted", 10), ("paid", 20))
    desk.adopt()
    change = "UPDATE payment_transitions SET {} WHERE sort_key = 10 AND payment_id = '{}'"
    desk.connection.execute(change.format("created_at = created_at + interval '1 s'", "P"))  # type: ignore[arg-type]
    desk.connection.execute(change.format("submission_id = 'SB9'", "Q"))  # type: ignore[arg-type]
    done = desk.adopt()
    assert (done.differ, done.recorded) == (2, 0)
    assert done.differing == (
        (
            "payment/P",
            "move 1 of the ledger was at 2015-03-01T12:10:00+00:00, the row with sort_key 10 at "
            "2015-03-01T12:10:01+00:00",
        ),
        ("payment/Q", "move 1 of the ledger has other metadata than the row with sort_key 10"),
    )


def test_moves_of_the_ledger_itself_may_be_the_same(desk: Desk) -> None:
    Payment(desk.log, "P").move("submitted", submission_id="SB1")
    desk.write("P", ("submitted", 10), ("paid", 20))
    desk.connection.execute("UPDATE payment_transitions SET submission_id = 'SB1' WHERE sort_key = 10")
    desk.write("Q", ("submitted", 10))
    desk.log.append("payment/Q", ledger.Body("something.else", 1, "{}"))
    done = desk.adopt()
    assert (done.continued, done.differ) == (1, 1)
    assert desk.states("P") == ["submitted", "paid"]
    assert "is not a move of a machine but something.else" in done.differing[0][1]


def test_who_moves_meanwhile_is_seen(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given somebody who moves an object just before its piece is appended; then it is looked at again."""
    desk.write("P", ("submitted", 10), ("paid", 20))
    desk.write("Q", ("submitted", 10))
    append_all, others = desk.log.append_all, ["submitted", "cancelled"]

    def slowly(*arguments: Any, **ways: Any) -> Any:
        if others:
            body = Payment.streams().MOVED(to_state=others.pop(0))
            desk.log.append("payment/P", body)
        return append_all(*arguments, **ways)

    def through_the_window(stream: str, *events: Any, **_: Any) -> Any:
        from ledger import Append
        from ledger.log.append import body_of

        return append_all([Append(stream, [body_of(event) for event in events])])

    monkeypatch.setattr(desk.log, "append_all", slowly)
    monkeypatch.setattr(desk.log, "append", through_the_window)
    done = desk.adopt()
    assert (done.new, done.differ, done.there, done.recorded) == (1, 1, 1, 1)
    assert (desk.states("P"), desk.states("Q")) == (["submitted", "cancelled"], ["submitted"])

    def beaten(*_: Any, **__: Any) -> Any:
        raise StreamConflict("payment/S", "a new stream", 1)

    monkeypatch.setattr(desk.log, "append_all", beaten)
    desk.write("S", ("submitted", 10))
    with pytest.raises(StreamConflict):
        desk.adopt()


def test_a_dry_run_says_what_would_be(desk: Desk) -> None:
    desk.write("P", ("submitted", 10), ("paid", 20))
    desk.write("Q", ("submitted", 10))
    for batch in (1, 1000):
        done = desk.adopt(dry_run=True, batch=batch)
        assert (done.rows, done.new, done.recorded) == (3, 2, 3)
    assert desk.log.streams() == []


@pytest.mark.slow
def test_memory_does_not_grow_with_the_table(desk: Desk, connect: Callable[..., Connection]) -> None:
    """Given a table that is ten times as large; then no more memory is needed, but for a piece."""
    peaks = []
    for last in (5_000, 50_000):
        desk.connection.execute(
            INSERT.removesuffix("VALUES ") + "SELECT 'P' || n / 2, 'submitted', n, n %% 2 = 1, now() "
            "FROM generate_series((SELECT count(*) FROM payment_transitions), %s) n",
            (last - 1,),
        )
        tracemalloc.start()
        assert desk.adopt("never_declared").rows == last
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] * 1.3, peaks
