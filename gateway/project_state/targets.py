"""What the options of a command point at, and what is said where nothing is there (spec S0-80 to S0-82)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..codes import Misuse, NotThere
from ..session import Session
from .declaration import Pipeline

if TYPE_CHECKING:
    from ledger.project_state import ProjectStore

Path = Mapping[str, int]
"""The ids from the slice down, by level, without a gap; empty for the project."""


def path_of(pipeline: Pipeline, ids: Mapping[str, int | None]) -> dict[str, int]:
    """The path that the options say. Raises Misuse where one is given without the one above it."""
    top, middle, leaf = pipeline.names
    for parent, child in ((middle, leaf), (top, middle), (top, leaf)):
        if ids[child] is not None and ids[parent] is None:
            raise Misuse(f"`--{parent}` is required when `--{child}` is provided.")
    return {level: number for level, number in ids.items() if number is not None}


@contextmanager
def store_of(session: Session, pipeline: Pipeline) -> Iterator[ProjectStore]:
    """The store of the pipeline's projects, for one command."""
    with session.ledger() as log:
        from ledger.project_state import ProjectStore

        yield ProjectStore(pipeline.kinds, log)


def found(store: ProjectStore, pipeline: Pipeline, project: str, path: Path) -> Any:
    """The view at the end of a path, as it is in this moment. Raises NotThere for the first level missing."""
    view = store.peek_item(pipeline.ident(project, path))
    if view is not None:
        return view
    above = [dict(list(path.items())[:depth]) for depth in range(len(path))]
    gone = (part for part in above if store.peek_item(pipeline.ident(project, part)) is None)
    raise not_there(project, next(gone, path))


def not_there(project: str, path: Path) -> NotThere:
    """That there is nothing at the end of this path."""
    level = list(path)[-1].capitalize() if path else "Project"
    return NotThere(f"{level} not found: {where(project, path)}", project=project, **path)


def where(project: str, path: Path) -> str:
    """A path in words: `slice=1, channel=2`; the project's name where it is empty."""
    return ", ".join(f"{name}={number}" for name, number in path.items()) or f"project={project!r}"


def first_missing(item: Any, path: Path) -> Path | None:
    """The part of the path that was not there before this scope opened its item; None where all was.

    A scope creates what is missing on the way to its item; a command that shall not create anything asks
    here, and raises, so that nothing is stored.
    """
    for depth in range(len(item.key)):
        if item.tree.item(item.key[: depth + 1]).news:
            return dict(list(path.items())[:depth])
    return None


def opened_there(item: Any, project: str, path: Path) -> Any:
    """The opened item itself. Raises NotThere where its scope has just created it, or what is above it."""
    missing = first_missing(item, path)
    if missing is not None:
        raise not_there(project, missing)
    return item
