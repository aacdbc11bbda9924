"""`pledger lsm|psoct report`: how far a project is (spec S0-90 to S0-92)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ..codes import Misuse
from ..plain import clean, plain
from ..printing import Column, is_terminal, json_line, table, write
from ..session import AsJson, Session, session_of
from .bars import STATES, bar
from .binding import Parts, Project, Totals, bound
from .declaration import Pipeline
from .targets import Path, found, not_there, store_of

if TYPE_CHECKING:
    from projections.project_state import Report

WIDE: Final = 30
"""Cells of the bar of a whole report."""
STYLES: Final = {**STATES, "yes": "green", "no": "dim"}
MOST_ROWS: Final = 100_000
"""Expected children of one part that are still listed: a slip in a plan shall not fill the memory."""
SHORT: Final = {
    "Total Strips": "Strips",
    "Total Batches": "Batches",
    "Mosaic ID": "Mosaic",
    "Compressed": "Compr",
    "Complexed": "Cplx",
    "Enface processed": "Enf",
    "Volume processed": "Vol",
    "Archived": "Arch",
    "Uploaded": "Upl",
    "Batch uploaded": "Upl",
    "Completed": "Done",
}
"""Titles of columns for a terminal, where a table shall fit into 80 columns."""

AsMarkdown = Annotated[bool, typer.Option("--markdown", help="Print Markdown, with the totals.")]


def add_to(group: typer.Typer, pipeline: Pipeline) -> None:
    """Add the command of this module."""
    group.command()(bound(pipeline, report))


def report(
    context: typer.Context,
    pipeline: Pipeline,
    project: Project,
    parts: Parts,
    expected: Totals,
    as_markdown: AsMarkdown = False,
    as_json: AsJson = False,
) -> None:
    """Report how far a project is, {middle} by {middle}.

    Or all {leaves} of one {part}. What is there is counted against what is planned (see `pledger {pipeline}
    plan`); a failed {leaf} is not done. Where stdout is no terminal, the totals are on stderr.

    \b
    Examples:
      pledger {pipeline} report brain_7
      pledger {pipeline} report brain_7 --{part} 1 --markdown > status.md

    JSON: title, key, project, done, total, percent, failed, beyond (items with ids that were not expected),
    last_updated, milestones (by percent: whether it is reached), rows.
    """
    session = session_of(context, as_json)
    path = _part(parts)
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


def _part(parts: Parts) -> Path:
    """What the report is of, empty for the project. Raises Misuse where only its parent is given."""
    path = {name: number for name, number in parts.items() if number is not None}
    if path and (last := list(parts)[-1]) not in path:
        raise Misuse(f"`--{last}` is required when `--{next(iter(path))}` is provided.")
    return path


def _made(pipeline: Pipeline, view: Any, path: Path, expected: Totals) -> Report[Any] | None:
    """The report; None where there is no such part. Raises Misuse where the number expected is not known."""
    from projections import project_state as reports

    ((total, number),) = expected.items()
    wanted = getattr(view, total) if number is None else number
    if path and wanted is not None and wanted > MOST_ROWS:
        raise Misuse(f"{total} is {wanted}; a row for each can be listed up to {MOST_ROWS:,}")
    if pipeline.name == "psoct":
        if path:
            where = {"slice_id": path.get("slice"), total: number}
            return reports.oct_mosaic_batches(view, path["mosaic"], **where)
        return reports.oct_all_mosaics(view, batches_per_mosaic=number)
    if wanted is None:
        option = f"--{total.replace('_', '-')} N"
        plan = f"`pledger {pipeline.name} plan {quote(view.project_name)} {option}`"
        raise Misuse(
            f"how many strips are expected is not known: give `{option}`, or plan it once, by {plan}"
        )
    if path:
        return reports.lsm_slice_matrix(view, path["slice"], number)
    return reports.lsm_project_summary(view, number)


def _print_json(made: Report[Any]) -> None:
    rows = [plain(row) | _shares(row) for row in made.rows]
    head = {"title": made.title, "key": made.key, "project": made.project_name}
    counts = {"done": made.done, "total": made.total, "percent": made.progress, "failed": made.failed}
    reached = {str(milestone.percent): milestone.reached for milestone in made.milestones}
    rest = {"beyond": made.beyond, "last_updated": plain(made.last_updated), "milestones": reached}
    json_line({**head, **counts, **rest, "rows": rows}, indent=2)


def _print_markdown(made: Report[Any]) -> None:
    from projections.project_state import markdown

    write(markdown(made))


def _shares(row: Any) -> dict[str, float]:
    return {"progress": row.progress} if hasattr(row, "progress") else {}


def _print(made: Report[Any], pipeline: Pipeline, session: Session) -> None:
    if not is_terminal():
        table([], (_cells(row) for row in made.rows), color=False)
        for line in _totals(made):
            session.say(line)
        return
    table([Column("", keep=True)], [[line] for line in [made.title, *_totals(made)]], color=session.color)
    whole = _bar(made.done, made.failed, made.total, WIDE)
    reached = "  ".join(f"{m.percent}% {'reached' if m.reached else '-'}" for m in made.milestones)
    table([Column(""), Column("", keep=True)], [[whole, reached]], color=session.color)
    if made.rows:
        write("\n")
        _print_rows(made, pipeline, session)


def _print_rows(made: Report[Any], pipeline: Pipeline, session: Session) -> None:
    """The table for a terminal: shorter titles, and a bar where a row counts children."""
    first = made.rows[0]
    numbers = [isinstance(cell, int) for cell in first.cells()]
    columns = [
        Column(SHORT.get(title, title), number=number)
        for title, number in zip(made.columns, numbers, strict=True)
    ]
    rows: list[list[Any]] = [_cells(row) for row in made.rows]
    if hasattr(first, "enface_stitched"):  # a mosaic: its four flags in words
        flags = pipeline.levels[1].flags
        columns = [
            Column("Slice", number=True),
            *columns[: -len(flags)],
            Column(""),
            Column("Made", keep=True),
        ]
        rows = [
            [str(row.slice_id), *cells[: -len(flags)], _bar_of(row), _in_words(row, flags)]
            for row, cells in zip(made.rows, rows, strict=True)
        ]
    elif hasattr(first, "progress"):
        columns.append(Column(""))
        rows = [[*cells, _bar_of(row)] for row, cells in zip(made.rows, rows, strict=True)]
    table(columns, rows, color=session.color, styles=STYLES)


def _in_words(row: Any, flags: Mapping[str, str]) -> str:
    return ", ".join(title for flag, title in flags.items() if getattr(row, flag))


def _cells(row: Any) -> list[str]:
    """The cells as words: a mark is yes or no."""
    from projections.project_state.report import NO, NOT_YET, YES

    words = {YES: "yes", NO: "no", NOT_YET: "no"}
    return [words.get(cell, str(cell)) for cell in row.cells()]


def _totals(made: Report[Any]) -> list[str]:
    """The totals and what is odd, a line each."""
    lines = [f"{name}: {value}" for name, value in (("Project", made.project_name), *made.about())]
    lines += made.totals()
    lines += [f"Failed: {made.failed}"] if made.failed else []
    lines += [f"Not counted, because their ids were not expected: {made.beyond}"] if made.beyond else []
    return [clean(line) for line in lines]


def _bar_of(row: Any) -> Any:
    done = row.completed if hasattr(row, "completed") else row.enface_processed
    return _bar(done, row.failed, row.total)


def _bar(done: int, failed: int, total: int, *cells: int) -> Any:
    """What is done, failed, and still to come."""
    left = max(0, total - done)
    states = Counter(completed=done, failed=min(failed, left), pending=left - min(failed, left))
    return bar(states, total, *cells)
