"""`pledger jobs wait`: until jobs are over, with a bar on the way, and an exit code that says how it went."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ..codes import Code
from ..printing import Column, flush, json_line, table
from ..progress import Board, Work, board
from ..session import AsJson, Session, session_of
from .finding import Many, each_found, jobs_of, short
from .looks import STATUSES
from .standing import progress_of
from .values import seconds_of

if TYPE_CHECKING:
    from ledger.jobs import Jobs

EVERY: Final = 0.2
"""Seconds between two looks at the progress of a job; more where a look takes long."""
SHARE: Final = 10
"""Looking takes at most one of so many seconds."""

Patience = Annotated[
    str | None, typer.Option("--timeout", metavar="SPAN", help="Wait no longer: seconds, or such as 10m.")
]


def add_to(group: typer.Typer) -> None:
    """Add the command of this module."""
    group.command()(wait)


def wait(context: typer.Context, ids: Many, timeout: Patience = None, as_json: AsJson = False) -> None:
    """Wait until jobs are over.

    Meanwhile stderr says how far they are: of one job its own progress (what it says itself, or how many of
    its batches and child jobs are over), of several how many of them are over.

    Exits 0 if all succeeded, 6 if one failed or was cancelled, 7 if the time was over before. JSON, one
    object a line: id, status, over, error_code, error_message.
    """
    session = session_of(context, as_json)
    seconds = seconds_of(timeout, "--timeout")
    with jobs_of(session) as jobs:
        wait_for(session, jobs, each_found(jobs.ledger, ids), seconds)


def wait_for(
    session: Session, jobs: Jobs, ids: list[str], seconds: float | None = None, *, shown: bool = True
) -> None:
    """Wait for jobs, and say how they ended. Raises typer.Exit unless all succeeded."""
    statuses = _waited(session, jobs, ids, seconds)
    _report(session, jobs, statuses, shown)
    if code := _code(statuses):
        flush()
        raise typer.Exit(code)


def _waited(session: Session, jobs: Jobs, ids: list[str], seconds: float | None) -> dict[str, str]:
    """The statuses at the end, or when the time was over."""
    deadline = None if seconds is None else monotonic() + seconds
    statuses = {id: jobs.status(id) for id in ids}
    pause = EVERY
    with board(session) as shown:
        bar = _Bar(jobs, ids, shown)
        while left := [id for id in ids if not is_over(statuses[id])]:
            rest = pause if deadline is None else min(pause, deadline - monotonic())
            if rest <= 0:
                break
            statuses |= jobs.wait(*left, seconds=rest)
            began = monotonic()
            bar.show(statuses)
            pause = max(EVERY, SHARE * (monotonic() - began))
    return statuses


class _Bar:
    """What is shown while one waits; nothing, as long as a single job says nothing of its progress."""

    def __init__(self, jobs: Jobs, ids: list[str], board: Board) -> None:
        self._jobs, self._ids, self._board = jobs, ids, board
        self._work: Work | None = None

    def show(self, statuses: dict[str, str]) -> None:
        if len(self._ids) == 1:
            name, unit = f"job {self._ids[0][:8]}", "steps"
            done, total = progress_of(self._jobs, self._ids[0])
        else:
            name, unit = f"{len(self._ids)} jobs", "jobs"
            done, total = sum(map(is_over, statuses.values())), len(self._ids)
        if done is None and total is None:
            return
        if self._work is None:
            self._work = self._board.work(name, unit, start=done or 0)
        self._work.at(done or 0, total)


def is_over(status: str) -> bool:
    from ledger.jobs.job import TERMINAL

    return status in TERMINAL


def _code(statuses: dict[str, str]) -> int:
    """How it went with all of them."""
    if any(is_over(status) and status != "succeeded" for status in statuses.values()):
        return Code.UNSUCCESSFUL
    return Code.FINE if all(map(is_over, statuses.values())) else Code.TIMED_OUT


def _report(session: Session, jobs: Jobs, statuses: dict[str, str], shown: bool) -> None:
    rows = [_ended(jobs, id, status) for id, status in statuses.items()]
    if session.json:
        for row in rows:
            json_line(row)
    elif shown:
        columns = [Column("job"), Column("status"), Column("error", keep=True)]
        cells = ([short(row["id"]), row["status"], _error(row)] for row in rows)
        table(columns, cells, color=session.color, styles=STATUSES)
    left = [id for id, status in statuses.items() if not is_over(status)]
    if left:
        session.say(f"the time was over before {len(left)} of {len(statuses)} jobs were")
    if not shown:
        for row in rows:
            session.say(f"{row['status']} {_error(row)}".rstrip())


def _ended(jobs: Jobs, id: str, status: str) -> dict[str, Any]:
    job = jobs.get(id)
    error: dict[str, str | None] = {"error_code": None, "error_message": None}
    if status == "failed":
        error = {"error_code": job.error_code, "error_message": job.error_message}
    return {"id": id, "status": status, "over": is_over(status), **error}


def _error(row: dict[str, Any]) -> str:
    return said(row["error_code"], row["error_message"])


def said(code: str | None, message: str | None) -> str:
    """An error of a job in a line."""
    return ": ".join(part for part in (code, message) if part)
