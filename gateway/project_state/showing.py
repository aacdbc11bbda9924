"""`pledger lsm|psoct show`: the state of a project, or of a part of it (spec S0-80)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import typer

from ..plain import iso, local
from ..printing import Column, fields, is_terminal, json_line, table
from ..session import AsJson, Session, session_of
from .bars import STATES, bar
from .binding import Ids, Project, bound
from .declaration import Pipeline
from .targets import Path, found, path_of, store_of

if TYPE_CHECKING:
    from rich.text import Text


def add_to(group: typer.Typer, pipeline: Pipeline) -> None:
    """Add the command of this module."""
    group.command()(bound(pipeline, show))


def show(
    context: typer.Context, pipeline: Pipeline, project: Project, ids: Ids, as_json: AsJson = False
) -> None:
    """Show a project, {slice}, {middle} or {leaf}.

    JSON: the view, indented: processing_state, the times, the flags, and below it {slices}, {middles},
    {leaves} by their ids. Nothing is waited for: what is open for change elsewhere is shown as it was before.
    """
    session = session_of(context, as_json)
    path = path_of(pipeline, ids)
    with store_of(session, pipeline) as store:
        view = found(store, pipeline, project, path)
    if session.json:
        json_line(view.to_dict(), indent=2)
    else:
        _print(view, pipeline, path, session)


def _print(view: Any, pipeline: Pipeline, path: Path, session: Session) -> None:
    if len(path) == 3 or is_terminal():
        fields(
            [(name, told(value)) for name, value in _own(view) if value not in (None, ())],
            color=session.color,
        )
    match len(path):
        case 3:
            return
        case 2:
            _print_leaves(_children(view, pipeline.levels[2].plural), pipeline, session)
        case _:
            slices = [view] if path else _children(view, pipeline.levels[0].plural)
            _print_middles(slices, pipeline, session)


def _children(view: Any, plural: str) -> list[Any]:
    """The children of a view, by id."""
    return [child for _, child in sorted(getattr(view, plural).items())]


def _own(view: Any) -> Iterator[tuple[str, Any]]:
    """What the item says of itself, without its children."""
    for name, value in view.to_dict().items():
        if not isinstance(value, dict):
            yield name, getattr(view, name)


def told(value: Any) -> str:
    """A value of a view for the eye."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if hasattr(value, "isoformat"):
        return local(value) if is_terminal() else iso(value)
    if isinstance(value, tuple):  # claims
        return ", ".join(claim.milestone for claim in value)
    return str(value)


def _print_leaves(leaves: Iterable[Any], pipeline: Pipeline, session: Session) -> None:
    """A row a leaf: id, state, the flags, attempts, when it was finished, why it failed."""
    level = pipeline.levels[2]
    rows = [_leaf_row(leaf, level.name, level.flags) for leaf in leaves]
    if not is_terminal():
        table([], rows, color=False)
        return
    flags = len(level.flags)
    columns = [Column(level.name, number=True), Column("state"), Column("/".join(level.flags.values()))]
    columns += [Column("tries", number=True), Column("finished"), Column("reason", keep=True)]
    drawn = ([*row[:2], "/".join(row[2 : 2 + flags]), *row[2 + flags :]] for row in rows)
    table(columns, drawn, color=session.color, styles=STATES)


def _leaf_row(leaf: Any, name: str, flags: Mapping[str, str]) -> list[str]:
    has = [told(getattr(leaf, flag)) for flag in flags]
    ended = [told(leaf.processing_finished_at or ""), leaf.reason or ""]
    ids = [str(getattr(leaf, f"{name}_id")), leaf.processing_state.value]
    return [*ids, *has, str(leaf.attempts), *ended]


def _print_middles(slices: Iterable[Any], pipeline: Pipeline, session: Session) -> None:
    """A row a channel or mosaic: ids, state, how many children are in which state, its flags, its slice's."""
    top, middle, leaf = pipeline.levels
    pairs = [(a_slice, child) for a_slice in slices for child in _children(a_slice, middle.plural)]
    if not is_terminal():
        table([], (_whole_row(*pair, pipeline) for pair in pairs), color=False)
        return
    columns = [Column(top.name, number=True), Column(middle.name, number=True), Column("state")]
    columns += [Column(leaf.plural), Column("done", number=True), Column("failed", number=True)]
    columns += [Column("/".join(leaf.flags.values()), number=True), Column("made", keep=True)]
    columns += [Column(f"{top.name} made", keep=True)] if top.flags else []
    rows = [_drawn_row(*pair, pipeline) for pair in pairs]
    table(columns, rows, color=session.color, styles=STATES)


def _ids(a_slice: Any, child: Any, pipeline: Pipeline) -> list[str]:
    return [str(a_slice.slice_id), str(getattr(child, f"{pipeline.names[1]}_id"))]


def _counted(child: Any, pipeline: Pipeline) -> tuple[int, Counter[str], list[int]]:
    """How many leaves there are, how many are in each state, and how many have each flag."""
    level = pipeline.levels[2]
    leaves = getattr(child, level.plural).values()
    states = Counter(leaf.processing_state.value for leaf in leaves)
    return len(leaves), states, [sum(getattr(leaf, flag) for leaf in leaves) for flag in level.flags]


def _whole_row(a_slice: Any, child: Any, pipeline: Pipeline) -> list[str]:
    total, states, flags = _counted(child, pipeline)
    counts = [total, *(states[state] for state in STATES), *flags]
    own = [told(getattr(child, flag)) for flag in pipeline.levels[1].flags]
    above = [told(getattr(a_slice, flag)) for flag in pipeline.levels[0].flags]
    ids = _ids(a_slice, child, pipeline)
    return [*ids, child.processing_state.value, *map(str, counts), *own, *above]


def _drawn_row(a_slice: Any, child: Any, pipeline: Pipeline) -> list[str | Text]:
    total, states, flags = _counted(child, pipeline)
    top, middle, _ = pipeline.levels
    made = [", ".join(title for flag, title in middle.flags.items() if getattr(child, flag))]
    if top.flags:
        made.append(", ".join(title for flag, title in top.flags.items() if getattr(a_slice, flag)))
    counts = [f"{states['completed']}/{total}", str(states["failed"] or ""), "/".join(map(str, flags))]
    ids = _ids(a_slice, child, pipeline)
    return [*ids, child.processing_state.value, bar(states, total), *counts, *made]
