"""`pledger builds run`: execute what has changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import Code, Misuse
from ..output import flush
from ..session import AsJson, Session, session_of
from ..stderr import show_progress
from .options import NAME, extra

if TYPE_CHECKING:
    pass

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[FILE] [STAGE]...",
        help=f"The build file (ends with .toml), or a folder with a {NAME}; default: {NAME} here. "
        "Then the stages to run, with all that they need; default: all.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Say what would run; run and record nothing.")]
Force = Annotated[bool, typer.Option("--force", help="Run also what is unchanged.")]
KeepGoing = Annotated[
    bool, typer.Option("--keep-going", "-k", help="After a failure, run what does not need the failed stage.")
]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", "-j", metavar="N", min=1, help="Run at most N at once. Default: one a processor."),
]
Queue = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Have stages run by workers of this queue, on any machine."),
]


def run(
    context: typer.Context,
    words: Words = None,
    dry_run: DryRun = False,
    force: Force = False,
    keep_going: KeepGoing = False,
    jobs: Jobs = None,
    queue: Queue = None,
    as_json: AsJson = False,
) -> None:
    """Run the stages of a build file whose inputs have changed.

    A stage is skipped if its command, code, parameters, dependencies and output paths are those of its last
    completion, or of any earlier one whose outputs are in the content cache: these are restored. Otherwise it
    runs, as soon as all that it needs is there. Each completion is recorded at once, so a run that is killed
    goes on where it was. Two runners never execute one stage for the same inputs.

    With --queue each stage is a job: workers that see the same folder, started with `pledger worker run
    --operations consumers.builds.operation:registry --queue NAME`, run it.

    Ctrl-C ends the commands; a second one kills them.

    Exits 6 if a stage failed. `pledger builds why STAGE` shows why a stage ran or was skipped.

    \b
    Examples:
      pledger builds run
      pledger builds run analysis/pledger-build.toml report --jobs 4
      pledger builds run --dry-run

    JSON, one object per line: run, stage, status (ran, skipped, failed, cancelled, would run, may run), tier,
    reason, duration_ms.
    """
    session = session_of(context, as_json)
    how = {
        "jobs": jobs, "force": force, "keep_going": keep_going, "dry_run": dry_run, "queue": queue
    }  # fmt: skip
    status = _run(session, *split(words or []), how)
    if code := {"failed": Code.UNSUCCESSFUL, "interrupted": Code.INTERRUPTED}.get(status):
        flush()
        raise typer.Exit(code)


def _run(session: Session, file: Path, targets: list[str], how: dict[str, Any]) -> str:
    """Run it and print what came of it; returns how it ended. Raises Misuse where there is no build file."""
    with session.ledger() as log, show_progress(session) as shown, extra():
        from consumers.builds.run import run_build

        from .told import Told

        told = Told(session, shown)
        try:
            ended = run_build(log, file, targets, **how, listener=told.hear)
        except FileNotFoundError as error:
            raise Misuse(f"there is no build file {error.filename}") from None
    told.print(ended)
    return ended.status


def split(words: list[str]) -> tuple[Path, list[str]]:
    """The build file, and the stages."""
    if words and (words[0].endswith(".toml") or (Path(words[0]) / NAME).is_file()):
        return Path(words[0]), words[1:]
    return Path(), words
