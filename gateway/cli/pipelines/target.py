"""The item that a command's options select, and the error if it does not exist (spec S0-80 to S0-82)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..errors import Misuse, NotThere
from ..session import Session

if TYPE_CHECKING:
    from ledger.pipelines import Pipeline, ProjectStore

Path = Mapping[str, int]
"""The ids from the slice down, by level, without a gap; empty for the project."""


def path_of(pipeline: Pipeline, ids: Mapping[str, int | None], *, counting: bool = False) -> dict[str, int]:
    """The path from the options. Raises Misuse if an id is given without the one above it.

    counting: an id that can be computed may be left out; `whole` adds it.
    """
    for depth in range(len(pipeline.names) - 1, 0, -1):
        parent, child = pipeline.names[depth - 1 : depth + 1]
        if counting and depth + 1 == pipeline.counted:
            continue
        if ids[child] is not None and ids[parent] is None:
            raise Misuse(f"`--{parent}` is required when `--{child}` is provided.")
    return {level: number for level, number in ids.items() if number is not None}


def whole(store: ProjectStore, pipeline: Pipeline, project: str, path: Path) -> Path:
    """The path from its first level on, whose id is computed by the one rule if not given (spec S0-43).

    It uses the number that the project plans, else that of the declaration. Raises BadName for an id without
    a parent.
    """
    top, child = pipeline.names[0], pipeline.levels[pipeline.counted]
    if not path or top in path or child.parent_of is None or child.total is None:
        return path
    known = store.ledger.load(pipeline.kinds[0], project).state
    planned = getattr(known, child.total.name) if known.exists else None
    return {top: child.parent_of(path[child.name], planned or child.total.unplanned or 1), **path}


@contextmanager
def store_of(session: Session, pipeline: Pipeline) -> Iterator[ProjectStore]:
    """The store of the pipeline's projects, for one command."""
    with session.ledger() as log:
        from ledger.pipelines import ProjectStore

        yield ProjectStore(pipeline, log)


def found(store: ProjectStore, pipeline: Pipeline, project: str, path: Path) -> Any:
    """The view at the end of a path, at this moment. Raises NotThere for the first missing level."""
    from ledger.log.read import leave_out

    view = store.peek_item(pipeline.ident(project, path), unread=leave_out)
    if view is not None:
        return view
    above = [dict(list(path.items())[:depth]) for depth in range(len(path))]
    views = ((part, store.peek_item(pipeline.ident(project, part), unread=leave_out)) for part in above)
    raise not_there(project, next((part for part, there in views if there is None), path))


def not_there(project: str, path: Path) -> NotThere:
    """The error that nothing exists at the end of this path."""
    level = list(path)[-1].capitalize() if path else "Project"
    return NotThere(f"{level} not found: {where(project, path)}", project=project, **path)


def where(project: str, path: Path) -> str:
    """A path in words: `slice=1, channel=2`; the project's name where it is empty."""
    return ", ".join(f"{name}={number}" for name, number in path.items()) or f"project={project!r}"


def first_missing(item: Any, path: Path) -> Path | None:
    """The part of the path that did not exist before this scope opened its item; None if all did.

    A scope creates what is missing on the path to its item; a command that must not create anything calls
    this, and raises, so that nothing is stored.
    """
    for depth in range(len(item.key)):
        if item.tree.item(item.key[: depth + 1]).news:
            return dict(list(path.items())[:depth])
    return None


def opened_there(item: Any, project: str, path: Path) -> Any:
    """The opened item itself. Raises NotThere if its scope has just created it, or an item above it."""
    missing = first_missing(item, path)
    if missing is not None:
        raise not_there(project, missing)
    return item
