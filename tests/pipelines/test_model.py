"""Random operations through the service come out as in a plain model in memory."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import Ledger
from ledger.pipelines import StateService
from tests.pipelines.pipelines import Cascades, Pipeline, each_pipeline
from tests.pipelines.recorded_facts import check_heads

_numbers = count(1)

# The model: dicts in dicts, with no time but whether there is one.


def blank(pipeline: Pipeline, depth: int) -> dict[str, Any]:
    flags = dict.fromkeys(pipeline.flags[depth], False)
    return {
        "state": "pending",
        "attempts": 0,
        "reason": None,
        "begun": False,
        "ended": False,
        **flags,
        "below": {},
    }


def reached(pipeline: Pipeline, root: dict[str, Any], path: tuple[int, ...]) -> dict[str, Any]:
    item = root
    for depth, part in enumerate(path, 1):
        item = item["below"].setdefault(part, blank(pipeline, depth))
    return item


def apply(cascades: Cascades, item: dict[str, Any], change: tuple[Any, ...]) -> None:
    match change:
        case ("started",):
            item |= {
                "state": "running",
                "attempts": item["attempts"] + 1,
                "begun": True,
                "ended": False,
                "reason": None,
            }
        case ("completed",):
            item |= {"state": "completed", "ended": True, "reason": None}
        case ("failed", reason):
            item |= {"state": "failed", "ended": True, "reason": reason}
        case ("pending",):
            item |= {"state": "pending", "begun": False, "ended": False, "reason": None}
        case ("set", flag, True):
            item[flag] = True
        case ("set" | "reset", flag, *_):
            item |= dict.fromkeys(cascades[flag], False)


def remove(root: dict[str, Any], path: tuple[int, ...]) -> bool:
    item = root
    for part in path[:-1]:
        if part not in item["below"]:
            return False
        item = item["below"][part]
    return item["below"].pop(path[-1], None) is not None


# The real thing, and how it looks in the model's terms.


def change_item(item: Any, change: tuple[Any, ...]) -> None:
    match change:
        case ("set" | "reset" as verb, flag, *value):
            getattr(item, f"{verb}_{flag}")(*value)
        case ("touch",):
            item.touch()
        case (word, *rest):
            getattr(item, f"mark_{word}")(*rest)


def plain(pipeline: Pipeline, view: Any, depth: int) -> dict[str, Any]:
    children = pipeline.children[depth]
    below = getattr(view, children) if children else {}
    flags = {flag: getattr(view, flag) for flag in pipeline.flags[depth]}
    return {
        "state": view.processing_state,
        "attempts": view.attempts,
        "reason": view.reason,
        "begun": view.processing_started_at is not None,
        "ended": view.finished,
        **flags,
        "below": {part: plain(pipeline, child, depth + 1) for part, child in below.items()},
    }


@dataclass(frozen=True)
class Twins:
    """A pipeline's service, and how a step goes there and in the model."""

    pipeline: Pipeline
    service: StateService

    def go(self, root: dict[str, Any], name: str, step: tuple[Any, ...]) -> dict[str, Any]:
        """Do one step on both; the model after it. An aborted scope changes neither."""
        after = copy.deepcopy(root)
        try:
            match step:
                case ("open", path, changes, abort):
                    self.open(after, name, path, changes, abort)
                case ("tree", works, abort):
                    self.tree(after, name, works, abort)
        except InterruptedError:
            return root
        return after

    def open(self, model: dict[str, Any], name: str, path: Any, changes: Any, abort: bool) -> None:
        depth = len(path)
        ids = self.pipeline.ids(depth, *path)
        with getattr(self.service, f"open_{self.pipeline.levels[depth]}")(name, **ids) as item:
            for change in changes:
                change_item(item, change)
                apply(self.pipeline.flags[depth], reached(self.pipeline, model, path), change)
            assert self.plain(item.to_view(), depth) == reached(self.pipeline, model, path)
            if abort:
                raise InterruptedError

    def tree(self, model: dict[str, Any], name: str, works: Any, abort: bool) -> None:
        with self.service.store.locked(name) as project:
            for work in works:
                self.within(project, model, work)
            assert self.plain(project.to_view(), 0) == model
            if abort:
                raise InterruptedError

    def within(self, project: Any, model: dict[str, Any], work: tuple[Any, ...]) -> None:
        match work:
            case ("delete", path):
                deleted = getattr(project, f"delete_{self.pipeline.levels[len(path)]}")(*path)
                assert deleted is remove(model, path)
            case ("change", path, change):
                item = project
                for level, part in zip(self.pipeline.levels[1:], path, strict=False):
                    item = getattr(item, f"get_or_create_{level}")(part)
                change_item(item, change)
                apply(self.pipeline.flags[len(path)], reached(self.pipeline, model, path), change)

    def plain(self, view: Any, depth: int) -> dict[str, Any]:
        return plain(self.pipeline, view, depth)

    def run(self, drawn: list[tuple[str, Any]]) -> None:
        number, root = next(_numbers), blank(self.pipeline, 0)
        for spelling, step in drawn:
            root = self.go(root, spelling.format(number), step)
            found = self.service.store.read(spelling.format(number), lambda view: view)
            assert self.plain(found, 0) == root


