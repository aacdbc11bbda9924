"""The shape that both pipelines share, each against its declaration in `pipelines.py`: items alone."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ledger import BadInput, MoveNotAllowed
from ledger.domain.known import KNOWN
from ledger.pipelines import Claim, Item, ProcessingState, Reset
from ledger.pipelines.item import children_name, flags_of, totals_of
from tests.pipelines.pipelines import Pipeline, each_flag, each_level, each_pipeline

START = datetime(2026, 1, 1, tzinfo=UTC)
MARKS = {"started": "running", "completed": "completed", "failed": "failed", "pending": "pending"}


def given(pipeline: Pipeline, depth: int, *names: str) -> Any:
    """An item that was created, and then these facts, a minute each."""
    kind = pipeline.kinds[depth]
    created = kind.FACTS.created(**({"under": 1} if depth else {"project_name": "P"}))
    facts = [created, *(KNOWN.events[f"{kind.CATEGORY}.{name}"]() for name in names)]
    past = [(fact, START + timedelta(minutes=n)) for n, fact in enumerate(facts)]
    return kind(*pipeline.key(depth), past=past)


def minute(n: int) -> datetime:
    return START + timedelta(minutes=n)


# What is declared.


@each_level
def test_a_level_is_named_like_all_others(pipeline: Pipeline, depth: int) -> None:
    kind, level = pipeline.kinds[depth], pipeline.levels[depth]
    name = f"{pipeline.prefix}{level.capitalize()}"
    category = f"{pipeline.name}.{level}"
    assert category == kind.CATEGORY
    assert kind.name_of(*pipeline.key(depth)) == "/".join([kind.CATEGORY, *map(str, pipeline.key(depth))])
    assert (kind.__name__, kind.STATE.__name__, kind.IDENT.__name__) == (
        f"{name}State",
        f"{name}StateView",
        f"{name}Id",
    )
    assert kind.IDENT.fields() == ("project_name", *pipeline.ids(depth))


@each_level
def test_a_level_declares_its_own_fields_and_no_others(pipeline: Pipeline, depth: int) -> None:
    kind, child = pipeline.kinds[depth], pipeline.children[depth]
    own = {field.name for field in dataclasses.fields(kind.STATE)}
    own -= {field.name for field in dataclasses.fields(Item)}
    ids = {"project_name"} if depth == 0 else set(pipeline.ids(depth))
    totals = set(pipeline.totals) if depth == 0 else set()
    assert own == {*ids, *totals, *pipeline.flags[depth], *([child] if child else [])}
    assert (set(totals_of(kind.STATE)), children_name(kind.STATE)) == (totals, child)
    assert dict(flags_of(kind.STATE)) == pipeline.flags[depth]
    for name in own:
        assert name in kind.__dict__, f"{name} is not declared for type checkers"


@each_level
def test_a_level_gets_and_makes_its_children_by_their_name(pipeline: Pipeline, depth: int) -> None:
    below = pipeline.levels[depth + 1 : depth + 2] if depth else pipeline.levels[1:]
    for level in below:
        assert hasattr(pipeline.kinds[depth], f"get_or_create_{level}")
    assert hasattr(pipeline.kinds[0], f"delete_{pipeline.levels[depth]}") is (depth > 0)


# What is done to an item.


@each_level
def test_a_new_item_is_pending_and_carries_its_ids(pipeline: Pipeline, depth: int) -> None:
    item = given(pipeline, depth)
    assert (item.processing_state, item.finished, item.succeeded) == (ProcessingState.PENDING, False, False)
    assert (item.created_at, item.updated_at, item.attempts) == (START, START, 0)
    assert (item.processing_started_at, item.processing_finished_at, item.reason) == (None, None, None)
    ids = pipeline.ids(depth)
    assert {name: getattr(item, name) for name in ids} == ids
    assert item.ident == pipeline.ident(depth)
    assert not any(getattr(item, flag) for flag in pipeline.flags[depth])


@each_level
def test_each_mark_may_follow_each_and_sets_its_times(pipeline: Pipeline, depth: int) -> None:
    for before in MARKS:
        for mark, state in MARKS.items():
            item = given(pipeline, depth, before)
            getattr(item, f"mark_{mark}")()
            now = item.updated_at
            assert now > minute(1)
            assert (item.processing_state, item.created_at) == (state, START)
            started = {"started": now, "pending": None}.get(mark, minute(1) if before == "started" else None)
            finished = now if mark in ("completed", "failed") else None
            assert (item.processing_started_at, item.processing_finished_at) == (started, finished)
            assert item.attempts == [before, mark].count("started")
            assert (item.finished, item.succeeded) == (finished is not None, mark == "completed")


@each_flag
def test_a_flag_is_set_alone_and_touches(pipeline: Pipeline, depth: int, flag: str) -> None:
    item = given(pipeline, depth)
    getattr(item, f"set_{flag}")()
    assert [event.topic for event in item.news] == [f"{pipeline.kinds[depth].CATEGORY}.{flag}"]
    assert [name for name in pipeline.flags[depth] if getattr(item, name)] == [flag]
    assert item.updated_at > START


@each_flag
@pytest.mark.parametrize("way", ["reset", "set False"])
def test_a_flag_that_is_cleared_takes_along_what_the_spec_says(
    pipeline: Pipeline, depth: int, flag: str, way: str
) -> None:
    every = pipeline.flags[depth]
    item = given(pipeline, depth, *every, "completed")
    getattr(item, f"reset_{flag}")() if way == "reset" else getattr(item, f"set_{flag}")(False)
    (event,) = item.news
    assert isinstance(event, Reset)
    assert event.cleared[0] == flag
    assert set(event.cleared) == set(every[flag])
    assert {name for name in every if getattr(item, name)} == set(every) - set(every[flag])
    assert (item.processing_state, item.processing_finished_at) == ("completed", minute(len(every) + 1))
    assert item.updated_at > minute(len(every) + 1)


@each_flag
def test_a_claim_of_a_milestone_clears_it_first_and_ends_with_it(
    pipeline: Pipeline, depth: int, flag: str
) -> None:
    item = given(pipeline, depth, *pipeline.flags[depth])
    first, second = item.enter(flag), item.enter(flag)
    assert item.under_way == (Claim(flag, second),)
    assert not any(getattr(item, name) for name in pipeline.flags[depth][flag])
    assert (item.holds(flag, first), item.leave(flag, first)) == (False, False)
    item.set_flag(flag)
    assert (item.under_way, getattr(item, flag)) == ((), True)


@each_level
def test_what_is_not_there_is_not_changed(pipeline: Pipeline, depth: int) -> None:
    for item in (pipeline.kinds[depth](*pipeline.key(depth)), given(pipeline, depth, "deleted")):
        changes = [item.touch, *(getattr(item, f"mark_{mark}") for mark in MARKS)]
        changes += [
            getattr(item, f"{verb}_{flag}") for verb in ("set", "reset") for flag in pipeline.flags[depth]
        ]
        for change in changes:
            with pytest.raises(MoveNotAllowed, match="from there: pending"):
                change()
        assert item.news == []


@each_level
def test_a_new_life_begins_blank(pipeline: Pipeline, depth: int) -> None:
    item = given(pipeline, depth, "started", *pipeline.flags[depth], "failed", "deleted")
    item.create(under=1 if depth else 0, name="P")
    fresh = given(pipeline, depth).state
    assert item.state.incarnation == 2
    now = item.updated_at
    assert item.state == dataclasses.replace(fresh, incarnation=2, created_at=now, updated_at=now)


@each_level
def test_a_field_is_changed_by_methods_only(pipeline: Pipeline, depth: int) -> None:
    item = given(pipeline, depth)
    for name in ("processing_state", "updated_at", *pipeline.flags[depth], *pipeline.ids(depth)):
        with pytest.raises(AttributeError, match="changed by methods"):
            setattr(item, name, True)
    with pytest.raises(BadInput, match="is not a flag of"):
        item.set_flag("polished")


@each_pipeline
def test_a_plan_is_kept_and_merged(pipeline: Pipeline) -> None:
    project = given(pipeline, 0)
    for name, value in pipeline.planned.items():
        project.plan(**{name: value})
    assert {name: getattr(project, name) for name in pipeline.totals} == pipeline.planned
    count = len(project.news)
    project.plan(**pipeline.planned)
    assert len(project.news) == count == len(pipeline.planned)
    project.plan(**{pipeline.totals[0]: None})
    assert getattr(project, pipeline.totals[0]) is None
    for bad in (-1, True, "4", 1.5):
        with pytest.raises(BadInput, match=pipeline.totals[0]):
            project.plan(**{pipeline.totals[0]: bad})
