"""`pledger jobs submit` and `wait`: recording a job offers it."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ..errors import Code, Misuse
from ..output import Column, flush, json_line, titled, write
from ..session import AsJson, Session, session_of
from ..stderr import Progress, Task, show_progress
from .options import (
    STATUSES,
    Many,
    each_found,
    found,
    jobs_of,
    meta_of,
    payload_of,
    progress_of,
    seconds_of,
    short,
    unclaimed_reason,
)

if TYPE_CHECKING:
    from datetime import datetime

    from ledger.jobs import Jobs

Operation = Annotated[str, typer.Argument(metavar="OPERATION", help="The operation's name.")]
Fields = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME=VALUE",
        help="Fields of the payload. A VALUE is JSON if it can be read as such, otherwise text.",
    ),
]
Payload = Annotated[str | None, typer.Option(metavar="JSON", help="The payload, a JSON object.")]
File = Annotated[
    str | None, typer.Option("--payload-file", metavar="FILE", help="A file with the payload; `-` for stdin.")
]
Queue = Annotated[str, typer.Option(metavar="NAME", help="The queue.")]
Priority = Annotated[int, typer.Option(metavar="N", help="Higher priorities run first.")]
Unique = Annotated[
    bool,
    typer.Option(
        "--unique", help="Refuse the job while one with this operation and payload is queued or running."
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--unique-key", metavar="KEY", help="Refuse the job while one with this key is queued or running."
    ),
]
Delay = Annotated[
    str | None,
    typer.Option(
        metavar="SPAN", help="Run it after this delay at the earliest: seconds, or such as 5m, 1d12h."
    ),
]
RunAt = Annotated[
    str | None,
    typer.Option(
        "--run-at",
        metavar="TIME",
        help="Run it at this time at the earliest; local time if it has no offset.",
    ),
]
Parent = Annotated[str | None, typer.Option(metavar="ID", help="The parent job.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="A tag. Repeatable.")]
Description = Annotated[str | None, typer.Option(metavar="TEXT", help="A description.")]
Meta = Annotated[
    list[str] | None,
    typer.Option("--meta", metavar="JSON|NAME=VALUE", help="Metadata of your own. Repeatable."),
]
Attempts = Annotated[
    int, typer.Option("--max-attempts", metavar="N", min=1, help="How many attempts it has.")
]
Timeout = Annotated[
    str | None, typer.Option("--timeout", metavar="SPAN", help="End an attempt after this time.")
]
Command = Annotated[
    str | None,
    typer.Option(metavar="ID", help="An id of yours: repeated calls with it submit one job."),
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until it has finished, like `pledger jobs wait`.")]


def submit(
    context: typer.Context,
    operation: Operation,
    fields: Fields = None,
    payload: Payload = None,
    payload_file: File = None,
    queue: Queue = "default",
    priority: Priority = 0,
    unique: Unique = False,
    unique_key: Key = None,
    delay: Delay = None,
    run_at: RunAt = None,
    parent: Parent = None,
    tag: Tags = None,
    description: Description = None,
    meta: Meta = None,
    max_attempts: Attempts = 1,
    timeout: Timeout = None,
    command: Command = None,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Submit a job, and print its id.

    Workers can claim it as soon as it is recorded. That the operation exists and the payload fits its model
    is checked when it runs, not now.

    \b
    Examples:
      pledger jobs submit count_kmers file=proteins.fasta k=3
      pledger jobs submit count_kmers --payload '{"file": "proteins.fasta"}' --unique --wait

    Exits 5 if a job with the same key has not finished; with --wait like `pledger jobs wait`. JSON: id,
    status; with --wait like `pledger jobs wait`.
    """
    session = session_of(context, as_json)
    given: dict[str, Any] = {
        "payload": payload_of(payload, payload_file, fields or []), "unique": unique_of(unique, unique_key),
        "delay": seconds_of(delay, "--delay"), "run_at": _time(run_at), "queue": queue, "priority": priority,
        "tags": tuple(tag or ()), "description": description, "meta": meta_of(meta or []), "command": command,
        "max_attempts": max_attempts, "timeout_seconds": seconds_of(timeout, "--timeout"),
    }  # fmt: skip
    with jobs_of(session) as jobs:
        id = _submitted(jobs, operation, parent, given)
        if wait:
            if not session.json:
                write(f"{id}\n")
                flush()
            wait_for(session, jobs, [id], shown=session.json)
        else:
            _print(session, jobs, id)


def _submitted(jobs: Jobs, operation: str, parent: str | None, given: dict[str, Any]) -> str:
    """Submit it. Raises NotThere for a parent that does not exist."""
    from ledger.errors import GuardFailed

    if parent is not None:
        given["parent"] = found(jobs.ledger, parent)
        jobs.status(given["parent"])
    try:
        return jobs.submit(operation, **given)
    except GuardFailed as error:
        if parent is not None:
            error.add_note("a finished job takes no child jobs")
        raise