# What is drawn.

parts = st.integers(0, 2)
paths = st.lists(parts, max_size=3).map(tuple)


def changes(flags: list[str]) -> st.SearchStrategy[tuple[Any, ...]]:
    reasons = st.none() | st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5
    )
    always: list[st.SearchStrategy[tuple[Any, ...]]] = [
        st.sampled_from([("started",), ("completed",), ("pending",), ("touch",)]),
        st.tuples(st.just("failed"), reasons),
    ]
    if flags:
        always.append(st.tuples(st.just("set"), st.sampled_from(flags), st.booleans()))
        always.append(st.tuples(st.just("reset"), st.sampled_from(flags)))
    return st.one_of(always)


aborts = st.sampled_from([False, False, False, True])
spellings = st.sampled_from(["Pro_{}", "pro-{}", "PRO-{}"])


def steps(pipeline: Pipeline) -> st.SearchStrategy[list[tuple[str, Any]]]:
    def at(path: tuple[int, ...]) -> st.SearchStrategy[tuple[Any, ...]]:
        return changes(list(pipeline.flags[len(path)]))

    opens = paths.flatmap(
        lambda path: st.tuples(st.just("open"), st.just(path), st.lists(at(path), max_size=4), aborts)
    )
    works = st.one_of(
        st.tuples(st.just("delete"), st.lists(parts, min_size=1, max_size=3).map(tuple)),
        paths.flatmap(lambda path: st.tuples(st.just("change"), st.just(path), at(path))),
    )
    trees = st.tuples(st.just("tree"), st.lists(works, max_size=5), aborts)
    return st.lists(st.tuples(spellings, opens | trees), max_size=8)


def drawn_steps(log: Ledger, pipeline: Pipeline, examples: int) -> Callable[[], None]:
    """A property to be checked: whatever is drawn comes out as in the model."""
    twins = Twins(pipeline, pipeline.service(log))

    @settings(max_examples=examples, deadline=None, database=None)
    @given(drawn=steps(pipeline))
    def property_(drawn: list[tuple[str, Any]]) -> None:
        twins.run(drawn)

    return property_


@each_pipeline
def test_the_service_does_what_the_model_does_and_every_head_is_the_fold(
    log: Ledger, pipeline: Pipeline
) -> None:
    drawn_steps(log, pipeline, 40)()
    assert check_heads(log) > 0


@pytest.mark.slow
@each_pipeline
def test_the_service_does_what_the_model_does_for_long(
    log: Ledger, pipeline: Pipeline, minutes: float
) -> None:
    until = time.monotonic() + minutes * 60
    check = drawn_steps(log, pipeline, 200)
    while time.monotonic() < until:
        check()
    check_heads(log)
