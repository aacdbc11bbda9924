"""A view in a database without a log, fed with the events of a ledger elsewhere, equals the one there."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest

import ledger
from ledger import BadInput, CursorMismatch, FedFromElsewhere, Ledger, ViewFailed
from ledger.domain.topics import TopicStatus
from ledger.log.announce import announce_statuses
from ledger.log.install import init
from projections.engine.copies import open_copies
from projections.engine.feed import Feed
from projections.engine.projector import Projector
from projections.engine.rebuild import rebuild, roll_back
from projections.engine.refold import retry
from tests.lamp import LampMade
from tests.views.lamps import lamps
from tests.views.test_feed import IN_STATE, everything
from tests.views.views_of_tests import Declare, declare, summed

assert declare is not None
Connection = psycopg.Connection[Any]


@pytest.fixture
def elsewhere(dsn: str) -> Any:
    """Another ledger, in a schema of its own, that has no events."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        init(connection, "copies")
    with ledger.connect(dsn, schema="copies", actor="feed") as opened:
        yield opened


def test_it_equals_the_view_that_follows(
    log: Ledger, elsewhere: Ledger, connection: Connection, declare: Declare
) -> None:
    """In pieces, some of them twice, with the place of the source; each event counts once."""
    dice, view = random.Random(3), declare()
    for _ in range(4):
        lamps(log, 9)
    for fed in (view, IN_STATE):
        events, end = everything(log, fed), 0
        while end < len(events):
            with Feed(elsewhere, fed, log.identity.ledger) as feed:
                assert feed.place == (f"after {end}" if end else "")
                start, end = dice.randint(0, end), min(len(events), end + dice.randint(1, 99))
                feed.take(events[start:end], place=f"after {end}")
    Projector(log, [view, IN_STATE]).catch_up()
    for table in ("watts", "in_state"):
        here, there = (
            connection.execute(f"SELECT * FROM {schema}.{table} t ORDER BY t::text").fetchall()
            for schema in ("ledger_views", "copies_views")
        )
        assert here == there
        assert here


def test_ledgers_are_not_mixed(log: Ledger, elsewhere: Ledger, declare: Declare) -> None:
    view = declare()
    log.append("lamp/a", LampMade(watts=1))
    events = everything(log, view)
    with Feed(elsewhere, view, log.identity.ledger) as feed:
        assert feed.take(events, place="x") == 1
    with Feed(elsewhere, view, uuid4()) as feed, pytest.raises(CursorMismatch, match="is fed from ledger"):
        feed.take(events)
    elsewhere.append("lamp/b", LampMade(watts=1))
    with (
        Feed(elsewhere, view, log.identity.ledger) as feed,
        pytest.raises(BadInput, match="events of its own"),
    ):
        feed.take(events)


def test_an_event_that_fails_is_stored_as_it_came(log: Ledger, elsewhere: Ledger, declare: Declare) -> None:
    view = declare(apply=lambda self, batch: summed(batch))
    for n in range(3):
        log.append(f"lamp/{n}", LampMade(watts=-1 if n == 1 else n))
    with Feed(elsewhere, view, log.identity.ledger) as feed:
        feed.take(everything(log, view), place="x")
    with psycopg.connect(elsewhere.address.conninfo) as connection:
        rows = connection.execute("SELECT stream, event->'data'->>'watts' FROM copies.view_parked").fetchall()
    assert rows == [("lamp/1", "-1.0")]


def test_statuses_are_not_learned_later(log: Ledger, elsewhere: Ledger) -> None:
    log.append("lamp/a", LampMade(watts=1))
    with Feed(elsewhere, IN_STATE, log.identity.ledger) as feed:
        feed.take(everything(log, IN_STATE), place="x")
        announce_statuses(elsewhere, {"torch.lit": TopicStatus("lit")})
        log.append("lamp/b", LampMade(watts=1))
        with pytest.raises(ViewFailed, match="pledger views feed in_state --anew"):
            feed.take(everything(log, IN_STATE), place="y")


# Built anew


def test_readers_see_the_old_copy_until_the_new_one_contains_as_much(
    log: Ledger, elsewhere: Ledger, connection: Connection, declare: Declare
) -> None:
    """Also if it is interrupted, and if the old copy is fed meanwhile."""
    view = declare()
    lamps(log, 9)
    events = everything(log, view)
    with Feed(elsewhere, view, log.identity.ledger) as feed:
        feed.take(events, place="all")
    connection.execute("UPDATE copies_views.watts_1 SET sum = -1")
    with Feed(elsewhere, view, log.identity.ledger, anew=True) as anew:
        anew.take(events[:5], place="five")
        assert not anew.show()
    lamps(log, 9, first=9)
    events = everything(log, view)
    with (
        Feed(elsewhere, view, log.identity.ledger) as feed,
        Feed(elsewhere, view, log.identity.ledger, anew=True) as anew,
    ):
        assert (anew.place, feed.place) == ("five", "all")
        feed.take(events, place="more")
        anew.take(events[5:-1], place="almost")
        assert not anew.show()
        anew.take(events[-1:], place="more")
        assert anew.show()
        assert (feed.place, feed.position) == ("more", events[-1].position)
    Projector(log, [view]).catch_up()
    here, there = (
        connection.execute(f"SELECT * FROM {schema}.watts t ORDER BY t::text").fetchall()
        for schema in ("ledger_views", "copies_views")
    )
    assert here == there
    copies = connection.execute("SELECT live, kept, last_copy FROM copies.views").fetchall()
    assert copies == [(2, 1, 2)]


def test_what_needs_the_log_is_refused(log: Ledger, elsewhere: Ledger, declare: Declare) -> None:
    """A rebuild would empty the view, and a retry would leave events out."""
    view = declare(apply=lambda self, batch: summed(batch))
    log.append("lamp/a", LampMade(watts=-1))
    with Feed(elsewhere, view, log.identity.ledger) as feed:
        feed.take(everything(log, view), place="x")
    with Feed(elsewhere, view, log.identity.ledger, anew=True) as feed:
        feed.take(everything(log, view), place="x")
        assert feed.show()
    with open_copies(elsewhere) as copies:
        acts: list[Callable[[], object]] = [
            lambda: rebuild(elsewhere, view),
            lambda: roll_back(elsewhere, view),
            lambda: retry(copies, view, 2, "lamp/a"),
        ]
        for act in acts:
            with pytest.raises(FedFromElsewhere, match="pledger views feed watts --anew"):
                act()
    with Feed(log, view, anew=True) as feed, pytest.raises(BadInput, match="pledger rebuild watts"):
        assert feed.position == 0
