"""The services of both pipelines, against one declaration: signatures, round trips, deletes, locks."""

from __future__ import annotations

import inspect
import threading
from itertools import product
from typing import Any

import pytest

from ledger import BadInput, Ledger, LockTimeout, MoveNotAllowed
from ledger.pipelines import LSM, OCT, LSMStateService, OCTStateService, ProjectStore
from tests.pipelines.pipelines import LSM_PIPELINE, OCT_PIPELINE, Pipeline, each_level, each_pipeline, grow
from tests.pipelines.recorded_facts import check_heads, recorded, words

VERBS = ("open", "read", "peek")
OPTIONAL = {
    "lsm.strip": {"channel_id": 1},
    "psoct.mosaic": {"slice_id": None},
    "psoct.batch": {"slice_id": None},
}
"""Ids that need not be given, by level: what they are then."""


@pytest.fixture
def service(log: Ledger, pipeline: Pipeline) -> Any:
    return pipeline.service(log)


def look(service: Any, pipeline: Pipeline, depth: int, *parts: int) -> Any:
    return service.store.read_item(pipeline.ident(depth, "p", *parts))


# The twenty-four methods.


@each_level
def test_a_level_has_six_methods_with_these_parameters(pipeline: Pipeline, depth: int) -> None:
    level, ids = pipeline.levels[depth], set(pipeline.ids(depth))
    optional = OPTIONAL.get(f"{pipeline.name}.{level}", {})
    for verb, way in product(VERBS, ("", "_by_parts")):
        signature = inspect.signature(getattr(pipeline.service, f"{verb}_{level}{way}"))
        _, first, *rest = signature.parameters.values()
        timeout = {"timeout_seconds": None} if verb != "peek" else {}
        assert first.name == ("project_name" if way else "project")
        assert {each.kind for each in rest} <= {inspect.Parameter.KEYWORD_ONLY}
        assert {each.name for each in rest} == ids | set(timeout)
        defaults = {each.name: each.default for each in rest if each.default is not inspect.Parameter.empty}
        assert defaults == timeout | (optional if way else dict.fromkeys(ids))


@each_pipeline
def test_a_service_has_these_methods_and_no_others(pipeline: Pipeline) -> None:
    wanted = {f"{v}_{level}{w}" for v, level, w in product(VERBS, pipeline.levels, ("", "_by_parts"))}
    found = {name for name in dir(pipeline.service) if name.startswith(VERBS)}
    assert (found, len(found)) == (wanted, 24)
    assert tuple(pipeline.service.LEVELS) == pipeline.kinds


@each_pipeline
def test_every_level_goes_there_and_back(pipeline: Pipeline, service: Any, log: Ledger) -> None:
    for depth, level in enumerate(pipeline.levels):
        ids, ident = pipeline.ids(depth), pipeline.ident(depth)
        calls = [("", (ident,), {}), ("", ("p",), ids), ("_by_parts", ("P",), ids)]
        for attempt, (way, given, named) in enumerate(calls, 1):
            with getattr(service, f"open_{level}{way}")(*given, **named, timeout_seconds=5) as item:
                item.mark_started()
                assert (item.attempts, item.ident.key) == (attempt, ident.key)
        looks = [
            getattr(service, f"{verb}_{level}{way}")(*given, **named)
            for verb, (way, given, named) in product(VERBS[1:], calls)
        ]
        assert looks == [item.to_view()] * len(looks)
        assert words(log, item.name) == ["created", *["started"] * 3]
    assert check_heads(log) == 4


@each_pipeline
def test_looking_creates_nothing(pipeline: Pipeline, service: Any, log: Ledger) -> None:
    for verb in VERBS[1:]:
        blank = getattr(service, f"{verb}_project")("Nobody_1")
        assert blank == pipeline.kinds[0].STATE(project_name="Nobody_1")
        for depth, level in [*enumerate(pipeline.levels)][1:]:
            assert getattr(service, f"{verb}_{level}")(pipeline.ident(depth)) is None
            assert getattr(service, f"{verb}_{level}_by_parts")("p", **pipeline.ids(depth)) is None
    assert recorded(log) == []


@each_pipeline
def test_a_scope_lands_whole_or_not_at_all(pipeline: Pipeline, service: Any, log: Ledger) -> None:
    def fail() -> None:
        with service.open_project("p") as project:
            project.find_or_create(pipeline.ident(3)).mark_completed()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert recorded(log) == []
    grow(pipeline, service)
    assert len({event.recorded_at for event in log.log(0, log.bound())}) == 1
    service.store.update("p", lambda project: project.plan(**pipeline.planned))
    planned = service.read_project("p")
    assert {name: getattr(planned, name) for name in pipeline.totals} == pipeline.planned


@each_pipeline
def test_updated_at_never_goes_back(pipeline: Pipeline, service: Any) -> None:
    with service.store.open_item(pipeline.ident(3)) as leaf:
        last = leaf.updated_at
    changes = ["mark_started", *(f"set_{flag}" for flag in pipeline.flags[3]), "mark_completed", "touch"]
    changes += [*(f"reset_{flag}" for flag in pipeline.flags[3]), "mark_failed", "mark_pending"]
    for change in changes:
        with service.store.open_item(pipeline.ident(3)) as leaf:
            getattr(leaf, change)()
        view = look(service, pipeline, 3)
        assert view.updated_at > last
        assert view.updated_at >= (view.processing_finished_at or last)
        last = view.updated_at
    above = [look(service, pipeline, depth) for depth in range(3)]
    assert all(view.updated_at == view.created_at for view in above)


