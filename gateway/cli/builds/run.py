"""`pledger builds run`: execute what has changed."""

from __future__ import annotations

from collections import Counter
from functools import singledispatchmethod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from consumers.builds import progress

from ..errors import Code, Misuse
from ..output import Column, flush, is_terminal, titled
from ..session import AsJson, Session, session_of
from ..stderr import Progress, show_progress
from .options import NAME, STATUSES, seconds

if TYPE_CHECKING:
    from ..stderr import Task

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
MANY: Final = 40
"""With more skipped stages than this, a terminal shows only the others."""


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
    with session.ledger() as log, show_progress(session) as shown:
        from consumers.builds.run import run_build

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


class Told:
    """What a run tells: progress and output of commands on stderr, a row for each stage at the end."""

    def __init__(self, session: Session, shown: Progress) -> None:
        self._session, self._shown = session, shown
        self._run = ""
        self._task: Task | None = None
        self._rows: list[dict[str, Any]] = []
        self._order: dict[str, int] = {}

    @singledispatchmethod
    def hear(self, event: object) -> None:
        """Take an event of the run."""

    @hear.register
    def _(self, event: progress.RunStarted) -> None:
        self._run, self._order = event.run, {stage: nth for nth, stage in enumerate(event.stages)}
        self._task = self._shown.task(f"build {event.project}", "stages")

    @hear.register
    def _(self, event: progress.StagesSkipped) -> None:
        for one in event.stages:
            self._add(one.stage, "skipped", one.reason, one.tier, 0)

    @hear.register
    def _(self, event: progress.StagePlanned) -> None:
        self._add(event.stage, "would run" if event.certain else "may run", event.reason, None, None)

    @hear.register
    def _(self, event: progress.StageWaiting) -> None:
        self._session.say(f"{event.stage}: waits for {event.holder}, which runs it")

    @hear.register
    def _(self, event: progress.StageStarted) -> None:
        last = "" if event.expected_ms is None else f" (last time {seconds(event.expected_ms)} s)"
        self._session.say(f"{event.stage}: runs, {event.reason}{last}")

    @hear.register
    def _(self, event: progress.StageOutput) -> None:
        for line in event.text.splitlines():
            self._session.say(f"{event.stage} | {line}")

    @hear.register
    def _(self, event: progress.StageEnded) -> None:
        if event.status == "failed":
            self._session.say(f"{event.stage}: failed, {event.reason}")
        self._add(event.stage, event.status, event.reason, None, event.duration_ms)

    def _add(self, stage: str, status: str, reason: str, tier: str | None, duration_ms: int | None) -> None:
        told = {"run": self._run, "stage": stage, "status": status, "tier": tier, "reason": reason}
        self._rows.append({**told, "duration_ms": duration_ms})
        if self._task is not None:
            self._task.update(len(self._rows), len(self._order))

    def print(self, ended: progress.RunEnded) -> None:
        """Print a row for each stage, in the order of the run, and a summary on stderr."""
        rows = sorted(self._rows, key=lambda row: self._order[row["stage"]])
        if (
            is_terminal()
            and not self._session.json
            and sum(row["status"] == "skipped" for row in rows) > MANY
        ):
            rows = [row for row in rows if row["status"] != "skipped"]
        columns = [*titled("stage", "status"), Column("seconds", number=True), Column("reason", keep=True)]
        self._session.print_rows(rows, columns, _row, styles=STATUSES)
        counts = Counter(row["status"] for row in self._rows)
        said = ", ".join(f"{count} {status}" for status, count in counts.items()) or "no stages"
        self._session.say(f"run {ended.run} {ended.status}: {said}, {seconds(ended.duration_ms)} s")


def _row(row: dict[str, Any]) -> list[Any]:
    return [row["stage"], row["status"], seconds(row["duration_ms"]), row["reason"]]
