"""`pledger jobs list`: jobs by what they are, the newest first, from the view `jobs`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from ..plain import plain
from ..printing import Column, json_line, table
from ..session import AsJson, Session, session_of
from .finding import found, short
from .looks import STATUSES, share, time

if TYPE_CHECKING:
    from ledger import Ledger
    from projections.jobs import JobQueries, Listed

Status = Annotated[str | None, typer.Option(metavar="S", help="Only those in this status.")]
Operation = Annotated[str | None, typer.Option(metavar="NAME", help="Only of this operation.")]
Queue = Annotated[str | None, typer.Option(metavar="NAME", help="Only in this queue.")]
Parent = Annotated[str | None, typer.Option(metavar="ID", help="Only child jobs of this one.")]
Tag = Annotated[str | None, typer.Option(metavar="TAG", help="Only with this tag.")]
Children = Annotated[bool, typer.Option("--include-children", help="Child jobs as well.")]
Limit = Annotated[int, typer.Option(metavar="N", min=1, max=500, help="At most so many.")]
After = Annotated[
    int | None, typer.Option(metavar="POSITION", help="Only after the job at this place: the next page.")
]


def add_to(group: typer.Typer) -> None:
    """Add the command of this module."""
    group.command("list")(list_)


def list_(
    context: typer.Context,
    status: Status = None,
    operation: Operation = None,
    queue: Queue = None,
    parent: Parent = None,
    tag: Tag = None,
    include_children: Children = False,
    limit: Limit = 50,
    after: After = None,
    as_json: AsJson = False,
) -> None:
    """List jobs, the newest first.

    Those of the top level, unless children are asked for. The view `jobs` is asked, which workers keep;
    where it is behind, that is said.

    \b
    Examples:
      pledger jobs list --status failed
      pledger jobs list --operation count_kmers --tag night --limit 10

    JSON, one object a line: position, id, status, operation, queue, parent, created_at, due_at, started_at,
    finished_at, priority, attempt, worker, progress_current, progress_total, dispatched, discarded,
    error_code, error_message, description, findings, tags, dedup_key.
    """
    session = session_of(context, as_json)
    with queries_of(session) as (log, queries):
        of = None if parent is None else found(log, parent)
        rows = queries.list(
            status=status, operation=operation, queue=queue, tag=tag, parent=of,
            include_children=include_children, after=after, limit=limit,
        )  # fmt: skip
    _print(session, rows)
    if not rows:
        session.say("no such job is in the view; `pledger jobs submit` submits one")
    elif len(rows) == limit:
        session.say(f"there may be more: --after {rows[-1].position}, or a larger --limit")


def _print(session: Session, rows: Sequence[Listed]) -> None:
    if session.json:
        for row in rows:
            json_line(plain(row))
    else:
        table(COLUMNS, map(_row, rows), color=session.color, styles=STATUSES)


@contextmanager
def queries_of(session: Session) -> Iterator[tuple[Ledger, JobQueries]]:
    """The questions to the view, and afterwards, on stderr, how far it is behind."""
    from projections.jobs import JobQueries
    from projections.shipped import load

    load()
    with session.ledger() as log:
        yield log, JobQueries(log)
        _say_how_fresh(session, log)


def _say_how_fresh(session: Session, log: Ledger) -> None:
    """Say that the view is behind, and what brings it on."""
    from projections.views.view import VIEWS
    from projections.views.watching import State, watch

    (state,) = (one for one in watch(log, [VIEWS["jobs"]]) if one.view == "jobs")
    lag = f"the view jobs is {state.lag_events} events behind"
    match state.state:
        case State.STOPPED if state.error is not None:
            session.say(f"{lag}, since it cannot be followed: {state.error}")
        case State.STOPPED:
            session.say(f"{lag}, and nobody follows it: run a worker, or `pledger views follow jobs --once`")
        case State.BEHIND:
            session.say(f"{lag}; it is being followed")
        case State.OTHER_DEFINITION:
            session.say("the view jobs was built by other code than this: `pledger rebuild jobs`")
    if state.parked:
        session.say(f"{state.parked} streams are left out of it: `pledger views parked jobs`")


COLUMNS = [
    Column("job"), Column("status"), Column("operation", keep=True), Column("queue", keep=True),
    Column("created"), Column("progress"), Column("error", rest=True),
]  # fmt: skip


def _row(job: Listed) -> list[str]:
    progress = share(job.progress_current, job.progress_total)
    error = job.error_code or ""
    return [short(job.id), job.status, job.operation, job.queue, time(job.created_at), progress, error]
