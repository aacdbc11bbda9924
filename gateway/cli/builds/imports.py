"""`pledger builds import`: the stages that DVC or pivot has recorded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ..errors import Code, Misuse
from ..output import Column, flush, titled
from ..session import AsJson, Session, session_of
from .options import NAME, File, Project, build_file_of, extra

if TYPE_CHECKING:
    from consumers.builds.imports.locked import LockedStage
    from consumers.builds.imports.recorded import Imported

LOCK: Final = "dvc.lock"
PIVOT: Final = ".pivot/stages"
Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE", help="A dvc.lock or a stage lock of pivot, or the folder of a project with such."
    ),
]
Write = Annotated[
    bool, typer.Option("--write", help=f"Write {NAME} beside SOURCE, with the stages of a dvc.lock.")
]


def import_(
    context: typer.Context,
    source: Source,
    write: Write = False,
    file: File = None,
    project: Project = None,
    as_json: AsJson = False,
) -> None:
    """Record the stages of a dvc.lock, or of pivot's .pivot/stages, as they were completed there.

    Files that are still those of the lock are recorded by the hashes of this ledger, so their stages do not
    run again; what is not there or has changed is named, and such a stage runs once. A stage that the ledger
    knows already is left as it is. Locks that cannot be read are reported and left out.

    pivot runs Python functions, and its locks do not say how: its stages bring their history, and run once.

    Exits 1 if a lock was left out.

    \b
    Examples:
      pledger builds import dvc.lock --write
      pledger builds import . --project vision

    JSON, one object per line: stage, recorded, differ (paths whose content is not that of the lock).
    """
    session = session_of(context, as_json)
    with extra():
        folder, kind, stages, refused = _read(Path(source), session)
        root, name = _target(folder, file, project, write)
        if write:
            _write(session, root, name, stages)
    with session.ledger() as log:
        from consumers.builds.imports.recorded import record_stages
        from consumers.builds.imports.verified import check

        run, told = record_stages(log, name, root, stages, check(stages), kind)
    _print(session, told, name, run)
    if refused:
        flush()
        raise typer.Exit(Code.REFUSED)


def _read(source: Path, session: Session) -> tuple[Path, str, list[LockedStage], int]:
    """The folder of a source, what it is, the stages of its locks, and how many locks were left out.

    Raises Misuse, BadFile.
    """
    from consumers.builds.imports.dvc import read_dvc_lock
    from consumers.builds.imports.pivot import find_pivot_locks, read_pivot_lock
    from ledger import BadFile, BadName

    if not source.exists():
        raise Misuse(f"{source} does not exist")
    if source.name == LOCK or (source / LOCK).is_file():
        lock = source / LOCK if source.is_dir() else source
        return lock.absolute().parent, LOCK, read_dvc_lock(lock), 0
    if source.is_file():
        stage = read_pivot_lock(source)
        return stage.folder, PIVOT, [stage], 0
    stages, refused = [], 0
    for path in find_pivot_locks(source):
        try:
            stages.append(read_pivot_lock(path))
        except (BadFile, BadName) as error:
            refused += 1
            session.say(f"left out: {error}")
    if not stages and not refused:
        raise Misuse(f"{source} has neither a {LOCK} nor stage locks below {PIVOT}")
    return source.absolute(), PIVOT, stages, refused


def _target(folder: Path, file: str | None, project: str | None, write: bool) -> tuple[Path, str]:
    """The root to which paths are relative, and the project: of a build file, else as named."""
    if write or project is not None:
        if file is not None:
            raise Misuse("--file excludes --project and --write")
        return folder, project or folder.name
    found = build_file_of(file or str(folder))
    return found.root, found.project


def _write(session: Session, root: Path, project: str, stages: list[LockedStage]) -> None:
    """Write a build file. Raises Misuse where there is one."""
    from consumers.builds.imports.declared import build_file

    path = root / NAME
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(build_file(project, root, stages))
    except FileExistsError:
        raise Misuse(f"{path} exists: import without --write, or move it away") from None
    session.say(f"{path.name} declares {sum(stage.command is not None for stage in stages)} stages")


def _print(session: Session, told: list[Imported], project: str, run: str | None) -> None:
    columns = [*titled("stage", "recorded"), Column("differs", keep=True)]
    session.print_rows(told, columns, _row)
    recorded = sum(one.recorded for one in told)
    into = f" in run {run}" if run else ""
    session.say(f"{recorded} of {len(told)} stages were recorded in project {project}{into}")


def _row(one: Imported) -> list[Any]:
    return [one.stage, "yes" if one.recorded else "known already", one.differ]
