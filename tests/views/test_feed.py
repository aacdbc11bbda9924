"""A view that is fed from elsewhere equals one that follows the log, in whatever pieces it is fed."""

from __future__ import annotations

import random
from typing import Any

import psycopg
import pytest

from ledger import BadInput, Body, EventsMissing, Ledger, Recorded
from ledger.domain.known import KNOWN
from ledger.domain.topics import TopicStatus
from ledger.log.announce import announce_statuses
from projections.engine.feed import Feed
from projections.engine.projector import Projector
from projections.engine.view import View
from projections.views.in_state import InState
from tests.lamp import LampMade
from tests.views.lamps import lamps, states_by_hand
from tests.views.views_of_tests import Declare, declare, parked, summed, watts, watts_by_hand

assert declare
assert InState
Connection = psycopg.Connection[Any]
IN_STATE = KNOWN.views["in_state"]


def everything(log: Ledger, view: View) -> list[Recorded]:
    """What another source would hold of the log: the events of the view's topics."""
    return [
        event
        for event in log.log(0, log.bound(), 10_000)
        if view.topics is None or event.topic in view.topics
    ]


def states(connection: Connection) -> list[tuple[Any, ...]]:
    return connection.execute(
        "SELECT stream, status, version, position FROM ledger_views.in_state ORDER BY stream"
    ).fetchall()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("python", [False, True])
def test_a_view_that_is_fed_equals_one_that_follows(
    log: Ledger, connection: Connection, declare: Declare, seed: int, python: bool
) -> None:
    """Pieces of any size, each begins anywhere in what was handed in before, in any order, some twice."""
    dice = random.Random(seed)
    view = declare(apply=lambda self, batch: summed(batch)) if python else declare()
    for _ in range(4):
        lamps(log, 9)
    for fed in (view, IN_STATE):
        events, new = everything(log, fed), 0
        with Feed(log, fed) as feed:
            end = 0
            while end < len(events):
                start, end = dice.randint(0, end), min(len(events), end + dice.randint(0, 9))
                piece = events[start:end] * dice.randint(1, 2)
                dice.shuffle(piece)
                new += feed.take(piece)
            assert feed.take(events) == 0
            assert (new, feed.position) == (len(events), events[-1].position)
    assert (watts(connection), states(connection)) == (watts_by_hand(connection), states_by_hand(log))
    assert Projector(log, [view, IN_STATE]).catch_up() == {
        name: log.bound() for name in ("watts", "in_state")
    }
    assert (watts(connection), states(connection)) == (watts_by_hand(connection), states_by_hand(log))


def test_a_gap_is_refused_where_the_source_says_where_it_begins(
    log: Ledger, connection: Connection, declare: Declare
) -> None:
    view = declare()
    for n in range(6):
        log.append(f"lamp/{n}", LampMade(watts=n))
    events = everything(log, view)
    with Feed(log, view) as feed:
        assert feed.take(events[:2], after=0) == 2
        with pytest.raises(EventsMissing, match=r"is at position 2, .* start after 3") as refused:
            feed.take(events[3:], after=events[2].position)
        assert (refused.value.position, refused.value.after) == (2, 3)
        with pytest.raises(BadInput, match="event 3 is not after position 3"):
            feed.take(events[2:], after=3)
        assert feed.take(events[1:4], after=1) == 2
        assert feed.take([], after=4) == 0
        with pytest.raises(EventsMissing):
            feed.take([], after=5)
        assert feed.take(events[4:], after=4) == 2
    assert watts(connection) == watts_by_hand(connection)


def test_a_projector_may_follow_the_same_view(log: Ledger, connection: Connection, declare: Declare) -> None:
    view = declare()
    with Projector(log, [view], batch=3) as projector, Feed(log, view) as feed:
        for n in range(60):
            log.append(f"lamp/{n % 7}", LampMade(watts=n))
            feed.take(everything(log, view))
        assert projector.wait_for(log.bound())
    assert watts(connection) == watts_by_hand(connection)


def test_what_fails_is_parked_and_late_moves_are_learned(
    log: Ledger, connection: Connection, declare: Declare
) -> None:
    view = declare(apply=lambda self, batch: summed(batch))
    for n in range(8):
        log.append(f"lamp/{n}", LampMade(watts=-1 if n == 5 else n))
    with Feed(log, view) as feed:
        assert feed.take(everything(log, view)) == 8
    assert [stream for stream, _, _ in parked(connection)] == ["lamp/5"]
    assert watts(connection) == watts_by_hand(connection, without=("lamp/5",))
    with Feed(log, IN_STATE) as feed:
        log.append("torch/a", Body("torch.lit", 1, "{}"))
        feed.take(everything(log, IN_STATE))
        announce_statuses(log, {"torch.lit": TopicStatus("lit")})
        log.append("lamp/0", LampMade())
        assert feed.take(everything(log, IN_STATE)) == 1
    assert ("torch/a", "lit", 1, 9) in states(connection)


def test_a_lost_connection_is_no_matter(log: Ledger, connection: Connection, declare: Declare) -> None:
    from ledger import ServerUnavailable

    view = declare()
    log.append("lamp/a", LampMade(watts=1))
    with Feed(log, view) as feed:
        assert feed.take(everything(log, view)) == 1
        log.append("lamp/a", LampMade(watts=2))
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pledger views'"
        )
        with pytest.raises(ServerUnavailable):
            feed.take(everything(log, view))
        assert feed.take(everything(log, view)) == 1
    assert watts(connection) == watts_by_hand(connection)
