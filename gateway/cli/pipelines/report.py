"""`pledger lsm|psoct report`: the progress of a project (spec S0-90 to S0-92)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ledger.pipelines import Pipeline

from ..errors import Misuse
from ..output import Column, clean, is_terminal, json_line, plain, table, write
from ..session import AsJson, Session, session_of
from .options import Parts, Project, Totals, parts_of
from .show import STATES, bar
from .target import Path, found, not_there, store_of

if TYPE_CHECKING:
    from projections.pipelines import Report

WIDE: Final = 30
"""Cells of the bar of a whole report."""
STYLES: Final = {**STATES, "yes": "green", "no": "dim"}
MAX_ROWS: Final = 100_000
"""Maximum number of expected children listed of one part: a mistake in a plan must not fill the memory."""
AsMarkdown = Annotated[bool, typer.Option("--markdown", help="Print Markdown, with the totals.")]


def report(
    context: typer.Context,
    pipeline: Pipeline,
    project: Project,
    parts: Parts,
    expected: Totals,
    as_markdown: AsMarkdown = False,
    as_json: AsJson = False,
) -> None:
    """Report how far a project is, {parent} by {parent}.

    With the id of a part: every {leaf} of it. Completed items are counted against the plan (see `pledger
    {pipeline} plan`); a failed {leaf} does not count. Where stdout is not a terminal, the totals go to
    stderr.

    \b
    Examples:
      pledger {pipeline} report brain_7
      pledger {pipeline} report brain_7{part} --markdown > status.md

    JSON: title, key, project, done, total, percent, failed, beyond (items with unexpected ids),
    last_updated, milestones (by percent: whether it is reached), rows.
    """
    session = session_of(context, as_json)
    path = _part(pipeline, parts)
    if as_markdown and session.json:
        raise Misuse("`--markdown` and `--json` exclude each other.")
    with store_of(session, pipeline) as store:
        view = found(store, pipeline, project, {})
    made = _made(pipeline, view, path, expected)
    if made is None:
        raise not_there(project, path)
    if session.json:
        _print_json(made)
    elif as_markdown:
        _print_markdown(made)
    else:
        _print(made, pipeline, session)


def _part(pipeline: Pipeline, parts: Parts) -> Path:
    """The path of the report, empty for the project. Raises Misuse if only a part of it is given."""
    path = {name: number for name, number in parts.items() if number is not None}
    first = pipeline.counted - 1 if pipeline.counted else 0
    for name in reversed([*parts][first:]):
        if path and name not in path:
            raise Misuse(f"`--{name}` is required when `--{next(iter(path))}` is provided.")
    return path


def _made(pipeline: Pipeline, view: Any, path: Path, expected: Totals) -> Report | None:
    """The report; None if the item does not exist. Raises Misuse if the expected number is not known."""
    from projections.pipelines import listing, summary

    total, number = next(iter(expected.items()), ("", None))
    wanted = getattr(view, total) if total and number is None else number
    listed = path or not parts_of(pipeline)
    if listed and wanted is not None and wanted > MAX_ROWS:
        raise Misuse(f"{total} is {wanted}; at most {MAX_ROWS:,} rows can be listed")
    if wanted is None and pipeline.leaf.total and pipeline.leaf.total.needed:
        option = f"--{total.replace('_', '-')} N"
        plan = f"`pledger {pipeline.name} plan {quote(view.project_name)} {option}`"
        raise Misuse(
            f"the expected number of {pipeline.leaf.plural} is unknown: give `{option}`, or plan it once "
            f"with {plan}"
        )
    if listed:
        return listing(pipeline, view, path, expected=number)
    return summary(pipeline, view, expected=number)


def _print_json(made: Report) -> None:
    rows = [plain(row.values) for row in made.rows]
    head = {"title": made.title, "key": made.key, "project": made.project_name}
    counts = {"done": made.done, "total": made.total, "percent": made.progress, "failed": made.failed}
    reached = {str(milestone.percent): milestone.reached for milestone in made.milestones}
    rest = {"beyond": made.beyond, "last_updated": plain(made.last_updated), "milestones": reached}
    json_line({**head, **counts, **rest, "rows": rows}, indent=2)


def _print_markdown(made: Report) -> None:
    from projections.pipelines import markdown

    write(markdown(made))


def _print(made: Report, pipeline: Pipeline, session: Session) -> None:
    if not is_terminal():
        table([], (_cells(row) for row in made.rows), color=False)
        for line in _totals(made):
            session.say(line)
        return
    table([Column("", keep=True)], [[line] for line in [made.title, *_totals(made)]], color=session.color)
    whole = _bar(Counter(completed=made.done, failed=made.failed, running=made.running), made.total, WIDE)
    reached = "  ".join(f"{m.percent}% {'reached' if m.reached else '-'}" for m in made.milestones)
    table([Column(""), Column("", keep=True)], [[whole, reached]], color=session.color)
    if made.rows:
        write("\n")
        _print_rows(made, pipeline, session)


def _print_rows(made: Report, pipeline: Pipeline, session: Session) -> None:
    """Print the table for a terminal: short titles, a bar in rows that count leaves, own flags as words."""
    first = made.rows[0]
    shown = [place for place, own in enumerate(made.own) if not own]
    known = {*made.values, *(f"{name}_id" for name in made.path)}
    ids = [level for level in pipeline.below if level.id in first.values and level.id not in known]
    columns = [Column(level.name.capitalize(), number=True) for level in ids]
    columns += [Column(made.short[n], number=isinstance(first.cells()[n], int)) for n in shown]
    is_summary, flags = "progress" in first.values, any(made.own)
    columns += [Column("")] if is_summary else []
    columns += [Column("Made", keep=True)] if flags else []
    rows: list[list[Any]] = []
    for row in made.rows:
        cells = _cells(row)
        drawn = [*(str(row.values[level.id]) for level in ids), *(cells[n] for n in shown)]
        drawn += [_bar_of(row)] if is_summary else []
        drawn += [", ".join(_made_of(made, row))] if flags else []
        rows.append(drawn)
    table(columns, rows, color=session.color, styles=STYLES)


def _made_of(made: Report, row: Any) -> Iterator[str]:
    """The row's own flags that are set, by their short names."""
    for title, name, own in zip(made.short, made.values, made.own, strict=True):
        if own and row.values[name]:
            yield title


def _cells(row: Any) -> list[str]:
    """The cells as words: a flag is yes or no."""
    from projections.pipelines.report import NO, NOT_YET, YES

    words = {YES: "yes", NO: "no", NOT_YET: "no"}
    return [words.get(cell, str(cell)) for cell in row.cells()]


def _totals(made: Report) -> list[str]:
    """The totals and irregularities, a line each."""
    lines = [f"{name}: {value}" for name, value in (("Project", made.project_name), *made.about)]
    lines += made.totals
    lines += [f"Failed: {made.failed}"] if made.failed else []
    lines += [f"Not counted, because their ids are unexpected: {made.beyond}"] if made.beyond else []
    return [clean(line) for line in lines]


def _bar_of(row: Any) -> Any:
    return _bar(Counter(completed=row.completed, failed=row.failed, running=row.running), row.total)


def _bar(states: Counter[str], total: int, *cells: int) -> Any:
    """The leaves that are done, failed or running, and the remaining ones."""
    left = total - states.total()
    return bar(states + Counter(pending=max(0, left)), total, *cells)
