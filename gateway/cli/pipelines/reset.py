"""`pledger lsm|psoct reset`: delete a part of a project, or all of it, in one append (spec S0-81)."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ledger.pipelines import Pipeline

from ..errors import Code, Misuse, NotThere
from ..output import Column, clean, json_line, table, titled
from ..session import AsJson, Session, session_of
from .options import TIMEOUT, Ids, Project, Timeout
from .show import STATES
from .target import Path, path_of, store_of, where, whole

if TYPE_CHECKING:
    from ledger.pipelines import ProjectStore

All = Annotated[bool, typer.Option("--all", "-a", help="All {firsts} of the project.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="List what would be deleted, and delete nothing.")]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Do not ask for confirmation. Required without a terminal.")
]


def reset(
    context: typer.Context,
    pipeline: Pipeline,
    project: Project,
    ids: Ids,
    all_slices: All = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    timeout: Timeout = TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Delete a {levels} with all below it, or all of a project.

    Deletes all or nothing. A deletion is an event: the history is kept, and `pledger history` shows it. A
    deleted item can be created again and then starts empty. The project itself stays, with its plan. Asks for
    confirmation on a terminal; without a terminal nothing is deleted unless `--yes` is given.{counted}

    \b
    Examples:
      pledger {pipeline} reset brain_7 --{first} 1 --yes
      pledger {pipeline} reset brain_7 --all --dry-run

    JSON: project, deleted (how many were), {levels} (how many of each); with --dry-run also items, a list of
    what would be deleted.
    """
    session = session_of(context, as_json)
    given = _target(pipeline, ids, all_slices)
    with store_of(session, pipeline) as store:
        path = whole(store, pipeline, project, given)
        items_to_delete = [*_items_to_delete(store, pipeline, project, path)]
        if not items_to_delete:
            raise _not_there(pipeline, project, path)
        if dry_run:
            return _list(items_to_delete, pipeline, project, session)
        if not yes:
            _ask(_counted(pipeline, (len(ids) for ids, _ in items_to_delete)), project)
        gone = _delete(store, pipeline, project, path, timeout)
    return _report(_counted(pipeline, gone), project, session)


def _target(pipeline: Pipeline, ids: Ids, all_slices: bool) -> Path:
    given = [name for name, number in ids.items() if number is not None]
    if all_slices and given:
        raise Misuse(f"`--all` and `--{given[0]}` exclude each other.")
    counted = pipeline.counted and ids[pipeline.levels[pipeline.counted].name] is not None
    if not all_slices and not counted and ids[pipeline.names[0]] is None:
        raise Misuse(f"`--{pipeline.names[0]}` is required.")
    return path_of(pipeline, ids, counting=True)


def _not_there(pipeline: Pipeline, project: str, path: Path) -> NotThere:
    what = where(project, path) if path else f"project={project!r} has no {pipeline.below[0].plural}"
    return NotThere(f"Target does not exist in project state: {what}", project=project, **path)


# Reading


def _items_to_delete(
    store: ProjectStore, pipeline: Pipeline, project: str, path: Path
) -> Iterator[tuple[tuple[int, ...], Any]]:
    """Ids and view of each item to delete, as of now: the target, or all below a project."""
    from ledger.log.read import leave_out

    view = store.peek_item(pipeline.ident(project, path), unread=leave_out)
    if view is not None:
        yield from _subtree(pipeline, tuple(path.values()), view)


def _subtree(pipeline: Pipeline, ids: tuple[int, ...], view: Any) -> Iterator[tuple[tuple[int, ...], Any]]:
    if ids:
        yield ids, view
    if len(ids) < len(pipeline.below):
        for child_id, child in getattr(view, pipeline.below[len(ids)].plural).items():
            yield from _subtree(pipeline, (*ids, child_id), child)


def _counted(pipeline: Pipeline, depths: Iterable[int]) -> dict[str, int]:
    """The number of items of each level."""
    counts = dict.fromkeys(pipeline.names, 0)
    for depth in depths:
        counts[pipeline.names[depth - 1]] += 1
    return counts


def _is_asked() -> bool:
    """Whether a person is at the terminal to answer: a script would wait for ever."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _ask(counts: dict[str, int], project: str) -> None:
    """Ask whether to go on. Raises typer.Exit if the answer is no, Misuse without a terminal."""
    told = ", ".join(f"{count} x {level}" for level, count in counts.items() if count)
    if not _is_asked():
        raise Misuse(
            f"nothing was deleted: there is no terminal to confirm {told} of {project!r}; give `--yes` to "
            "delete them, `--dry-run` to list them"
        )
    if not typer.confirm(clean(f"Delete {told} of {project!r}?"), err=True):
        print("nothing was deleted", file=sys.stderr)
        raise typer.Exit(Code.REFUSED)


# Deleting


def _delete(store: ProjectStore, pipeline: Pipeline, project: str, path: Path, timeout: float) -> list[int]:
    """Delete the target in one scope of its project. Returns the depth of each deleted item."""

    def delete(opened: Any) -> list[int]:
        if opened.news:  # this scope created the project: it did not exist
            raise _not_there(pipeline, project, path)
        paths = [path] if path else [{pipeline.names[0]: child_id} for child_id in opened.children]
        if not [part for part in paths if opened.delete(pipeline.ident(project, part))]:
            raise _not_there(pipeline, project, path)
        return [
            len(item.key) - 1 for item in opened.tree.items.values() if not item.state.exists and item.news
        ]

    ident = pipeline.ident(project, {})
    gone: list[int] = store.update_item(ident, delete, timeout_seconds=timeout)
    return gone


# Printing


def _list(
    items_to_delete: Iterable[tuple[tuple[int, ...], Any]], pipeline: Pipeline, project: str, session: Session
) -> None:
    """Print a row for each item to delete: its level, its ids, its state."""
    items = [(dict(zip(pipeline.names, ids, strict=False)), view) for ids, view in items_to_delete]
    counts = _counted(pipeline, (len(path) for path, _ in items))
    if session.json:
        shown = [path | {"processing_state": view.processing_state.value} for path, view in items]
        json_line({"project": project, "deleted": 0, **counts, "items": shown})
    else:
        columns = [Column("would delete"), *titled(*pipeline.names, number=True), Column("state")]
        rows = (
            [list(path)[-1], *map(path.get, pipeline.names), view.processing_state.value]
            for path, view in items
        )
        table(columns, rows, color=session.color, styles=STATES)
    session.say(f"{sum(counts.values())} would be deleted; nothing was deleted")


def _report(counts: dict[str, int], project: str, session: Session) -> None:
    deleted = sum(counts.values())
    told = {"deleted": deleted, **counts}
    session.print_fields({"project": project, **told}, told)