# Deleting, and lives.


@each_pipeline
def test_a_deleted_item_goes_with_all_below_it(pipeline: Pipeline, service: Any, log: Ledger) -> None:
    for depth in (3, 2, 1):
        name = f"p{depth}"
        grow(pipeline, service, name)
        before, ids = service.read_project(name), [1] * depth
        with service.open_project(name) as project:
            delete = getattr(project, f"delete_{pipeline.levels[depth]}")
            assert (delete(*ids[:-1], 9), delete(*ids), delete(*ids)) == (False, True, False)
        after = service.read_project(name)
        assert after == project.to_view()
        assert service.store.read_item(pipeline.ident(depth, name, *ids)) is None
        assert after.updated_at > before.updated_at
        gone = [s for s, topic in recorded(log) if topic.endswith(".deleted") and f"/{name}/" in s]
        assert len(gone) == {3: 1, 2: 3, 1: 7}[depth]
        assert words(log, pipeline.kinds[0].name_of(name)) == ["created", "touched"]
        assert words(log, pipeline.kinds[1].name_of(name, 2)) == ["created"]
    check_heads(log)


@each_pipeline
def test_what_was_deleted_changes_nothing_when_it_is_missing(
    pipeline: Pipeline, service: Any, log: Ledger
) -> None:
    grow(pipeline, service)
    before = recorded(log)
    with service.open_project("p") as project:
        for depth in (1, 2, 3):
            for place in range(depth):
                ids = [9 if n == place else 1 for n in range(depth)]
                assert getattr(project, f"delete_{pipeline.levels[depth]}")(*ids) is False
    assert recorded(log) == before


@each_pipeline
def test_a_new_life_does_not_inherit_what_was_below(pipeline: Pipeline, service: Any, log: Ledger) -> None:
    grow(pipeline, service)
    with service.open_project("p") as project:
        old = project.find(pipeline.ident(3, "p", 1, 1, 1))
        getattr(project, f"delete_{pipeline.levels[1]}")(1)
        with pytest.raises(MoveNotAllowed):
            old.mark_started()
        project.find_or_create(pipeline.ident(2, "p", 1, 2)).mark_started()
    again = look(service, pipeline, 1, 1)
    assert (again.incarnation, [*getattr(again, pipeline.children[1])]) == (2, [2])
    assert look(service, pipeline, 3, 1, 2, 1) is None
    with service.store.open_item(pipeline.ident(3, "p", 1, 2, 1)) as leaf:
        assert not any(getattr(leaf, flag) for flag in pipeline.flags[3])
    assert look(service, pipeline, 3, 1, 2, 1).incarnation == 2
    log.append(pipeline.kinds[1].name_of("p", 1), pipeline.kinds[1].FACTS.deleted())
    assert look(service, pipeline, 3, 1, 2, 1) is None
    assert look(service, pipeline, 3, 2, 2, 1) is not None


# Two pipelines of one project.


def test_the_pipelines_of_one_project_never_meet(log: Ledger) -> None:
    lsm, oct_ = LSMStateService(log), OCTStateService(log)
    with lsm.open_project("p") as one, oct_.open_project("p", timeout_seconds=5) as other:
        one.get_or_create_slice(1).mark_completed()
        other.get_or_create_slice(1).mark_failed("no focus")
    assert [lsm.read_slice("p", slice_id=1).processing_state] == ["completed"]
    assert [oct_.read_slice("p", slice_id=1).processing_state] == ["failed"]
    with lsm.open_project("p") as one:
        assert one.delete_slice(1)
    assert oct_.read_slice("p", slice_id=1) is not None
    assert not {stream for stream, topic in recorded(log) if stream.split("/")[0] not in topic}


@each_pipeline
def test_a_scope_of_another_thread_is_waited_for(pipeline: Pipeline, service: Any) -> None:
    opened, done, outcomes = threading.Event(), threading.Event(), []

    def hold() -> None:
        with service.store.open_item(pipeline.ident(3)):
            opened.set()
            done.wait(20)

    holder = threading.Thread(target=hold)
    holder.start()
    assert opened.wait(20)
    try:
        for depth, level in enumerate(pipeline.levels):
            with (
                pytest.raises(LockTimeout),
                getattr(service, f"open_{level}")(pipeline.ident(depth), timeout_seconds=0.05),
            ):
                outcomes.append(level)
        beside = pipeline.ident(3, "p", *pipeline.leaf[:2], 9)
        with service.store.open_item(beside, timeout_seconds=5):
            outcomes.append("beside")
    finally:
        done.set()
        holder.join(20)
    assert outcomes == ["beside"]


@pytest.mark.parametrize(
    ("pipeline", "other"), [(LSM_PIPELINE, OCT_PIPELINE), (OCT_PIPELINE, LSM_PIPELINE)], ids=["lsm", "psoct"]
)
def test_a_service_refuses_what_is_of_the_other_pipeline(pipeline: Pipeline, other: Pipeline) -> None:
    service = pipeline.service(ProjectStore(pipeline.service.LEVELS))
    for verb, (depth, level) in product(VERBS, enumerate(pipeline.levels)):
        with pytest.raises(BadInput, match="is needed here"):
            getattr(service, f"{verb}_{level}")(other.ident(depth))
    with pytest.raises(BadInput, match="of the levels of this service"):
        pipeline.service(ProjectStore(OCT if pipeline is LSM_PIPELINE else LSM))
