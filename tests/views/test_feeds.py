"""Feeds of what changes in views: all of it, in order, once, and never before readers of the view see it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple
from itertools import count
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import projections.views.in_state
import projections.views.progress  # noqa: F401  both declare their views
from ledger import BadInput, Cursor, CursorMismatch, Ledger
from ledger.domain.known import KNOWN
from projections.engine.copies import Copies, projecting
from projections.engine.projector import Projector
from projections.engine.rebuild import rebuild, roll_back
from projections.engine.refold import refold
from projections.feeds import ProgressChange, ProgressChanges, ProgressCursor, StateChanges
from tests.views.eggs import MOVES, Fact, append, declare, facts, named
from tests.views.feed_consumer import TABLES, consumer, until

IN_STATE, PROGRESS = KNOWN.views["in_state"], KNOWN.views["progress"]
LAW = settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
Connection = psycopg.Connection[Any]
_numbers = count(1)


@pytest.fixture(autouse=True)
def only_eggs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is imported besides is not declared."""
    for room in ("projector", "rebuild"):
        monkeypatch.setattr(f"projections.engine.{room}.announce", lambda ledger: [])


@pytest.fixture
def eggs(log: Ledger) -> Ledger:
    """A ledger that knows of eggs and batches, and both views."""
    declare(log)
    Projector(log, [IN_STATE, PROGRESS]).catch_up()
    return log


def changes_by_hand(log: Ledger, after: int = 0) -> list[tuple[Any, ...]]:
    """Position, stream, version, topic, state before and state of every move after a position, by a fold."""
    found, now = [], dict[str, str]()
    for event in log.log(0, log.bound(), limit=10**6):
        move = MOVES.get(event.topic)
        status = move and (move.status or json.loads(event.data or "{}").get(move.field))
        if status is not None:
            before, now[event.stream] = now.get(event.stream), str(status)
            found.append((event.position, event.stream, event.version, event.topic, before, str(status)))
    return [change for change in found if change[0] > after]


def drained(feed: StateChanges) -> list[tuple[Any, ...]]:
    found = []
    while batch := feed.poll():
        found += [astuple(change)[:-1] for change in batch]
    return found


def hatch(log: Ledger, *names: int) -> int:
    """Eggs are laid and hatch at once; returns the last position."""
    append(
        log, [(f"egg/f/a/{n}", topic, {"under": 1}) for n in names for topic in ("egg.laid", "egg.hatched")]
    )
    return log.bound()


# States


@LAW
@given(facts(), st.lists(st.integers(0, 30), max_size=3), st.integers(1, 5), st.data())
def test_each_change_is_told_once_in_order_and_not_before_the_view_shows_it(
    eggs: Ledger, history: list[Fact], stops: Sequence[int], batch: int, data: st.DataObject
) -> None:
    start, name, told = eggs.bound(), f"n{next(_numbers)}_", list[tuple[Any, ...]]()
    append(eggs, named(history, name))
    feed = StateChanges(eggs, after=start, batch=batch)
    for stop in [*sorted(stops), 10**9]:
        upto = min(start + stop, eggs.bound())
        seen = Projector(eggs, [IN_STATE]).catch_up(upto)["in_state"]
        told += drained(feed)
        assert all(position <= seen for position, *_ in told)
        feed = StateChanges(eggs, after=Cursor.parse(str(feed.cursor)), batch=batch)
        if data.draw(st.integers(0, 3)) == 0:
            rebuild(eggs, IN_STATE)
        elif data.draw(st.integers(0, 3)) == 0:
            with projecting(eggs) as connection:
                copies = Copies(connection, eggs.schema)
                refold(copies, IN_STATE, copies.followed(IN_STATE).number, prefix="egg/")
    assert told == changes_by_hand(eggs, start)


