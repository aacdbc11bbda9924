"""`pledger jobs cancel`, `retry`, `comment` and `describe`: commands that change a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..error_report import code_of
from ..errors import Misuse
from ..output import Column, flush, plain, titled
from ..session import AsJson, Session, session_of
from .options import STATUSES, Many, One, Reason, Whole, each_found, found, jobs_of, short

if TYPE_CHECKING:
    from ledger.jobs import Jobs

Words = Annotated[str, typer.Argument(metavar="TEXT", help="The comment.")]
Author = Annotated[str | None, typer.Option(metavar="WHO", help="The author. Default: the actor.")]
Description = Annotated[str | None, typer.Option(metavar="TEXT", help="A description.")]
Findings = Annotated[str | None, typer.Option(metavar="TEXT", help="The findings.")]
Tags = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="TAG", help="A tag; the tags given replace all former ones. Repeatable."),
]
NoTags = Annotated[bool, typer.Option("--no-tags", help="Remove all tags.")]


def cancel(context: typer.Context, ids: Many, reason: Reason = None, as_json: AsJson = False) -> None:
    """Cancel jobs, with their batches and child jobs.

    The job is cancelled at once and finally; a result that a worker reports later is recorded and changes
    nothing. Workers then cancel its batches and child jobs. A finished job is not changed.

    JSON, one object per line: id, status, cancelled (whether by this call).
    """
    session = session_of(context, as_json)
    with jobs_of(session) as jobs:
        wanted = each_found(jobs.ledger, ids)
        before = {id: jobs.status(id) for id in wanted}
        rows = [(id, jobs.cancel(id, reason)) for id in wanted]
    done = [(id, job, before[id] in ("queued", "running")) for id, job in rows]
    _print(session, [(id, job.status or "", "cancelled", by_this) for id, job, by_this in done])
    for id, job, by_this in done:
        if not by_this:
            session.say(f"job {id[:8]} is {job.status} already: nothing changed")
        elif job.rounds or job.children:
            session.say(f"job {id[:8]}: workers will cancel its batches and child jobs")


def retry(
    context: typer.Context, ids: Many, reason: Reason = None, whole: Whole = False, as_json: AsJson = False
) -> None:
    """Run failed jobs again.

    Attempts and retries are counted from zero; the history is kept. Of a job with batches, only those that
    did not complete run again. A job that has not failed is refused.

    Exits 1 if one was refused, 5 if a job with the same key is queued or running; the others are retried.
    JSON, one object per line: id, status, retried, error (null if it was retried).
    """
    session = session_of(context, as_json)
    with jobs_of(session) as jobs:
        tried = [_retried(jobs, id, reason, whole) for id in each_found(jobs.ledger, ids)]
    session.print_rows(
        tried, [*COLUMNS, Column("refused", keep=True)], lambda row: [short(row[0]), *row[1:]],
        data=_retry_data, styles=STATUSES,
    )  # fmt: skip
    errors = [error for *_, error in tried if error is not None]
    if errors:
        flush()
        session.say(f"{len(errors)} of {len(tried)} were refused")
        raise typer.Exit(code_of(errors[0]))


COLUMNS = titled("job", "status")


def _retry_data(tried: tuple[str, str, Exception | None]) -> Any:
    id, status, error = tried
    return plain({"id": id, "status": status, "retried": error is None, "error": error})


def _retried(jobs: Jobs, id: str, reason: str | None, whole: bool) -> tuple[str, str, Exception | None]:
    """Id, status, and why it was refused. Raises NotThere, and errors that concern all jobs."""
    from ledger.errors import DuplicateJob, MoveNotAllowed

    try:
        return id, str(jobs.retry(id, reason, whole=whole).status), None
    except MoveNotAllowed:
        status = jobs.status(id)
        discarded = "it was discarded" if status == "failed" else f"it is {status}"
        return id, status, Misfit(f"only a failed job can be retried, and {discarded}")
    except DuplicateJob as error:
        return id, jobs.status(id), error


class Misfit(Exception):
    """The job's status does not allow the change."""


def comment(
    context: typer.Context, id: One, text: Words, author: Author = None, as_json: AsJson = False
) -> None:
    """Add a comment to a job; `pledger jobs events` shows it.

    JSON: id, comments (how many it has now).
    """
    session = session_of(context, as_json)
    with jobs_of(session) as jobs:
        whole = found(jobs.ledger, id)
        job = jobs.comment(whole, text, author)
    row = {"id": whole, "comments": job.comments}
    columns = [Column("job"), Column("comments", number=True)]
    session.print_rows([row], columns, lambda _: [short(whole), job.comments])


def describe(
    context: typer.Context,
    id: One,
    description: Description = None,
    findings: Findings = None,
    tag: Tags = None,
    no_tags: NoTags = False,
    as_json: AsJson = False,
) -> None:
    """Set the description, findings or tags of a job; what is not given is kept.

    JSON: id, description, findings, tags.
    """
    session = session_of(context, as_json)
    fields = _said(description, findings, tag, no_tags)
    with jobs_of(session) as jobs:
        whole = found(jobs.ledger, id)
        job = jobs.describe(whole, **fields)
    row = {"id": whole, "description": job.description, "findings": job.findings, "tags": job.tags}
    columns = [Column("job"), *titled("description", "findings", "tags", keep=True)]
    session.print_rows([row], columns, lambda _: [short(whole), job.description, job.findings, job.tags])


def _said(
    description: str | None, findings: str | None, tags: list[str] | None, no_tags: bool
) -> dict[str, Any]:
    """The fields that change. Raises Misuse if there is none."""
    if tags and no_tags:
        raise Misuse("`--tag` and `--no-tags` exclude each other")
    said = {"description": description, "findings": findings}
    given: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
    if tags or no_tags:
        given["tags"] = tuple(tags or ())
    if not given:
        raise Misuse("give --description, --findings, --tag or --no-tags")
    return given


def _print(session: Session, rows: Sequence[tuple[str, str, str, bool]]) -> None:
    shown = [{"id": id, "status": status, name: done} for id, status, name, done in rows]
    session.print_rows(shown, COLUMNS, lambda row: [short(str(row["id"])), row["status"]], styles=STATUSES)
