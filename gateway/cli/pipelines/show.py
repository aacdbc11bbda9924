"""`pledger lsm|psoct show`: the state of a project, or of a part of it (spec S0-80)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import typer

from ledger.pipelines import Pipeline

from ..output import Column, fields, is_terminal, json_line, table, time
from ..session import AsJson, Session, session_of
from .options import Ids, Project
from .target import Path, found, path_of, store_of

if TYPE_CHECKING:
    from rich.text import Text

    from ledger.pipelines import Flag, Level


def show(
    context: typer.Context, pipeline: Pipeline, project: Project, ids: Ids, as_json: AsJson = False
) -> None:
    """Show a project, {levels}.

    JSON: the view, indented: processing_state, the times, the flags, and below it {plurals} by their ids.
    Does not wait: an item that is open for change elsewhere is shown as it was before.
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
    left = len(pipeline.below) - len(path)
    if left == 0 or is_terminal():
        own = [(name, told(value)) for name, value in _own(view) if value not in (None, ())]
        fields(own, color=session.color)
    if left == 1:
        _print_leaves(_children(view, pipeline.leaf.plural), pipeline, session)
    elif left > 1:
        _print_parents([*_parents(view, pipeline, path)], pipeline, session)


Way = Sequence[Any]
"""The views from the first level below the project down to a parent of leaves."""


def _parents(view: Any, pipeline: Pipeline, path: Path) -> Iterator[Way]:
    """The paths to the parents of leaves below a view; levels above the view have only ids."""

    def walk(way: Way) -> Iterator[Way]:
        if len(way) == len(pipeline.below) - 1:
            yield way
            return
        for child in _children(way[-1] if way else view, pipeline.below[len(way)].plural):
            yield from walk([*way, child])

    return walk([*[None] * (len(path) - 1), view] if path else [])


def _children(view: Any, plural: str) -> list[Any]:
    """The children of a view, by id."""
    return [child for _, child in sorted(getattr(view, plural).items())]


def _own(view: Any) -> Iterator[tuple[str, Any]]:
    """The item's own fields, without its children."""
    for name, value in view.to_dict().items():
        if not isinstance(value, dict):
            yield name, getattr(view, name)


def told(value: Any) -> str:
    """A value of a view for display."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if hasattr(value, "isoformat"):
        return time(value)
    if isinstance(value, tuple):  # claims
        return ", ".join(claim.milestone for claim in value)
    return str(value)


def _print_leaves(leaves: Iterable[Any], pipeline: Pipeline, session: Session) -> None:
    """Print a row for each leaf: id, state, flags, attempts, when it was finished, why it failed."""
    level = pipeline.leaf
    rows = [_leaf_row(leaf, level) for leaf in leaves]
    if not is_terminal():
        table([], rows, color=False)
        return
    flags = len(level.flags)
    columns = [Column(level.name, number=True), Column("state"), Column("/".join(map(_short, level.flags)))]
    columns += [Column("tries", number=True), Column("finished"), Column("reason", keep=True)]
    drawn = ([*row[:2], "/".join(row[2 : 2 + flags]), *row[2 + flags :]] for row in rows)
    table(columns, drawn, color=session.color, styles=STATES)


def _leaf_row(leaf: Any, level: Level) -> list[str]:
    has = [told(getattr(leaf, flag.name)) for flag in level.flags]
    ended = [told(leaf.processing_finished_at or ""), leaf.reason or ""]
    return [str(getattr(leaf, level.id)), leaf.processing_state.value, *has, str(leaf.attempts), *ended]


def _print_parents(ways: list[Way], pipeline: Pipeline, session: Session) -> None:
    """Print a row for each parent of leaves: ids, state, leaves by state, its flags, those above."""
    if not is_terminal():
        table([], (_whole_row(way, pipeline) for way in ways), color=False)
        return
    leaf, levels = pipeline.leaf, pipeline.below[:-1]
    columns = [*(Column(level.name, number=True) for level in levels), Column("state")]
    columns += [Column(leaf.plural), Column("done", number=True), Column("failed", number=True)]
    columns += [Column("/".join(map(_short, leaf.flags)), number=True), Column("made", keep=True)]
    columns += [Column(f"{level.name} made", keep=True) for level in levels[-2::-1] if level.flags]
    table(columns, [_drawn_row(way, pipeline) for way in ways], color=session.color, styles=STATES)


def _short(flag: Flag) -> str:
    return flag.short or flag.name


def _ids(way: Way, pipeline: Pipeline) -> list[str]:
    return [str(getattr(way[-1], level.id)) for level in pipeline.below[:-1]]


def _counted(parent: Any, level: Level) -> tuple[int, Counter[str], list[int]]:
    """The number of leaves, how many are in each state, and how many have each flag."""
    leaves = getattr(parent, level.plural).values()
    states = Counter(leaf.processing_state.value for leaf in leaves)
    return len(leaves), states, [sum(getattr(leaf, flag.name) for leaf in leaves) for flag in level.flags]


def _whole_row(way: Way, pipeline: Pipeline) -> list[str]:
    total, states, flags = _counted(way[-1], pipeline.leaf)
    counts = [total, *(states[state] for state in STATES), *flags]
    levels = [*zip(way, pipeline.below, strict=False)][::-1]
    own = [
        "" if view is None else told(getattr(view, flag.name))
        for view, level in levels
        for flag in level.flags
    ]
    return [*_ids(way, pipeline), way[-1].processing_state.value, *map(str, counts), *own]


def _drawn_row(way: Way, pipeline: Pipeline) -> list[str | Text]:
    parent = way[-1]
    total, states, flags = _counted(parent, pipeline.leaf)
    levels = [*zip(way, pipeline.below, strict=False)][::-1]
    made = [
        ", ".join(_short(flag) for flag in level.flags if view is not None and getattr(view, flag.name))
        for nth, (view, level) in enumerate(levels)
        if level.flags or not nth
    ]
    counts = [f"{states['completed']}/{total}", str(states["failed"] or ""), "/".join(map(str, flags))]
    return [*_ids(way, pipeline), parent.processing_state.value, bar(states, total), *counts, *made]


# Bars of states: readable without colours too, because each state is drawn with a character of its own.

STATES: Final = {"completed": "green", "running": "yellow", "failed": "red", "pending": "dim"}
"""The states in the order of columns and bars, and their styles."""
FILL: Final = {"completed": "█", "running": "▓", "failed": "×", "pending": "░"}
BAR: Final = 10
"""Cells of a bar in a row."""


def bar(states: Counter[str], total: int, cells: int = BAR) -> Text:
    """A bar of so many cells, shared among the states; each state that occurs has at least one."""
    from rich.text import Text

    drawn = Text(no_wrap=True)
    for state, style in STATES.items():
        if states[state]:
            drawn.append(FILL[state] * max(1, round(cells * states[state] / total)), style)
    drawn.truncate(cells, pad=True)
    return drawn
