"""Items: the fold of SQL is that of Python, wherever batches are cut; and who is an item."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings

from ledger import Body, Ledger, split_name
from ledger.domain.canonical_json import body
from ledger.domain.domain import domain_of
from ledger.domain.known import KNOWN
from ledger.domain.level import Fact, Level
from ledger.domain.topics import read_event
from ledger.log.announce import announce
from ledger.pipelines import ProjectStore
from ledger.pipelines.item import flags_of, totals_of
from projections.engine.copies import Copies, projecting
from projections.engine.projector import Projector
from projections.engine.refold import refold
from projections.pipelines.items import Items
from tests.announcements import announce_levels
from tests.lamp import LampMade, OpenLamp
from tests.pipelines.pipelines import LSM_PIPELINE, PIPELINES
from tests.pipelines.survey import SURVEYS, PhotoId
from tests.views.histories import KINDS, Feeding, Row, item_histories

ITEMS = KNOWN.views[Items.name]
BY_CATEGORY = {kind.CATEGORY: kind for kind in KINDS}
Connection = psycopg.Connection[Any]


@pytest.fixture
def copies(log: Ledger) -> Iterator[Copies]:
    announce(log)
    with projecting(log) as connection:
        yield Copies(connection, log.schema)


@pytest.fixture
def projector(log: Ledger) -> Projector:
    return Projector(log, [ITEMS])


def column(connection: Connection, text: str, *parameters: Any) -> list[Any]:
    return [value for (value,) in connection.execute(text, parameters)]


# The law: a row is the fold of its stream.


def folded(rows: list[Row]) -> list[dict[str, Any]]:
    """The rows of the view, by `evolve` of the domain."""
    pasts: dict[str, list[Row]] = {}
    for row in rows:
        pasts.setdefault(row.stream, []).append(row)
    return [shown(stream, past) for stream, past in sorted(pasts.items())]


def shown(stream: str, past: list[Row]) -> dict[str, Any]:
    category, key = split_name(stream)
    kind = BY_CATEGORY[category]
    events = [(read_event(row.topic, 1, body(row.data)), row.recorded_at) for row in past]
    state: Any = kind(*key, past=events).state
    above = kind.IDENT.__mro__[1].__name__
    parent = next((k.name_of(*key[:-1]) for k in KINDS if k.IDENT.__name__ == above), None)
    plan = {name: getattr(state, name) for name in totals_of(kind.STATE) if getattr(state, name) is not None}
    return {
        "stream": stream, "category": category, "project": key[0], "ids": [int(part) for part in key[1:]],
        "parent": parent, "version": len(past), "status": state.status, "attempts": state.attempts,
        "reason": state.reason, "claims": state.claims, "incarnation": state.incarnation,
        "under": state.under, "flags": {name: True for name in flags_of(kind.STATE) if getattr(state, name)},
        "under_way": {claim.milestone: claim.number for claim in state.under_way}, "plan": plan,
        "project_name": state.project_name if state.incarnation and len(key) == 1 else None,
        **{name: getattr(state, name) for name in TIMES},
    }  # fmt: skip


TIMES = ("created_at", "updated_at", "processing_started_at", "processing_finished_at")


def read_back(row: dict[str, Any]) -> dict[str, Any]:
    """A row as JSON has it, with its times; without a number that no plan of today has."""
    row["plan"].pop("of_old", None)
    return row | {name: row[name] and datetime.fromisoformat(row[name]) for name in TIMES}


def law(copies: Copies, examples: int) -> Callable[[], None]:
    """A property to be checked: however a history is cut, the rows are the fold of its streams."""
    feeding = Feeding(copies, ITEMS)

    @settings(max_examples=examples, deadline=None, database=None)
    @given(drawn=item_histories())
    def property_(drawn: tuple[list[Row], list[int]]) -> None:
        rows, cuts = drawn
        feeding.rows(rows)
        at_once = feeding.fill([len(rows)])
        assert feeding.fill(cuts) == at_once
        assert sorted(map(read_back, at_once), key=lambda row: row["stream"]) == folded(rows)

    return property_


def test_rows_are_the_fold_of_their_streams_wherever_batches_are_cut(copies: Copies) -> None:
    law(copies, 60)()


@pytest.mark.slow
def test_rows_are_the_fold_of_their_streams_for_long(copies: Copies, minutes: float) -> None:
    until = time.monotonic() + minutes * 60
    check = law(copies, 300)
    while time.monotonic() < until:
        check()


# Who is an item, and how that is known.


def test_only_items_have_rows(log: Ledger, connection: Connection, projector: Projector) -> None:
    strip = LSM_PIPELINE.kinds[3].FACTS
    lamp = OpenLamp("one")
    lamp.make()
    log.commit(lamp)
    for stream in ("lamp/two", "lsm.strip", "lsm.strip/p/1/1", "lsm.strip/p/1/1/01", "lsm.strip/p/1/1/1/1"):
        log.append(stream, strip.created(under=1))
    log.append("lsm.channel.ready/p/1/1", strip.created(under=1))
    log.append("lsm.strip/p/1/1/8", Body("robot.moved", 1, "{}"))
    log.append("lsm.strip/p/1/1/9", strip.created(under=1))
    projector.catch_up()
    assert column(connection, "SELECT stream FROM ledger_views.items") == ["lsm.strip/p/1/1/9"]


def test_a_level_that_is_declared_later_is_folded_from_its_beginning(
    log: Ledger, connection: Connection, projector: Projector, monkeypatch: pytest.MonkeyPatch
) -> None:
    surveys = ProjectStore(SURVEYS, log)
    domain = domain_of(SURVEYS[0])
    levels = dict(domain.levels)
    for category in [name for name in levels if name.startswith("survey.")]:
        monkeypatch.delitem(domain.levels, category)
    with surveys.open_item(PhotoId("fields", 1, 2)) as photo:
        photo.set_flag("developed")
        photo.mark_completed()
        photo.measure(0.5)
    projector.catch_up()
    assert column(connection, "SELECT stream FROM ledger_views.items") == []

    monkeypatch.setattr(domain, "levels", levels)
    log.append("lamp/1", LampMade())  # news of what is declared is looked for with the next event
    projector.catch_up()

    tree = surveys.peek("fields", lambda view: view.to_dict())
    del tree["flights"]["1"]["photos"]["2"][
        "brightness"
    ]  # what a pipeline folds in its own way is not in the view
    assert column(connection, "SELECT ledger_views.project_tree('survey.project', 'fields')") == [tree]
    (version,) = column(connection, "SELECT version FROM ledger_views.items WHERE category = 'survey.photo'")
    assert version == log.head("survey.photo/fields/1/2").version  # type: ignore[union-attr]


def test_what_was_declared_stays_and_grows(log: Ledger, connection: Connection) -> None:
    def level(*flags: str) -> dict[str, Level]:
        facts = {"x.created": Fact("created", None, "pending")} | {
            f"x.{flag}": Fact("flag", flag) for flag in flags
        }
        return {"x": Level(None, None, True, (), frozenset(flags), frozenset(), facts)}

    number = "SELECT number FROM ledger.topic_statuses WHERE topic = 'x.created'"
    assert announce_levels(log, level("old")) == ["x"]
    before = column(connection, number)
    assert announce_levels(log, level("new")) == ["x"]
    assert column(connection, "SELECT flags FROM ledger.levels") == [["new", "old"]]
    assert column(connection, "SELECT topic FROM ledger.level_facts ORDER BY 1") == [
        "x.created",
        "x.new",
        "x.old",
    ]
    assert column(connection, number) > before
    assert announce_levels(log, level("old")) == announce_levels(log, level("new")) == []


def test_a_part_can_be_rebuilt(
    log: Ledger, connection: Connection, projector: Projector, copies: Copies
) -> None:
    for pipeline in PIPELINES:
        service = pipeline.service(log)
        for name in ("a", "b"):
            with service.store.locked(name) as project:
                project.find_or_create(pipeline.ident(3, name)).mark_completed()
    projector.catch_up()
    everything = "SELECT to_jsonb(i) FROM ledger_views.items i ORDER BY stream"
    before = column(connection, everything)
    copy = copies.live(ITEMS)
    assert copy is not None
    assert len(before) == 16
    spoil = "UPDATE ledger_views.items_1 SET reason = 'spoilt', attempts = 99"
    for part, many in [
        ({"prefix": "lsm.strip/a"}, 1),
        ({"category": "psoct.project"}, 2),
        ({"prefix": ""}, 16),
    ]:
        copies.connection.execute(spoil)
        refold(copies, ITEMS, copy.number, **part)
        assert sum(row in before for row in column(connection, everything)) == many
    assert column(connection, everything) == before


def test_a_bad_body_parks_its_stream_alone(log: Ledger, connection: Connection, projector: Projector) -> None:
    strip = LSM_PIPELINE.kinds[3].FACTS
    for number in (1, 2):
        log.append(f"lsm.strip/p/1/1/{number}", strip.created(under=1))
    log.append("lsm.strip/p/1/1/1", Body("lsm.strip.entered", 1, "{}"))
    log.append("lsm.strip/p/1/1/2", strip.started())
    projector.catch_up()
    assert column(connection, "SELECT stream FROM ledger.view_parked") == ["lsm.strip/p/1/1/1"]
    statuses = column(connection, "SELECT status FROM ledger_views.items ORDER BY stream")
    assert statuses == ["pending", "running"]
