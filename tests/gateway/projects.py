"""A project of each pipeline, filled alike, for the tests of their commands."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from ledger import Ledger
from ledger.pipelines import LSM, OCT, Pipeline, ProjectStore

pipelines = pytest.mark.parametrize("pipeline", [LSM, OCT], ids=lambda pipeline: pipeline.name)


def fill(log: Ledger, pipeline: Pipeline, project: str = "Brain_7") -> ProjectStore:
    """Slices 1 and 2, two items below each, and 1, 2, 3 below each of those."""
    store = ProjectStore(pipeline, log)
    with store.locked(project) as opened:
        for a_slice in (1, 2):
            for middle in (1, 2):
                for leaf in (1, 2, 3):
                    opened.find_or_create(pipeline.ident(project, path(pipeline, a_slice, middle, leaf)))
    return store


def path(pipeline: Pipeline, *ids: int) -> dict[str, int]:
    """The ids by level, from the slice down."""
    return dict(zip(pipeline.names, ids, strict=False))


def options(pipeline: Pipeline, *ids: int | str) -> list[str]:
    """The same as options: `--slice 1 --channel 2`."""
    pairs = zip(pipeline.names, ids, strict=False)
    return [word for name, number in pairs for word in (f"--{name}", str(number))]


def at(store: ProjectStore, pipeline: Pipeline, *ids: int) -> Any:
    """The view at the end of a path, None where there is none."""
    return store.peek_item(pipeline.ident("brain_7", path(pipeline, *ids)))


@contextmanager
def elsewhere(scope: AbstractContextManager[Any]) -> Iterator[None]:
    """Another thread has the scope open meanwhile, and its item is touched."""
    opened, done = threading.Event(), threading.Event()

    def hold() -> None:
        with scope as item:
            item.touch()
            opened.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert opened.wait(60)
        yield
    finally:
        done.set()
        thread.join()


def leaves(store: ProjectStore, pipeline: Pipeline) -> dict[tuple[int, int, int], Any]:
    """Every leaf that is there, by its ids."""
    top, middle, leaf = (level.plural for level in pipeline.below)
    project = at(store, pipeline)
    return {
        (a_slice, child, number): view
        for a_slice, slice_view in getattr(project, top).items()
        for child, child_view in getattr(slice_view, middle).items()
        for number, view in getattr(child_view, leaf).items()
    }
