"""`pledger jobs submit`: a job is recorded, and with that it is offered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..codes import Misuse
from ..printing import flush, json_line, write
from ..session import AsJson, Session, session_of
from .finding import found, jobs_of
from .values import meta_of, payload_of, seconds_of
from .waiting import wait_for

if TYPE_CHECKING:
    from datetime import datetime

    from ledger.jobs import Jobs

Operation = Annotated[str, typer.Argument(metavar="OPERATION", help="What shall be run, by its name.")]
Fields = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME=VALUE", help="Fields of the payload: a value that is JSON, else a text."),
]
Payload = Annotated[str | None, typer.Option(metavar="JSON", help="The payload, a JSON object.")]
File = Annotated[
    str | None, typer.Option("--payload-file", metavar="FILE", help="A file with it; `-` is stdin.")
]
Queue = Annotated[str, typer.Option(metavar="NAME", help="The queue that it waits in.")]
Priority = Annotated[int, typer.Option(metavar="N", help="Those with more come first.")]
Unique = Annotated[
    bool, typer.Option("--unique", help="Refuse it while a job of this operation and payload is not over.")
]
Key = Annotated[
    str | None,
    typer.Option("--unique-key", metavar="KEY", help="Refuse it while a job with this key is not over."),
]
Delay = Annotated[str | None, typer.Option(metavar="SPAN", help="Not before: seconds, or such as 5m, 1d12h.")]
RunAt = Annotated[
    str | None,
    typer.Option("--run-at", metavar="TIME", help="Not before this time; local if without offset."),
]
Parent = Annotated[str | None, typer.Option(metavar="ID", help="The job that it becomes a child of.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="A tag. Repeatable.")]
Description = Annotated[str | None, typer.Option(metavar="TEXT", help="What it is about.")]
Meta = Annotated[
    list[str] | None,
    typer.Option("--meta", metavar="JSON|NAME=VALUE", help="Metadata of your own. Repeatable."),
]
Attempts = Annotated[int, typer.Option("--max-attempts", metavar="N", min=1, help="How often it may fail.")]
Timeout = Annotated[
    str | None, typer.Option("--timeout", metavar="SPAN", help="An attempt is ended after so long.")
]
Command = Annotated[
    str | None,
    typer.Option(metavar="ID", help="An id of yours: submitted once, however often this is called with it."),
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until it is over, as `pledger jobs wait` does.")]


def add_to(group: typer.Typer) -> None:
    """Add the command of this module."""
    group.command()(submit)


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

    It is offered as soon as it is recorded. Whether a worker knows the operation, and whether the payload
    fits its model, is seen when it is run.

    \b
    Examples:
      pledger jobs submit count_kmers file=proteins.fasta k=3
      pledger jobs submit count_kmers --payload '{"file": "proteins.fasta"}' --unique --wait

    Exits 5 where a job with the same key is not over; with --wait as `pledger jobs wait`. JSON: id, status;
    with --wait as of `pledger jobs wait`.
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
    """Submit it. Raises NotThere for a parent that is not there."""
    from ledger.errors import GuardFailed

    if parent is not None:
        given["parent"] = found(jobs.ledger, parent)
        jobs.status(given["parent"])
    try:
        return jobs.submit(operation, **given)
    except GuardFailed as error:
        if parent is not None:
            error.add_note("a job that is over takes no more child jobs")
        raise


def _print(session: Session, jobs: Jobs, id: str) -> None:
    if session.json:
        json_line({"id": id, "status": jobs.status(id)})
    else:
        write(f"{id}\n")


def unique_of(unique: bool, key: str | None) -> bool | str:
    if key == "":
        raise Misuse("--unique-key must be a text that is not empty")
    return unique if key is None else key


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    from projections.audit import parse_time

    return parse_time(text)
