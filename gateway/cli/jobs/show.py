"""`pledger jobs list`, `show`, `result` and `events`: the list of jobs, and one job with its history."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ..output import (
    Column,
    Page,
    clean,
    fields,
    flush,
    is_terminal,
    iso,
    json_line,
    local,
    most,
    plain,
    terminal,
    time,
    write,
)
from ..session import AsJson, Session, session_of
from .options import LEVELS, STATUSES, One, bar, found, jobs_of, queries_of, share, short, waits_because
from .submit import is_over, said

if TYPE_CHECKING:
    from rich.console import Console

    from ledger import Ledger
    from ledger.jobs import Job, Jobs
    from projections.jobs import Entry, JobQueries, Listed

Status = Annotated[str | None, typer.Option(metavar="S", help="Only those in this status.")]
Operation = Annotated[str | None, typer.Option(metavar="NAME", help="Only of this operation.")]
Queue = Annotated[str | None, typer.Option(metavar="NAME", help="Only in this queue.")]
Parent = Annotated[str | None, typer.Option(metavar="ID", help="Only child jobs of this one.")]
Tag = Annotated[str | None, typer.Option(metavar="TAG", help="Only with this tag.")]
Children = Annotated[bool, typer.Option("--include-children", help="List child jobs too.")]
Limit = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="List at most N. Default: 50 on a terminal, otherwise all."),
]
PAGE: Final = 500
After = Annotated[
    int | None, typer.Option(metavar="POSITION", help="Only jobs after this position, for the next page.")
]


def list_(
    context: typer.Context,
    status: Status = None,
    operation: Operation = None,
    queue: Queue = None,
    parent: Parent = None,
    tag: Tag = None,
    include_children: Children = False,
    limit: Limit = None,
    after: After = None,
    as_json: AsJson = False,
) -> None:
    """List jobs, the newest first.

    Child jobs are listed only on request. Reads the view `jobs`, which workers keep up to date; stderr
    reports if it is behind.

    \b
    Examples:
      pledger jobs list --status failed
      pledger jobs list --operation count_kmers --tag night --limit 10

    For a job that waits because no worker takes it, the reason is shown in the column of errors.

    JSON, one object per line: position, id, status, operation, queue, parent, created_at, due_at, started_at,
    finished_at, priority, attempt, worker, progress_current, progress_total, dispatched, discarded,
    error_code, error_message, description, findings, tags, dedup_key, waits_because (for a queued job that no
    worker takes; otherwise null).
    """
    session = session_of(context, as_json)
    with queries_of(session) as (log, queries):
        of = None if parent is None else found(log, parent)
        wanted = {"status": status, "operation": operation, "queue": queue, "tag": tag, "parent": of}
        rows = _pages(queries, after, **wanted, include_children=include_children)
        page = Page(rows, most(limit, 50))
        _print(session, _with_whys(log, page))
    if page.last is None:
        session.say("no job matches")
    elif page.more:
        session.say(f"there are more: give --after {page.last.position}, or a larger --limit")


def _pages(queries: JobQueries, after: int | None, **wanted: Any) -> Iterator[Listed]:
    while page := queries.list(**wanted, after=after, limit=PAGE):
        yield from page
        after = page[-1].position
        if len(page) < PAGE:
            return


def _with_whys(log: Ledger, rows: Iterable[Listed]) -> Iterator[tuple[Listed, str | None]]:
    """Each job, and why no worker takes it; None if one does, or it is not queued."""
    from ledger.jobs.leases import Leases
    from projections.jobs.unclaimed import why_unclaimed

    workers = Leases(log).workers()
    for row in rows:
        yield row, why_unclaimed(workers, row.queue, row.operation) if row.status == "queued" else None


def _print(session: Session, rows: Iterable[tuple[Listed, str | None]]) -> None:
    session.print_rows(
        rows, COLUMNS, lambda row: _row(*row), styles=STATUSES,
        data=lambda row: {**plain(row[0]), "waits_because": row[1]},
    )  # fmt: skip


COLUMNS = [
    Column("job"), Column("status"), Column("operation", keep=True), Column("queue", keep=True),
    Column("created"), Column("progress"), Column("error", rest=True),
]  # fmt: skip


def _row(job: Listed, why: str | None) -> list[Any]:
    progress = share(job.progress_current, job.progress_total)
    error = why or job.error_code
    return [short(job.id), job.status, job.operation, job.queue, job.created_at, progress, error]


COUNTS = ("attempt", "failures", "retries", "requeues", "stalls", "late")
"""Fields that are shown only if they are not zero."""


def show(context: typer.Context, id: One, as_json: AsJson = False) -> None:
    """Show one job as it is now.

    Shows its state, payload, metadata, progress and error, and how many of its batches and child jobs are in
    each status. Reads the streams; no view is needed.

    JSON, one object: id, operation, queue, status, payload, meta, and the rest of its state; progress: done,
    total; batch_statuses and child_statuses: how many are in each; due_at (null if it does not wait);
    waits_because (why no worker takes it; otherwise null).
    """
    session = session_of(context, as_json)

    with jobs_of(session) as jobs:
        job = jobs.get(found(jobs.ledger, id))
        progress = job.progress_current, job.progress_total
        counted = jobs.batch_statuses(job), jobs.child_statuses(job)
        why = waits_because(jobs.ledger, job)
    if session.json:
        json_line({**_object(job, progress, *counted), "waits_because": why})
    else:
        fields(_pairs(job, progress, *counted, why), color=session.color)


def result(context: typer.Context, id: One, as_json: AsJson = False) -> None:
    """Print the result of a job that succeeded, as JSON.

    Exits 6 if it has not succeeded. JSON: the result, one object.
    """
    session = session_of(context, as_json)
    with jobs_of(session) as jobs:
        value = plain(jobs.result(found(jobs.ledger, id)))
    if session.json or not is_terminal():
        json_line(value)
    else:  # characters that act on a terminal are escaped within JSON texts
        write("".join(f"{clean(line)}\n" for line in json.dumps(value, indent=2).split("\n")))


def _object(
    job: Job, progress: tuple[int | None, int | None], batches: Counter[str], children: Counter[str]
) -> dict[str, Any]:
    done, total = progress
    shown = {"id": job.id, **plain(job), "due_at": plain(job.due_at)}
    shown |= {"progress": {"done": done, "total": total}}
    return shown | {"batch_statuses": dict(batches), "child_statuses": dict(children)}


def _pairs(
    job: Job,
    progress: tuple[int | None, int | None],
    batches: Counter[str],
    children: Counter[str],
    why: str | None,
) -> Iterator[tuple[str, str]]:
    """Names and values; those without a value are left out."""
    yield "job", job.id
    yield "operation", job.operation
    yield "queue", job.queue
    yield "status", _status(job)
    for name, value in _told(job, why):
        if value:
            yield name, value
    if progress != (None, None):
        drawn = bar(*progress) if is_terminal() else ""
        yield "progress", f"{drawn} {share(*progress)}".strip()
    for name, counted in (("batches", batches), ("children", children)):
        if counted:
            yield name, ", ".join(f"{many} {status}" for status, many in sorted(counted.items()))
    if job.error_code and job.status != "succeeded":
        yield "error", said(job.error_code, job.error_message)
    yield "payload", _json(job.payload)
    if job.meta:
        yield "meta", _json(job.meta)


def _told(job: Job, why: str | None) -> Iterator[tuple[str, str]]:
    yield "waits", f"since {why}" if why else ""
    yield from (("description", job.description or ""), ("findings", job.findings or ""))
    yield from (("tags", ", ".join(job.tags)), ("parent", job.parent or ""), ("key", job.dedup_key or ""))
    yield "priority", str(job.priority or "")
    yield from (("created", time(job.created_at)), ("started", time(job.started_at)))
    yield from (("finished", time(job.finished_at)), ("due", time(job.due_at)), ("worker", job.worker or ""))
    yield from ((name, str(getattr(job, name) or "")) for name in COUNTS)
    yield "comments", str(job.comments or "")


def _status(job: Job) -> str:
    """The status in words: also whether the job is without a worker while its batches go on."""
    if job.status == "running" and job.dispatched:
        return "running, dispatched"
    return f"{job.status}, discarded" if job.discarded else str(job.status)


def _json(value: Any) -> str:
    return json.dumps(plain(value), ensure_ascii=False)


PAUSE: Final = 0.1
"""Seconds between two reads of new events."""

Follow = Annotated[bool, typer.Option("--follow", "-f", help="Follow new events until the job has finished.")]
EventsAfter = Annotated[
    int, typer.Option(metavar="POSITION", min=0, help="Only after this position of the log.")
]
Most = Annotated[int | None, typer.Option(metavar="N", min=1, help="Stop after N.")]


def events(
    context: typer.Context,
    id: One,
    follow: Follow = False,
    after: EventsAfter = 0,
    limit: Most = None,
    as_json: AsJson = False,
) -> None:
    """Show the events of a job, the newest last.

    Shows the job's events, what its operation emitted, and the events of its batches, whose names begin with
    `child.`.

    JSON, one object per line: position, at, level, event, message, fields, stream.
    """
    session = session_of(context, as_json)
    with jobs_of(session) as jobs:
        whole = found(jobs.ledger, id)
        jobs.status(whole)
        line = _line_of(session)
        for nth, entry in enumerate(_entries(jobs, whole, after, follow), start=1):
            line(entry)
            if follow:
                flush()
            if nth == limit:
                return


def _entries(jobs: Jobs, id: str, after: int, follow: bool) -> Iterator[Entry]:
    """The events so far, page by page; then, if `follow`, new ones until the job is over."""
    from ledger.log.cursor import Checkpoint
    from projections.jobs import timeline

    log = jobs.ledger
    checkpoint = Checkpoint(log.identity.ledger, after)
    while True:
        seen, end = log.wakeup.seen(), _end_of(jobs, id)
        page = timeline(log, id, after=checkpoint, limit=PAGE)
        yield from page
        if page:
            continue
        if not follow or (end is not None and log.bound() >= end):
            return
        log.wakeup.wait(seen, PAUSE)


def _end_of(jobs: Jobs, id: str) -> int | None:
    """The position of the last event of a job that is over; None while it is not."""
    if not is_over(jobs.status(id)):
        return None
    (last,) = jobs.ledger.read(f"job/{id}", limit=1, backwards=True)
    return last.position


def _line_of(session: Session) -> Callable[[Entry], None]:
    if session.json:
        return lambda entry: json_line(_entry_object(entry))
    if not is_terminal():
        return _tabbed
    return _drawn(terminal(color=session.color))


def _entry_object(entry: Entry) -> dict[str, Any]:
    names = ("position", "at", "level", "event", "message", "fields", "stream")
    return {name: plain(getattr(entry, name)) for name in names}


def _tabbed(entry: Entry) -> None:
    values = (str(entry.position), iso(entry.at), entry.level, entry.event, entry.message or "", _said(entry))
    write("\t".join(map(clean, values)) + "\n")


def _said(entry: Entry) -> str:
    return json.dumps(plain(entry.fields), ensure_ascii=False) if entry.fields else ""


def _drawn(console: Console) -> Callable[[Entry], None]:
    from rich.text import Text

    def draw(entry: Entry) -> None:
        text = Text(f"{local(entry.at)} ", "dim")
        text.append(f"{clean(entry.level):7} ", LEVELS.get(entry.level, "not dim"))
        text.append(f"{clean(entry.event)} ", "not dim green").append(clean(entry.message or ""), "not dim")
        text.append(f" {clean(_said(entry))}", "dim")
        with console.capture() as drawn:
            console.print(text, no_wrap=True, overflow="ellipsis", crop=True)
        write(drawn.get().rstrip() + "\n")

    return draw
