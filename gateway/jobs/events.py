"""`pledger jobs events`: what happened to a job and its batches, in the order of the log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ..plain import clean, iso, local, plain
from ..printing import flush, is_terminal, json_line, terminal, write
from ..session import AsJson, Session, session_of
from .finding import One, found, jobs_of
from .looks import LEVELS
from .waiting import is_over

if TYPE_CHECKING:
    from rich.console import Console

    from ledger.jobs import Jobs
    from projections.jobs import Entry

PAGE: Final = 500
PAUSE: Final = 0.1
"""Seconds between two looks for what came."""

Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes, until the job is over.")]
After = Annotated[int, typer.Option(metavar="POSITION", min=0, help="Only after this position of the log.")]
Limit = Annotated[int | None, typer.Option(metavar="N", min=1, help="Stop after so many.")]


def add_to(group: typer.Typer) -> None:
    """Add the command of this module."""
    group.command()(events)


def events(
    context: typer.Context,
    id: One,
    follow: Follow = False,
    after: After = 0,
    limit: Limit = None,
    as_json: AsJson = False,
) -> None:
    """Show what happened to a job, the newest last.

    Its own events and what its operation said, and those of its batches, whose names begin with `child.`.

    JSON, one object a line: position, at, level, event, message, fields, stream.
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
    """What there is, page by page; then, if it shall follow, what comes until the job is over."""
    from projections.jobs import timeline

    log = jobs.ledger
    while True:
        seen, end = log.wakeup.seen(), _end_of(jobs, id)
        page = timeline(log, id, after=after, limit=PAGE)
        yield from page
        if page:
            after = page[-1].position
        elif not follow or (end is not None and log.bound() >= end):
            return
        else:
            log.wakeup.wait(seen, PAUSE)


def _end_of(jobs: Jobs, id: str) -> int | None:
    """The position of the last event of a job that is over; None while it is not."""
    if not is_over(jobs.status(id)):
        return None
    (last,) = jobs.ledger.read(f"job/{id}", limit=1, backwards=True)
    return last.position


def _line_of(session: Session) -> Callable[[Entry], None]:
    if session.json:
        return lambda entry: json_line(_object(entry))
    if not is_terminal():
        return _tabbed
    return _drawn(terminal(color=session.color))


def _object(entry: Entry) -> dict[str, Any]:
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
