"""`pledger builds gc`, `verify`, `rebuild` and `reset-fingerprints`: what is kept of a project."""

from __future__ import annotations

from typing import Annotated

import typer

from ..errors import Code
from ..output import Column, flush, titled
from ..session import AsJson, session_of
from .options import File, build_file_of, extra

Keep = Annotated[int, typer.Option("--keep", metavar="N", min=1, help="Keep the newest N runs.")]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Say what would be dropped; drop nothing.")]
Repair = Annotated[bool, typer.Option("--repair", help="Make the copy again if it differs.")]


def gc(
    context: typer.Context,
    keep: Keep = 100,
    dry_run: DryRun = False,
    file: File = None,
    as_json: AsJson = False,
) -> None:
    """Drop old runs, and delete what nothing needs any more.

    Runs beyond the newest N leave the lists, with their entries of the run cache; each drop is recorded, and
    the events stay: `why`, `show` and `blame` still answer. Then outputs that no entry and no stage names are
    deleted from the content cache, if that lies in the project's folder, and hashes of files that are gone.

    \b
    Examples:
      pledger builds gc --keep 20 --dry-run
      pledger builds gc --keep 20

    JSON, one object: runs (ids); objects, bytes and kept of the content cache, if it was cleaned; hashes.
    """
    session = session_of(context, as_json)
    build = build_file_of(file)
    with session.ledger() as log, extra():
        from consumers.builds.cleaning import clean

        done = clean(log, build.path, keep, dry_run=dry_run)
    told = {"runs": done.runs, **(done.contents._asdict() if done.contents else {}), "hashes": done.hashes}
    session.print_fields(told, told | {"runs": ", ".join(done.runs) or None})
    if done.contents is None:
        session.say(f"{build.cache} is outside of the project: what it holds is left as it is")
    session.say(f"{len(done.runs)} runs {'would be ' if dry_run else ''}dropped")


def rebuild(context: typer.Context, file: File = None, as_json: AsJson = False) -> None:
    """Make the local copy of a project again from the log; cached hashes of files stay.

    JSON, one object: events (how many of the project were read), position.
    """
    session = session_of(context, as_json)
    build = build_file_of(file)
    with session.ledger() as log, extra():
        from consumers.builds.project import opened

        with opened(log, build.path) as project:
            events = project.copy.rebuild()
            session.print_fields({"events": events, "position": project.copy.position})


def reset_fingerprints(context: typer.Context, file: File = None, as_json: AsJson = False) -> None:
    """Delete the cached fingerprints of code, so that they are made anew; nothing runs because of that.

    JSON, one object: deleted.
    """
    session = session_of(context, as_json)
    build = build_file_of(file)
    with session.ledger() as log, extra():
        from consumers.builds.project import opened

        with opened(log, build.path) as project:
            session.print_fields({"deleted": project.copy.clear_fingerprints()})


def verify(
    context: typer.Context, repair: Repair = False, file: File = None, as_json: AsJson = False
) -> None:
    """Compare the local copy of a project with the log, entry by entry.

    The copy is compared as of its own position, so being behind is no difference. `pledger
    verify` checks the copy of the present folder, too.

    Exits 1 if a difference was not repaired. JSON, one object per difference: kind, about, says, repaired.
    """
    session = session_of(context, as_json)
    build = build_file_of(file)
    with session.ledger() as log, extra():
        from projections.builds import CopyCheck
        from projections.builds.places import FOLDER
        from projections.fold import Which

        check = CopyCheck(build.root / FOLDER)
        found = [*check.differences(log, Which(), lambda _: None)]
        repaired = [check.repair(log, one) if repair else None for one in found]
    columns = [*titled("difference", "about"), Column("finding", keep=True), Column("repair")]
    rows = [
        {"kind": one.kind.value, "about": one.about, "says": one.says, "repaired": done}
        for one, done in zip(found, repaired, strict=True)
    ]
    session.print_rows(rows, columns, lambda row: [*row.values()])
    session.say(f"{len(found) or 'no'} difference{'s' * (len(found) != 1)}")
    if None in repaired:
        flush()
        raise typer.Exit(Code.REFUSED)
