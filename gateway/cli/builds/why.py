"""`pledger builds why`: why a stage ran or was skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from ..errors import NotThere
from ..output import clean, is_terminal, json_line, plain, table, titled, write
from ..session import AsJson, Session, session_of
from .options import File, Project, Run, Stage, project_of, seconds, shortened

if TYPE_CHECKING:
    from projections.builds.why import Changed, Why


def why(
    context: typer.Context,
    stage: Stage,
    run: Run = None,
    file: File = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Show why a stage ran or was skipped, in any run.

    Reads the log: the decision and its reason as the run recorded them, and for a stage that ran what had
    changed since its completion before: code, parameters, dependencies (with the stage and the run that made
    the new content) and paths of outputs.

    \b
    Examples:
      pledger builds why report
      pledger builds why report --run 20260131_093000_1f2e3d4c

    JSON, one object: project, stage, run, at, status, reason, tier, input_hash, duration_ms, failure, before
    (the run of the completion it is compared with), changes (what, name, old, new, stage, run).
    """
    session = session_of(context, as_json)
    name = project_of(project, file)
    with session.ledger() as log:
        from ledger import StreamNotFound
        from projections.builds.why import why as asked

        try:
            found = asked(log, name, stage, run)
        except StreamNotFound:
            raise _unknown(name, stage, run) from None
    _print(session, found)


def _print(session: Session, found: Why) -> None:
    if session.json:
        json_line(plain(found))
        return
    write(f"{clean(_sentence(found))}\n")
    columns = titled("changed", "name") + titled("old", "new", "by", keep=True)
    table(columns if found.changes else [], map(_row, found.changes), color=session.color)


def _unknown(project: str, stage: str, run: str | None) -> NotThere:
    where = f"run {run}" if run else "any run"
    return NotThere(
        f"stage {stage} is not in {where} of project {project}", project=project, stage=stage, run=run
    )


def _sentence(found: Why) -> str:
    took = f" in {seconds(found.duration_ms)} s" if found.duration_ms else ""
    told = f"{found.stage} {found.status.replace('_', ' ')}{took} in run {found.run}: {found.reason}"
    if found.failure:
        told += f"; it failed: {found.failure}"
    if found.before is None:
        return told
    since = "compared with"
    if found.failure:
        since = "it was last completed in"
    elif found.status == "skipped" and not found.changes:
        since = "as completed in"
    return f"{told}; {since} run {found.before}"


def _row(change: Changed) -> list[Any]:
    by = f"{change.stage} in {change.run}" if change.stage else ""
    values = (change.old, change.new)
    shown = map(shortened, values) if is_terminal() else ("" if value is None else value for value in values)
    return [change.what, change.name, *shown, by]
