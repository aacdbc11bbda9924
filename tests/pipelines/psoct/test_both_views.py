"""The views of both pipelines: frozen all the way down, detached, picklable, plain values."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from ledger import Ledger
from tests.pipelines.pipelines import Pipeline, each_pipeline, grow


@pytest.fixture
def service(log: Ledger, pipeline: Pipeline) -> Any:
    return pipeline.service(log)


def every_view(pipeline: Pipeline, view: Any, depth: int = 0) -> Iterator[tuple[int, Any]]:
    yield depth, view
    for child in getattr(view, pipeline.children[depth] or "", {}).values():
        yield from every_view(pipeline, child, depth + 1)


@each_pipeline
def test_nothing_in_a_view_can_be_changed(pipeline: Pipeline, service: Any) -> None:
    grow(pipeline, service)
    with service.open_project("p") as project:
        opened = project.to_view()
    for tree in (service.read_project("p"), opened):
        before, views = copy.deepcopy(tree), [*every_view(pipeline, tree)]
        assert [depth for depth, _ in views].count(3) == 8
        for depth, view in views:
            for name in [field.name for field in dataclasses.fields(view)] + ["other"]:
                with pytest.raises((AttributeError, TypeError)):
                    setattr(view, name, None)
            if pipeline.children[depth]:
                below = getattr(view, pipeline.children[depth])
                with pytest.raises(TypeError):
                    below[1] = view
                with pytest.raises((AttributeError, TypeError)):
                    below.clear()
        assert tree == before
        assert pickle.loads(pickle.dumps(tree)) == tree
        assert hash(tree) == hash(before)


@each_pipeline
def test_a_view_is_detached_from_what_it_was_taken_of(pipeline: Pipeline, service: Any) -> None:
    grow(pipeline, service)
    with service.open_project("p") as project:
        view = project.to_view()
        before = copy.deepcopy(view)
        for depth in (1, 2, 3):
            project.find(pipeline.ident(depth, "p", 1, 1, 1)).mark_started()
            project.find_or_create(pipeline.ident(depth, "p", *[3] * depth))
        getattr(project, f"delete_{pipeline.levels[1]}")(2)
    assert view == before
    assert service.read_project("p") != before


@each_pipeline
def test_a_view_is_plain_values_level_by_level(pipeline: Pipeline, service: Any) -> None:
    grow(pipeline, service)
    plain = json.loads(json.dumps(service.read_project("p").to_dict()))
    for depth, children in enumerate(pipeline.children):
        assert plain["processing_state"] == "pending"
        assert {name: plain[name] for name in pipeline.flags[depth]} == dict.fromkeys(
            pipeline.flags[depth], depth == 3
        )
        plain = plain[children]["2"] if children else plain
    assert {name: plain[name] for name in pipeline.ids(3)} == dict.fromkeys(pipeline.ids(3), 2)
