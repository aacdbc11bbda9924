"""A topic that was renamed: its former names are read, folded and followed; without them `verify` is loud."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

import psycopg
import pytest

import projections.views.in_state  # noqa: F401  declares the view
from ledger import Body, Event, Ledger, Moves, Stream
from ledger.domain.known import KNOWN
from ledger.domain.topics import with_former
from ledger.log.announce import announce
from projections import Follower
from projections.engine.projector import Projector
from projections.engine.rebuild import rebuild
from projections.shipped import load
from projections.verify import rebuild_heads, verify
from projections.verify.difference import Difference
from tests.views.views_of_tests import Declare, declare  # noqa: F401  a fixture

Connection = psycopg.Connection[Any]


class Status(StrEnum):
    BEGUN = "begun"
    DONE = "done"


MOVES = Moves({None: {Status.BEGUN}, Status.BEGUN: {Status.DONE}})


@dataclass(frozen=True, slots=True)
class Walk:
    status: Status | None = None
    steps: int = 0


@pytest.fixture
def domain() -> Iterator[Any]:
    """Declares the domain, as its old code or its new; all is forgotten at the end."""
    load()  # what is imported meanwhile would be forgotten, and is imported once only
    topics, categories = dict(KNOWN.events), dict(KNOWN.streams)

    def make(ended: str, *, was: str | tuple[str, ...] = (), number: int = 1) -> Any:
        KNOWN.events.clear()
        KNOWN.events.update(topics)

        class WalkBegun(Event, topic="walk.begun", to=Status.BEGUN):
            pass

        class WalkStep(Event, topic="walk.step"):
            pass

        class WalkDone(Event, topic=ended, to=Status.DONE, was=was):
            pass

        def evolve(walk: Walk, event: Event, at: datetime, /) -> Walk:
            return replace(
                walk, status=event.to or walk.status, steps=walk.steps + isinstance(event, WalkStep)
            )

        def go(self: Any) -> None:
            for event in (WalkBegun(), WalkStep(), WalkDone()):
                self.record(event)

        parts = {"CATEGORY": "walk", "MOVES": MOVES, "STATE": Walk, "STATE_SCHEMA": number}
        return type("OpenWalk", (Stream,), parts | {"evolve": staticmethod(evolve), "go": go})

    yield make
    KNOWN.events.clear()
    KNOWN.events.update(topics)
    KNOWN.streams.clear()
    KNOWN.streams.update(categories)


def differences(log: Ledger, **how: Any) -> list[Difference]:
    found: list[Difference] = []
    verify(log, found=found.append, processes=1, **how)
    return found


def walk(log: Ledger, kind: Any, *keys: int) -> None:
    for key in keys:
        with log.open(kind, key) as opened:
            opened.go()


def test_a_former_name_is_read_by_the_class(log: Ledger, domain: Any) -> None:
    walk(log, domain("walk.over"), 1)
    old = [event.position for event in log.read("walk/1")]
    new = domain("walk.completed", was=("walk.over", "walk.ended"), number=2)
    walk(log, new, 2)
    assert log.load(new, 1).state == log.load(new, 2).state == Walk(Status.DONE, 1)
    assert type(log.read("walk/1")[2].event) is type(log.read("walk/2")[2].event)
    assert log.read("walk/2")[2].topic == "walk.completed"
    assert differences(log) == []
    assert rebuild_heads(log, processes=1).unknown == {}
    assert [event.position for event in log.read("walk/1")] == old


def test_without_its_former_name_verify_is_loud_and_nothing_is_falsified(log: Ledger, domain: Any) -> None:
    walk(log, domain("walk.over"), 1, 2)
    domain("walk.completed", number=2)
    before = log.head("walk/1")
    (wrong,) = differences(log)
    assert (wrong.kind, wrong.about) == ("unknown topic", "walk.over")
    assert "2 events have it, in 2 streams such as walk/1" in wrong.says
    assert "was='walk.over'" in wrong.says
    assert list(rebuild_heads(log, processes=1).unknown) == ["walk.over"]
    assert differences(log, repair=True) == [wrong]
    assert log.head("walk/1") == before


def test_a_lost_head_gets_no_state_without_the_topic(
    log: Ledger, domain: Any, connection: Connection
) -> None:
    walk(log, domain("walk.over"), 1)
    announce(log)
    domain("walk.completed")
    connection.execute("SET ROLE ledger_owner")
    connection.execute("DELETE FROM ledger.heads WHERE stream = 'walk/1'")
    kinds = {difference.kind.value: difference.repaired for difference in differences(log, repair=True)}
    assert kinds == {"head missing": "inserted", "unknown topic": None}
    head = log.head("walk/1")
    assert head is not None
    assert (head.version, head.status, head.state) == (3, "done", None)
    new = domain("walk.completed", was="walk.over")
    assert log.load(new, 1).state == Walk(Status.DONE, 1)
    assert differences(log) == []


def test_views_and_followers_get_both(
    log: Ledger,
    domain: Any,
    connection: Connection,
    declare: Declare,  # noqa: F811
) -> None:
    walk(log, domain("walk.over"), 1)
    new = domain("walk.completed", was="walk.over")
    walk(log, new, 2)
    assert with_former(["walk.completed"]) == with_former(["walk.over"]) == {"walk.completed", "walk.over"}
    follower = Follower(log, topics=["walk.completed"])
    assert [event.stream for event in follower.poll()] == ["walk/1", "walk/2"]
    counted = declare(
        "ends", topics=("walk.completed",), tables="CREATE TABLE {ends} (stream text PRIMARY KEY)",
        statements=("INSERT INTO {ends} SELECT stream FROM {batch} b",),
    )  # fmt: skip
    rebuild(log, counted)
    Projector(log, [KNOWN.views["in_state"]]).catch_up()
    assert connection.execute("SELECT stream FROM ledger_views.ends ORDER BY 1").fetchall() == [
        ("walk/1",), ("walk/2",)
    ]  # fmt: skip
    rows = connection.execute("SELECT stream, status FROM ledger_views.in_state ORDER BY 1").fetchall()
    assert rows == [("walk/1", "done"), ("walk/2", "done")]


def test_the_copy_of_a_view_was_made_with_other_topics(domain: Any, declare: Declare) -> None:  # noqa: F811
    domain("walk.completed")
    view = declare("ends", topics=("walk.completed",))
    before = view.definition
    domain("walk.completed", was="walk.over")
    assert view.definition != before


def test_a_topic_is_the_name_of_one_class_also_a_former_one(domain: Any) -> None:
    domain("walk.completed", was="walk.over")
    with pytest.raises(TypeError, match=r"topic 'walk.over' already names .*WalkDone"):
        type("Another", (Event,), {}, topic="walk.over")
    with pytest.raises(TypeError, match=r"topic 'walk.begun' already names"):
        type("Another", (Event,), {}, topic="walk.other", was="walk.begun")
    assert "walk.other" not in KNOWN.events
    with pytest.raises(TypeError, match="has no topic now"):
        type("Another", (Event,), {}, was="walk.gone")
    with pytest.raises(TypeError, match=r"names the topic 'walk.other' twice"):
        type("Another", (Event,), {}, topic="walk.other", was="walk.other")


def test_a_topic_of_a_category_that_nobody_knows_makes_no_alarm(log: Ledger) -> None:
    log.append("nobody/1", Body("nobody.knows", 1, "{}"))
    assert differences(log) == []
