"""Random operations through the service come out as in a plain model in memory."""

from __future__ import annotations

import copy
import time
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger import Ledger
from ledger.project_state import LSMStateService
from tests.project_state.folding import check_heads

LEVELS = ("project", "slice", "channel", "strip")
CHILDREN = ("slices", "channels", "strips", None)
FLAGS: tuple[dict[str, tuple[str, ...]], ...] = (
    {},
    {},
    {
        "mip_stitched": ("mip_stitched", "volume_stitched", "volume_uploaded"),
        "volume_stitched": ("volume_stitched", "volume_uploaded"),
        "volume_uploaded": ("volume_uploaded",),
    },
    {"archived": ("archived",), "compressed": ("compressed", "uploaded"), "uploaded": ("uploaded",)},
)
_numbers = count(1)

# The model: dicts in dicts, with no time but whether there is one.


def blank(depth: int) -> dict[str, Any]:
    flags = dict.fromkeys(FLAGS[depth], False)
    return {
        "state": "pending",
        "attempts": 0,
        "reason": None,
        "begun": False,
        "ended": False,
        **flags,
        "below": {},
    }


def reached(root: dict[str, Any], path: tuple[int, ...]) -> dict[str, Any]:
    item = root
    for depth, part in enumerate(path, 1):
        item = item["below"].setdefault(part, blank(depth))
    return item


def apply(item: dict[str, Any], change: tuple[Any, ...]) -> None:
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
            item |= dict.fromkeys(next(flags[flag] for flags in FLAGS if flag in flags), False)


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


def plain(view: Any, depth: int) -> dict[str, Any]:
    below = getattr(view, CHILDREN[depth]) if CHILDREN[depth] else {}
    flags = {flag: getattr(view, flag) for flag in FLAGS[depth]}
    return {
        "state": view.processing_state,
        "attempts": view.attempts,
        "reason": view.reason,
        "begun": view.processing_started_at is not None,
        "ended": view.finished,
        **flags,
        "below": {part: plain(child, depth + 1) for part, child in below.items()},
    }


def go(service: LSMStateService, root: dict[str, Any], name: str, step: tuple[Any, ...]) -> dict[str, Any]:
    """Do one step on both; the model after it. An aborted scope changes neither."""
    after = copy.deepcopy(root)
    try:
        match step:
            case ("open", path, changes, abort):
                ids = {f"{level}_id": part for level, part in zip(LEVELS[1:], path, strict=False)}
                with getattr(service, f"open_{LEVELS[len(path)]}")(name, **ids) as item:
                    for change in changes:
                        change_item(item, change)
                        apply(reached(after, path), change)
                    assert plain(item.to_view(), len(path)) == reached(after, path)
                    if abort:
                        raise InterruptedError
            case ("tree", works, abort):
                with service.open_project(name) as project:
                    for work in works:
                        within(project, after, work)
                    assert plain(project.to_view(), 0) == after
                    if abort:
                        raise InterruptedError
    except InterruptedError:
        return root
    return after


def within(project: Any, model: dict[str, Any], work: tuple[Any, ...]) -> None:
    match work:
        case ("delete", path):
            assert getattr(project, f"delete_{LEVELS[len(path)]}")(*path) is remove(model, path)
        case ("change", path, change):
            item = project
            for depth, part in enumerate(path):
                item = getattr(item, f"get_or_create_{LEVELS[depth + 1]}")(part)
            change_item(item, change)
            apply(reached(model, path), change)


# What is drawn.

parts = st.integers(0, 2)
paths = st.lists(parts, max_size=3).map(tuple)


def changes(depth: int) -> st.SearchStrategy[tuple[Any, ...]]:
    reasons = st.none() | st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5
    )
    always: list[st.SearchStrategy[tuple[Any, ...]]] = [
        st.sampled_from([("started",), ("completed",), ("pending",), ("touch",)]),
        st.tuples(st.just("failed"), reasons),
    ]
    if flags := list(FLAGS[depth]):
        always.append(st.tuples(st.just("set"), st.sampled_from(flags), st.booleans()))
        always.append(st.tuples(st.just("reset"), st.sampled_from(flags)))
    return st.one_of(always)


aborts = st.sampled_from([False, False, False, True])
opens = paths.flatmap(
    lambda path: st.tuples(st.just("open"), st.just(path), st.lists(changes(len(path)), max_size=4), aborts)
)
works = st.one_of(
    st.tuples(st.just("delete"), st.lists(parts, min_size=1, max_size=3).map(tuple)),
    paths.flatmap(lambda path: st.tuples(st.just("change"), st.just(path), changes(len(path)))),
)
trees = st.tuples(st.just("tree"), st.lists(works, max_size=5), aborts)
spellings = st.sampled_from(["Pro_{}", "pro-{}", "PRO-{}"])
steps = st.lists(st.tuples(spellings, opens | trees), max_size=8)


def run(service: LSMStateService, drawn: list[tuple[str, Any]]) -> None:
    number, root = next(_numbers), blank(0)
    for spelling, step in drawn:
        root = go(service, root, spelling.format(number), step)
        assert plain(service.read_project(spelling.format(number)), 0) == root


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=steps)
def test_the_service_does_what_the_model_does(service: LSMStateService, drawn: list[tuple[str, Any]]) -> None:
    run(service, drawn)


def test_after_random_operations_every_head_is_the_fold(service: LSMStateService, log: Ledger) -> None:
    @settings(max_examples=15, deadline=None, database=None)
    @given(drawn=steps)
    def grow(drawn: list[tuple[str, Any]]) -> None:
        run(service, drawn)

    grow()
    assert check_heads(log) > 0


@pytest.mark.slow
def test_the_service_does_what_the_model_does_for_long(
    service: LSMStateService, log: Ledger, minutes: float
) -> None:
    until = time.monotonic() + minutes * 60

    @settings(max_examples=200, deadline=None, database=None)
    @given(drawn=steps)
    def grow(drawn: list[tuple[str, Any]]) -> None:
        run(service, drawn)

    while time.monotonic() < until:
        grow()
    check_heads(log)