def _print(session: Session, jobs: Jobs, id: str) -> None:
    if session.json:
        json_line({"id": id, "status": jobs.status(id)})
    else:
        write(f"{id}\n")


def unique_of(unique: bool, key: str | None) -> bool | str:
    if key == "":
        raise Misuse("--unique-key must not be empty")
    return unique if key is None else key


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    from projections.audit.moments import parse_time

    return parse_time(text)


EVERY: Final = 0.2
"""Seconds between two reads of a job's progress; more if a read takes long."""
LOOK: Final = 2.0
"""Minimum seconds between two checks whether a worker takes the jobs."""
SHARE: Final = 10
"""The checks take at most one of so many seconds."""

Patience = Annotated[
    str | None,
    typer.Option("--timeout", metavar="SPAN", help="Maximum time to wait: seconds, or such as 10m."),
]


def wait(context: typer.Context, ids: Many, timeout: Patience = None, as_json: AsJson = False) -> None:
    """Wait until jobs have finished.

    Progress is shown on stderr: for one job its own progress (as its operation reports it, or how many of its
    batches and child jobs succeeded), for several how many have finished; and the reason if no worker takes
    them.

    Exits 0 if all succeeded, 6 if one failed or was cancelled, 7 after the timeout. JSON, one
    object per line: id, status, over, error_code, error_message.
    """
    session = session_of(context, as_json)
    seconds = seconds_of(timeout, "--timeout")
    with jobs_of(session) as jobs:
        wait_for(session, jobs, each_found(jobs.ledger, ids), seconds)


def wait_for(
    session: Session, jobs: Jobs, ids: list[str], seconds: float | None = None, *, shown: bool = True
) -> None:
    """Wait for jobs, and print how they ended. Raises typer.Exit unless all succeeded."""
    statuses = _waited(session, jobs, ids, seconds)
    _report(session, jobs, statuses, shown)
    if code := _code(statuses):
        flush()
        raise typer.Exit(code)


def _waited(session: Session, jobs: Jobs, ids: list[str], seconds: float | None) -> dict[str, str]:
    """The statuses at the end, or at the timeout."""
    deadline = None if seconds is None else monotonic() + seconds
    statuses = {id: jobs.status(id) for id in ids}
    pause = EVERY
    said, looked = "", -LOOK
    with show_progress(session) as shown:
        bar = _Bar(jobs, ids, shown)
        while left := [id for id in ids if not is_over(statuses[id])]:
            rest = pause if deadline is None else min(pause, deadline - monotonic())
            if rest <= 0:
                break
            statuses |= jobs.wait(*left, seconds=rest)
            began = monotonic()
            if began - looked >= LOOK:
                looked, before = began, said
                said = unclaimed_reason(jobs.ledger, [id for id in ids if not is_over(statuses[id])])
                if said and said != before:
                    session.say(said)
            bar.show(statuses)
            pause = max(EVERY, SHARE * (monotonic() - began))
    return statuses


class _Bar:
    """The progress that is shown during a wait; hidden while a single job reports no progress."""

    def __init__(self, jobs: Jobs, ids: list[str], progress: Progress) -> None:
        self._jobs, self._ids, self._progress = jobs, ids, progress
        self._task: Task | None = None

    def show(self, statuses: dict[str, str]) -> None:
        if len(self._ids) == 1:
            name, unit = f"job {self._ids[0][:8]}", "steps"
            done, total = progress_of(self._jobs, self._ids[0])
        else:
            name, unit = f"{len(self._ids)} jobs", "jobs"
            done, total = sum(map(is_over, statuses.values())), len(self._ids)
        if done is None and total is None:
            return
        if self._task is None:
            self._task = self._progress.task(name, unit, start=done or 0)
        self._task.update(done or 0, total)


def is_over(status: str) -> bool:
    from ledger.jobs.job import TERMINAL

    return status in TERMINAL


def _code(statuses: dict[str, str]) -> int:
    """The exit code for all of them."""
    if any(is_over(status) and status != "succeeded" for status in statuses.values()):
        return Code.UNSUCCESSFUL
    return Code.FINE if all(map(is_over, statuses.values())) else Code.TIMED_OUT


def _report(session: Session, jobs: Jobs, statuses: dict[str, str], shown: bool) -> None:
    rows = [_ended(jobs, id, status) for id, status in statuses.items()]
    if session.json or shown:
        columns = [*titled("job", "status"), Column("error", keep=True)]
        session.print_rows(
            rows, columns, lambda row: [short(row["id"]), row["status"], _error(row)], styles=STATUSES
        )
    left = [id for id, status in statuses.items() if not is_over(status)]
    if left:
        session.say(f"timeout: {len(left)} of {len(statuses)} jobs have not finished")
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