def test_who_is_told_finds_it_in_the_view(eggs: Ledger, connection: Connection) -> None:
    feed = StateChanges(eggs)
    last = hatch(eggs, 1, 2)
    assert feed.poll() == []
    with Projector(eggs, [IN_STATE]) as projector:
        assert projector.wait_for(last, 20)
        told = feed.poll()
    assert [(change.stream, change.before, change.status) for change in told] == [
        ("egg/f/a/1", None, "cold"), ("egg/f/a/1", "cold", "hatched"),
        ("egg/f/a/2", None, "cold"), ("egg/f/a/2", "cold", "hatched"),
    ]  # fmt: skip
    wanted = "SELECT stream, status, since FROM ledger_views.in_state ORDER BY stream"
    assert connection.execute(wanted).fetchall() == [(c.stream, c.status, c.at) for c in told[1::2]]


def test_a_feed_of_some_states_of_one_category_passes_the_others_over(eggs: Ledger) -> None:
    hatch(eggs, 1)
    append(eggs, [("batch/x/1", "batch.became", {"how": how}) for how in ("warm", "hatched", "lost")])
    append(eggs, [("egg-like/1", "batch.became", {"how": "hatched"})])
    Projector(eggs, [IN_STATE]).catch_up()
    feed = StateChanges(eggs, category="batch", statuses={"hatched", "lost"}, batch=1)
    assert [change[1:6] for change in drained(feed)] == [
        ("batch/x/1", 2, "batch.became", "warm", "hatched"),
        ("batch/x/1", 3, "batch.became", "hatched", "lost"),
    ]
    assert feed.position == eggs.bound()
    assert [change[1] for change in drained(StateChanges(eggs, category="egg", statuses=["cold"]))] == [
        "egg/f/a/1"
    ]
    with pytest.raises(BadInput, match="set of statuses"):
        StateChanges(eggs, statuses="lost")


def test_a_feed_waits_behind_a_view_that_was_rolled_back_and_repeats_nothing(eggs: Ledger) -> None:
    hatch(eggs, 1)
    rebuild(eggs, IN_STATE)
    feed = StateChanges(eggs)
    hatch(eggs, 2)
    Projector(eggs, [IN_STATE]).catch_up()
    assert len(drained(feed)) == 4
    roll_back(eggs, IN_STATE)
    hatch(eggs, 3)
    Projector(eggs, [IN_STATE]).catch_up()
    assert [change[1] for change in drained(feed)] == ["egg/f/a/3", "egg/f/a/3"]


def test_a_view_that_nobody_made_tells_nothing(log: Ledger) -> None:
    hatch(log, 1)
    assert StateChanges(log).poll() == []
    assert ProgressChanges(log).poll() == []


@pytest.mark.parametrize("feed", [StateChanges, ProgressChanges])
def test_a_cursor_of_another_history_is_refused(eggs: Ledger, feed: Callable[..., object]) -> None:
    position = hatch(eggs, 1)
    for wrong in (Cursor(uuid4(), position, ""), Cursor(eggs.identity.ledger, position, "0" * 16)):
        with pytest.raises(CursorMismatch):
            feed(eggs, after=wrong)


def test_a_consumer_that_is_killed_again_and_again_sees_every_change_once(
    eggs: Ledger, dsn: str, connection: Connection
) -> None:
    connection.execute(TABLES)

    def told() -> int:
        return connection.execute("SELECT count(*) FROM told").fetchone()[0]  # type: ignore[index, no-any-return]

    with Projector(eggs, [IN_STATE]):
        for part in range(3):
            wanted = told() + 5
            with consumer(dsn) as process:
                hatch(eggs, *range(20 * part, 20 * part + 20))
                until(lambda wanted=wanted: told() >= wanted)  # type: ignore[misc]
                process.kill()
        with consumer(dsn):
            until(lambda: told() >= 120)
    rows = connection.execute("SELECT position, stream, before, status FROM told ORDER BY number").fetchall()
    assert rows == [(p, stream, before, status) for p, stream, _, _, before, status in changes_by_hand(eggs)]


# Progress


def shown(connection: Connection) -> dict[str, tuple[Any, ...]]:
    rows = connection.execute(
        "SELECT category, parent, present, running, done, failed, total, percent, position, at "
        "FROM ledger_views.progress"
    ).fetchall()
    return {row[1]: row for row in rows}


