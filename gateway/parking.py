"""`pledger views parked` and `retry`: streams that a view does not follow any more, until it does again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from .codes import Code, Misuse, NotThere
from .naming_views import views_for, with_near
from .plain import clean, iso, local, plain
from .printing import Column, is_terminal, json_line, table, write
from .session import AsJson, Session, session_of

if TYPE_CHECKING:
    from ledger import Ledger
    from projections.views.view import View
    from projections.views.watching import ParkedStream

Name = Annotated[str, typer.Argument(metavar="VIEW", help="A view, such as `pledger views` lists them.")]
OneName = Annotated[str | None, typer.Argument(metavar="VIEW", help="Only of this view.")]
Stream = Annotated[str | None, typer.Argument(metavar="STREAM", help="A stream that is parked.")]
Everything = Annotated[bool, typer.Option("--all", help="All streams that are parked in it.")]


def add_to(group: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (parked, retry):
        group.command()(command)


def parked(context: typer.Context, view: OneName = None, as_json: AsJson = False) -> None:
    """List the streams that views leave out since an event of theirs failed.

    Each with the position of that event, how often it was tried, when last, and the error.

    JSON, one object a line: view, stream, position, error, event (as it is recorded), parked_at, tries.
    """
    session = session_of(context, as_json)
    with session.ledger() as log:
        found = _parked(log, session, view)
    if session.json:
        for one in found:
            json_line(plain(one))
        return
    columns = [Column("view"), Column("stream", keep=True), Column("position", number=True),
               Column("tries", number=True), Column("last"), Column("error", keep=True)]  # fmt: skip
    table(columns, map(_parked_row, found), color=session.color)
    if not found:
        session.say("nothing is parked")


def retry(
    context: typer.Context,
    view: Name,
    stream: Stream = None,
    everything: Everything = False,
    as_json: AsJson = False,
) -> None:
    """Follow parked streams again, from the event on that failed.

    What came after it in the stream is applied too, in order. Where an event fails again, the stream stays
    parked at that event, and the command ends with 1. What came of other streams meanwhile is not undone.

    JSON, one object a line: view, stream, followed (whether it is again), position, error, tries; the last
    three null where it is.
    """
    session = session_of(context, as_json)
    if (stream is None) != everything:
        raise Misuse("name the stream to follow again, or give --all")
    (wanted,) = views_for(session, [view])
    with session.ledger() as log:
        failed = _retry(log, wanted, _chosen(_parked(log, session, view), view, stream), session)
    if failed:
        raise typer.Exit(Code.REFUSED)


# Which streams


def _parked(log: Ledger, session: Session, view: str | None) -> list[ParkedStream]:
    """What is parked. Raises UnknownView for one that neither the ledger nor this process knows."""
    from ledger import UnknownView
    from projections.views.watching import parked as found
    from projections.views.watching import watch

    rows = found(log, view)
    if view is not None and not rows:
        session.know_views()
        known = [state.view for state in watch(log)]
        if view not in known:
            raise with_near(UnknownView(view, known), view, known)
    return rows


def _chosen(found: Sequence[ParkedStream], view: str, stream: str | None) -> list[ParkedStream]:
    chosen = [one for one in found if stream in (None, one.stream)]
    if stream is not None and not chosen:
        error = NotThere(f"stream {stream} is not parked in view {view}", view=view, stream=stream)
        raise with_near(error, stream, [one.stream for one in found])
    return chosen


# Following them again


def _retry(log: Ledger, view: View, chosen: Sequence[ParkedStream], session: Session) -> int:
    """Follow streams again, in the order of their events; how many could not be."""
    from projections.views.copies import Shelf, projecting
    from projections.views.refolding import retry as again
    from projections.views.watching import parked as found

    failed = 0
    with projecting(log) as connection:
        shelf = Shelf(connection, log.schema)
        copy = shelf.followed(view)
        for one in chosen:
            followed = again(shelf, view, copy.number, one.stream)
            still = None if followed else next(p for p in found(log, view.name) if p.stream == one.stream)
            failed += not followed
            _tell_retry(view.name, one.stream, still, session)
    return failed


def _tell_retry(view: str, stream: str, still: ParkedStream | None, session: Session) -> None:
    if session.json:
        why = {
            "position": still and still.position,
            "error": still and still.error,
            "tries": still and still.tries,
        }
        json_line({"view": view, "stream": stream, "followed": still is None, **why})
    elif still is None:
        write(f"{clean(stream)}\tfollowed\n" if not is_terminal() else f"{clean(stream)} is followed again\n")
    else:
        said = f"parked\t{still.position}\t{clean(still.error)}"
        shown = f"{clean(stream)} is parked at position {still.position}: {clean(still.error)}\n"
        write(f"{clean(stream)}\t{said}\n" if not is_terminal() else shown)


def _parked_row(one: ParkedStream) -> list[str]:
    at = local(one.parked_at) if is_terminal() else iso(one.parked_at)
    return [one.view, one.stream, str(one.position), str(one.tries), at, one.error]
