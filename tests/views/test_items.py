"""Items: the fold of SQL is that of Python, wherever batches are cut; and who is an item."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings

from ledger import Body, Ledger, split_name
from ledger.domain.canonical_json import body
from ledger.domain.known import KNOWN
from ledger.domain.state import dump
from ledger.domain.topics import read_event
from ledger.log.announce import announce
from ledger.pipelines import ProjectStore
from projections.engine.copies import Copies, projecting
from projections.engine.projector import Projector, views_named
from projections.engine.refold import refold
from projections.engine.view import View
from tests.lamp import OpenLamp
from tests.pipelines.pipelines import LSM_PIPELINE
from tests.pipelines.survey import SURVEYS, PhotoId
from tests.views.histories import KINDS, Feeding, Row, item_histories

VIEWS = [KNOWN.views["lsm_items"], KNOWN.views["psoct_items"]]
BY_CATEGORY = {kind.CATEGORY: kind for kind in KINDS}
Connection = psycopg.Connection[Any]


@pytest.fixture
def copies(log: Ledger) -> Iterator[Copies]:
    announce(log)
    with projecting(log) as connection:
        yield Copies(connection, log.schema)


@pytest.fixture
def projector(log: Ledger) -> Projector:
    return Projector(log, VIEWS)


def column(connection: Connection, text: str, *parameters: Any) -> list[Any]:
    return [value for (value,) in connection.execute(text, parameters)]


# The law: a row is the fold of its stream.


def folded(rows: list[Row], view: View) -> list[dict[str, Any]]:
    """The rows of a view: the items whose streams begin with their creation, by `evolve` of the domain."""
    pasts: dict[str, list[Row]] = {}
    for row in rows:
        pasts.setdefault(row.stream, []).append(row)
    items = {stream: past for stream, past in pasts.items() if past[0].topic.endswith(".created")}
    kinds = {kind.CATEGORY for kind in view.streams}  # type: ignore[attr-defined]
    return [shown(stream, past) for stream, past in sorted(items.items()) if split_name(stream)[0] in kinds]


def shown(stream: str, past: list[Row]) -> dict[str, Any]:
    category, key = split_name(stream)
    kind = BY_CATEGORY[category]
    events = [(read_event(row.topic, 1, body(row.data)), row.recorded_at) for row in past]
    state: Any = kind(*key, past=events).state
    above = kind.IDENT.__mro__[1].__name__
    parent = next((k.name_of(*key[:-1]) for k in KINDS if k.IDENT.__name__ == above), None)
    return {
        "stream": stream, "category": category, "project": key[0], "ids": [int(part) for part in key[1:]],
        "parent": parent, "position": past[0].position, "version": len(past), "status": state.status,
        "attempts": state.attempts, "reason": state.reason, "incarnation": state.incarnation,
        "under": state.under, "state": json.loads(dump(state)),
        **{name: getattr(state, name) for name in TIMES},
    }  # fmt: skip


TIMES = ("created_at", "updated_at", "processing_started_at", "processing_finished_at")


def read_back(row: dict[str, Any]) -> dict[str, Any]:
    """A row as JSON has it, with its times."""
    return row | {name: row[name] and datetime.fromisoformat(row[name]) for name in TIMES}


def law(copies: Copies, examples: int) -> Callable[[], None]:
    """A property to be checked: however a history is cut, the rows are the fold of its streams."""
    feeding = [Feeding(copies, view) for view in VIEWS]

    @settings(max_examples=examples, deadline=None, database=None)
    @given(drawn=item_histories())
    def property_(drawn: tuple[list[Row], list[int]]) -> None:
        rows, cuts = drawn
        for view, feed in zip(VIEWS, feeding, strict=True):
            feed.rows(rows)
            at_once = feed.fill([len(rows)])
            assert feed.fill(cuts) == at_once
            assert sorted(map(read_back, at_once), key=lambda row: row["stream"]) == folded(rows, view)

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
    assert column(connection, "SELECT stream FROM ledger_views.lsm_items") == ["lsm.strip/p/1/1/9"]


def test_a_pipeline_of_a_user_has_a_view_of_its_own(log: Ledger, connection: Connection) -> None:
    """Also the fields that its own `evolve` sets are in it; only processes that import it keep it."""
    surveys = ProjectStore(SURVEYS, log)
    with surveys.open_item(PhotoId("fields", 1, 2)) as photo:
        photo.set_flag("developed")
        photo.mark_completed()
        photo.measure(0.5)
    Projector(log, views_named(["survey_items"])).catch_up()
    tree = surveys.peek("fields", lambda view: view.to_dict())
    assert tree["flights"]["1"]["photos"]["2"]["brightness"] == 0.5
    assert column(connection, "SELECT ledger_views.survey_tree('fields')") == [tree]
    everything = "SELECT stream FROM ledger_views.survey_items WHERE (state -> 'developed')::boolean"
    assert column(connection, everything) == ["survey.photo/fields/1/2"]


def test_a_part_can_be_rebuilt(
    log: Ledger, connection: Connection, projector: Projector, copies: Copies
) -> None:
    service = LSM_PIPELINE.service(log)
    for name in ("a", "b"):
        with service.store.locked(name) as project:
            project.find_or_create(LSM_PIPELINE.ident(3, name)).mark_completed()
    projector.catch_up()
    everything = "SELECT to_jsonb(i) FROM ledger_views.lsm_items i ORDER BY stream"
    before = column(connection, everything)
    copy = copies.live(VIEWS[0])
    assert copy is not None
    assert len(before) == 8
    spoil = "UPDATE ledger_views.lsm_items_1 SET reason = 'spoilt', attempts = 99"
    for part, many in [({"prefix": "lsm.strip/a"}, 1), ({"category": "lsm.project"}, 2), ({"prefix": ""}, 8)]:
        copies.connection.execute(spoil)
        refold(copies, VIEWS[0], copy.number, **part)
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
    statuses = column(connection, "SELECT status FROM ledger_views.lsm_items ORDER BY stream")
    assert statuses == ["pending", "running"]