def all_of(feed: ProgressChanges) -> Iterator[ProgressChange]:
    while batch := feed.poll():
        yield from batch


@LAW
@given(facts(), st.lists(st.integers(0, 30), max_size=3), st.integers(1, 4), st.data())
def test_the_last_value_of_each_set_is_told_whatever_happens_to_the_view(
    eggs: Ledger,
    connection: Connection,
    history: list[Fact],
    stops: Sequence[int],
    batch: int,
    data: st.DataObject,
) -> None:
    start, name = eggs.bound(), f"n{next(_numbers)}_"
    Projector(eggs, [PROGRESS]).catch_up()
    known = shown(connection)
    feed = ProgressChanges(eggs, batch=batch)
    known = {change.parent: astuple(change) for change in all_of(feed)}
    append(eggs, named(history, name))
    for stop in [*sorted(stops), 10**9]:
        Projector(eggs, [PROGRESS]).catch_up(min(start + stop, eggs.bound()))
        if data.draw(st.integers(0, 3)) == 0:
            rebuild(eggs, PROGRESS)
        for change in all_of(feed):
            known[change.parent] = astuple(change)
        assert known == shown(connection)
        feed = ProgressChanges(eggs, after=ProgressCursor.parse(str(feed.cursor)), batch=batch)


def test_a_set_that_changed_often_is_told_once(eggs: Ledger, connection: Connection) -> None:
    append(eggs, [("tray/f/a", "tray.built", {})])
    hatch(eggs, 1, 2, 3)
    Projector(eggs, [PROGRESS]).catch_up()
    feed = ProgressChanges(eggs, category="egg")
    (change,) = feed.poll()
    assert (change.parent, change.present, change.done, change.total, change.percent) == (
        "tray/f/a",
        3,
        3,
        2,
        150,
    )
    assert feed.poll() == []
    assert ProgressChanges(eggs, category="batch").poll() == []


def test_what_one_event_changed_is_not_divided(eggs: Ledger) -> None:
    """Given a plan that changes five sets, when two are asked for, then all five come, or three were lost."""
    append(eggs, [(f"tray/f/{n}", "tray.built", {}) for n in range(5)])
    append(eggs, [("farm/f", "farm.planned", {"plan": {"eggs": 9}})])
    Projector(eggs, [PROGRESS]).catch_up()
    feed = ProgressChanges(eggs, batch=2)
    assert [(change.parent, change.total) for change in feed.poll()] == [(f"tray/f/{n}", 9) for n in range(5)]
    assert feed.poll() == []


def test_what_a_rebuild_changed_is_told_though_no_event_did(
    eggs: Ledger, connection: Connection, admin_dsn: str
) -> None:
    """Given wrong sizes that were told, when the view is rebuilt, then the right ones are told."""
    append(eggs, [("tray/f/a", "tray.built", {})])
    hatch(eggs, 1, 2)
    Projector(eggs, [PROGRESS]).catch_up()
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute("UPDATE ledger_views.progress_sets_1 SET done = 77 WHERE present > 0")
    feed, other = ProgressChanges(eggs), ProgressChanges(eggs)
    assert [change.done for change in (*feed.poll(), *other.poll())] == [77, 77]
    kept = str(other.cursor)
    with projecting(eggs) as own:
        refold(Copies(own, eggs.schema), PROGRESS, 1, prefix="egg/")
    assert [change.done for change in feed.poll()] == [2]
    rebuild(eggs, PROGRESS)
    assert [change.done for change in feed.poll()] == [2]
    assert [change.done for change in ProgressChanges(eggs, after=ProgressCursor.parse(kept)).poll()] == [2]
    again = ProgressChanges(eggs, after=ProgressCursor.parse(str(feed.cursor)))
    assert again.poll() == []
    with pytest.raises(BadInput, match="not a cursor"):
        ProgressCursor.parse("nonsense")
