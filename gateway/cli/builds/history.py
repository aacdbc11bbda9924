"""`pledger builds history` and `show`: the runs of a build project, and what each did (spec S4-36)."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import NotThere
from ..output import Column, json_line, plain, titled
from ..session import AsJson, Session, session_of
from .options import STATUSES, File, Project, project_of, seconds

if TYPE_CHECKING:
    from ledger import Ledger
    from ledger.builds.manifests import RunManifest
    from projections.builds.history import RunOf

Limit = Annotated[int, typer.Option("--limit", "-n", metavar="N", min=1, help="List at most N runs.")]
Dropped = Annotated[bool, typer.Option("--dropped", help="List also runs that `gc` dropped.")]
RunId = Annotated[str | None, typer.Argument(metavar="[RUN]", help="The id of a run. Default: the last.")]
COLUMNS = [
    *titled("run", "status", "started"), *titled("ran", "skipped", "failed", "seconds", number=True)
]  # fmt: skip


def history(
    context: typer.Context,
    limit: Limit = 10,
    dropped: Dropped = False,
    file: File = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """List the runs of a build project, the newest first.

    Shows how many stages ran, were skipped and failed, and the sum of their durations. A run that goes on, or
    whose runner died, is in_progress with what it has done so far.

    \b
    Examples:
      pledger builds history -n 3
      pledger builds history --project peptides --json

    JSON, one object per line: run_id, status, started_at, ended_at, total, ran, skipped, failed, duration_ms.
    """
    session = session_of(context, as_json)
    name = project_of(project, file)
    with session.ledger() as log:
        from projections.builds.history import runs

        found = [*islice(runs(log, name, dropped=dropped), limit)]
    session.print_rows(found, COLUMNS, _row, data=_data, styles=STATUSES)
    if not found:
        session.say("No runs recorded")


def _row(found: RunOf) -> list[Any]:
    run, state = found
    counts = [state.ran, state.skipped, state.failed]
    return [run, state.status, state.started_at, *counts, seconds(state.duration_ms)]


def _data(found: RunOf) -> dict[str, Any]:
    run, state = found
    shown = ("status", "started_at", "ended_at", "total", "ran", "skipped", "failed", "duration_ms")
    told: dict[str, Any] = plain({"run_id": run, **{name: getattr(state, name) for name in shown}})
    return told


def show(
    context: typer.Context,
    run: RunId = None,
    file: File = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Show what a run did with each of its stages, and why.

    A run is written while it goes on: after a crash it shows all that was done.

    \b
    Examples:
      pledger builds show
      pledger builds show 20260131_093000_1f2e3d4c --json

    JSON, one object: run_id, started_at, ended_at (null while it goes on), targeted_stages, execution_order,
    stages (by name: input_hash, status, reason, duration_ms).
    """
    session = session_of(context, as_json)
    name = project_of(project, file)
    with session.ledger() as log:
        found, why = _found(log, name, run)
    if session.json:
        json_line(found)
    else:
        _print(session, found)
    if why:
        session.say(why)


def _found(log: Ledger, project: str, run: str | None) -> tuple[RunManifest, str | None]:
    """A run's manifest, and why it was dropped, if it was. Raises NotThere."""
    from ledger import StreamNotFound
    from projections.builds.history import manifest, runs

    newest = next(runs(log, project), None) if run is None else None
    if run is None and newest is None:
        raise NotThere("No runs recorded", project=project)
    wanted = newest.run if newest else str(run)
    try:
        found, drop = manifest(log, project, wanted)
    except StreamNotFound:
        found, drop = None, None
    if found is None:
        raise NotThere(f"Run not found: {wanted}", project=project, run=wanted)
    return found, None if drop is None else f"this run was dropped ({drop.reason}); its events stay"


def _print(session: Session, found: RunManifest) -> None:
    columns = [*titled("stage", "status"), Column("seconds", number=True), Column("reason", keep=True)]
    session.print_rows(
        found["stages"].items(), columns, styles=STATUSES,
        cells=lambda row: [row[0], str(row[1]["status"]), seconds(row[1]["duration_ms"]), row[1]["reason"]],
    )  # fmt: skip
    ended = found["ended_at"] or "it has not ended"
    session.say(f"run {found['run_id']}: {found['started_at']} to {ended}")
