"""Names that differ only by case, `_` and `-` are one project wherever they go in (spec S0-11, W0-14)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, product
from typing import Any

import pytest

from ledger import AlreadyOpen, Ledger, LockTimeout
from ledger.pipelines import (
    LSM,
    OCT,
    Ident,
    LSMProjectState,
    LSMSliceId,
    LSMStateService,
    LSMStripId,
    OCTStateService,
    ProjectStore,
    StateService,
    complete_stage,
    enter_flow_stage,
    enter_milestone_stage,
)

SPELLINGS = ("Brain_7_b", "brain-7-b", "BRAIN_7-B", "brain_7-B")
FIRST = SPELLINGS[0]
SERVICES: dict[str, tuple[type[StateService], Any, tuple[str, ...]]] = {
    "lsm": (LSMStateService, LSM, ("project", "slice", "channel", "strip")),
    "psoct": (OCTStateService, OCT, ("project", "slice", "mosaic", "batch")),
}
every_pipeline = pytest.mark.parametrize("pipeline", SERVICES)


def ident_of(pipeline: str, depth: int, project: str) -> Ident:
    """The ident of the item at a depth, with the ids 1."""
    kind = SERVICES[pipeline][1][depth].IDENT
    ident: Ident = kind(project, *[1] * depth)
    return ident


def grown(log: Ledger, pipeline: str) -> ProjectStore:
    store = ProjectStore(SERVICES[pipeline][1], log)
    store.update_item(ident_of(pipeline, 3, FIRST), lambda leaf: leaf.mark_started())
    return store


def streams(log: Ledger) -> set[str]:
    return {info.stream for info in log.streams()}


def service_calls(log: Ledger, pipeline: str, project: str) -> Iterator[Callable[[], Any]]:
    """Every call of the service on every level; each answers with what it found."""
    kind, _, levels = SERVICES[pipeline]
    service: Any = kind(log)

    def seen(item: Any) -> tuple[Any, ...]:
        return type(item).__name__.removesuffix("View"), item.created_at

    def opened(method: Any, *given: Any, **ids: Any) -> tuple[Any, ...]:
        with method(*given, **ids) as item:
            return seen(item)

    for depth, level in enumerate(levels):
        ids = {f"{name}_id": 1 for name in levels[1 : depth + 1]}
        ident = ident_of(pipeline, depth, project)
        for verb in ("open", "read", "peek"):
            call = opened if verb == "open" else lambda method, *given, **ids: seen(method(*given, **ids))
            method, by_parts = (getattr(service, f"{verb}_{level}{end}") for end in ("", "_by_parts"))
            yield lambda call=call, method=method, ident=ident: call(method, ident)
            yield lambda call=call, method=method, ids=ids: call(method, project, **ids)
            yield lambda call=call, method=by_parts, ids=ids: call(method, project, **ids)


@every_pipeline
def test_every_call_of_a_service_finds_the_same_items(log: Ledger, pipeline: str) -> None:
    grown(log, pipeline)
    before, position = streams(log), log.bound()
    answers = [[call() for call in service_calls(log, pipeline, project)] for project in SPELLINGS]
    assert len(answers[0]) == 36
    assert answers == [answers[0]] * len(SPELLINGS)
    assert (streams(log), log.bound()) == (before, position), "nothing was created for another spelling"


@every_pipeline
def test_every_call_of_a_store_finds_the_same_items(log: Ledger, pipeline: str) -> None:
    store = grown(log, pipeline)
    before = streams(log)
    attempts = 1
    for project in SPELLINGS:
        leaf = ident_of(pipeline, 3, project)
        with store.locked(project) as opened:
            opened.find(leaf).mark_started()
        with store.open(project, lambda root, leaf=leaf: root.find(leaf)) as item:
            item.mark_started()
        with store.edit(project, lambda root, leaf=leaf: root.find_or_create(leaf)) as item:
            item.mark_started()
        with store.open_item(leaf) as item:
            item.mark_started()
        store.update(project, lambda root, leaf=leaf: root.find(leaf).mark_started())
        store.update_item(leaf, lambda item: item.mark_started())
        attempts += 6
        views = [store.read_item(leaf), store.peek_item(leaf)]
        assert [view.attempts for view in views] == [attempts] * 2
        roots = [look(project, lambda root: root) for look in (store.read, store.peek)]
        assert [root.project_name for root in roots] == [FIRST] * 2, "as it was first given"
    assert streams(log) == before


@every_pipeline
def test_locks_are_the_same_for_every_spelling(log: Ledger, pipeline: str) -> None:
    store, held, done = grown(log, pipeline), threading.Event(), threading.Event()

    def hold() -> None:
        with store.locked(FIRST):
            held.set()
            assert done.wait(30)

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(hold)
        assert held.wait(30)
        for project, depth in product(SPELLINGS, range(4)):
            ident = ident_of(pipeline, depth, project)
            with pytest.raises(LockTimeout):
                store.read_item(ident, timeout_seconds=0)
            with pytest.raises(LockTimeout), store.open_item(ident, timeout_seconds=0):
                pytest.fail("it is open elsewhere")
        done.set()
        holding.result(timeout=30)
    for project in SPELLINGS:
        with store.locked(FIRST), pytest.raises(AlreadyOpen), store.locked(project):
            pytest.fail("this thread has it open")


def test_stages_begin_and_end_under_any_spelling(log: Ledger) -> None:
    store = grown(log, "lsm")
    strip, *others = (LSMStripId(project, 1, 1, 1) for project in SPELLINGS)
    entry = enter_milestone_stage(store, strip, "compressed")
    assert [enter_milestone_stage(store, other, "compressed").skipped for other in others] == [True] * 3
    complete_stage(store, entry)
    assert store.peek_item(others[0]).compressed
    assert [enter_flow_stage(store, other).skipped for other in others] == [True] * 3


def test_lookups_deletions_and_lone_streams_take_any_spelling(log: Ledger) -> None:
    store = grown(log, "lsm")
    for project in SPELLINGS:
        assert log.load(LSMProjectState, project).state.project_name == FIRST
        assert LSMProjectState.name_of(project) == "lsm.project/brain-7-b"
        with store.locked(FIRST) as opened:
            strip = opened.get_strip(LSMStripId(project, 1, 1, 1))
            assert opened.get_or_create_strip(LSMStripId(project, 1, 1, 1)) is strip
            assert opened.delete(LSMSliceId(project, 1))
            opened.get_or_create_strip(LSMStripId(project, 1, 1, 1))
    assert len(streams(log)) == 4


def test_two_pipelines_of_one_project_never_meet(log: Ledger) -> None:
    lsm, psoct = (ProjectStore(levels, log) for levels in (LSM, OCT))
    with lsm.locked(FIRST) as one, psoct.locked("brain-7-b", 0) as other:
        one.mark_completed()
        other.mark_failed()
    states = [store.read(SPELLINGS[2], lambda root: root.processing_state) for store in (lsm, psoct)]
    assert states == ["completed", "failed"]


DIFFERENT = ("a-b", "ab", "a--b", "a b", "a.b", "a-b-", "-a-b", "a/b", "a%2Fb", "ä-b")


def test_what_differs_otherwise_is_another_project(log: Ledger) -> None:
    store = ProjectStore(LSM, log)
    for project in DIFFERENT:
        store.update(project, lambda root: root.mark_started())
    for project in chain(
        DIFFERENT, ("A_B", "AB", "A__B", "A B", "A.B", "A_b_", "_A-B", "A/b", "A%2fB", "Ä_b")
    ):
        assert store.peek(project, lambda root: root.attempts) == 1, project
    assert len(streams(log)) == len(DIFFERENT)
