"""`pledger views`: their state, following them, their parked streams, and views that appends maintain."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from difflib import get_close_matches
from operator import attrgetter
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from .errors import Code, Misuse, NotThere
from .metrics_port import MetricsPort, serve_metrics
from .output import Column, clean, is_terminal, json_line, titled, write
from .session import AsJson, Session, session_of
from .stderr import log_to_stderr

if TYPE_CHECKING:
    from ledger import Ledger
    from projections.engine.projector import Projector
    from projections.engine.view import View
    from projections.engine.watch import ParkedStream, ViewState

EVERY: Final = 5.0
"""Seconds between two lines of progress, if there is any."""

Over = Annotated[
    float,
    typer.Option(
        metavar="SECONDS", min=0, max=3600, help="Watch for so long to tell the rate; 0 tells none."
    ),
]
Names = Annotated[
    list[str] | None, typer.Argument(metavar="VIEW", help="Only these; else all that are known.")
]
Once = Annotated[bool, typer.Option("--once", help="Apply the present events, and end.")]


def views(context: typer.Context, over: Over = 1.0, as_json: AsJson = False) -> None:
    """Show the state of each view, or follow the log with them.

    Of each view: the copy that is read, its position, how many events of the log come after it and for how
    many seconds the first of them is recorded, events a second that are looked at, parked streams, and its
    state: live; behind; stopped (it fails, or nobody follows it); inline (the appends update it); building
    (its first copy); not made; other definition (other code than this built it: `pledger rebuild`).

    JSON, one object per line: view, copy, position, events, lag_events, lag_seconds, rate, parked, state,
    building (copies), followers (projectors), updated_at, error.
    """
    session = session_of(context, as_json)
    context.find_root().obj = session
    if context.invoked_subcommand is not None:
        return
    session.know_views()
    from projections.engine.watch import watch

    with session.ledger() as log:
        states = watch(log, seconds=over)
    numbers = titled("copy", "position", "lag", "lag s", "events/s", "parked", number=True)
    session.print_rows(states, [Column("view"), *numbers, Column("state", keep=True)], _row)


def follow(
    context: typer.Context,
    names: Names = None,
    once: Once = False,
    metrics_port: MetricsPort = None,
    as_json: AsJson = False,
) -> None:
    """Keep views up to date until Ctrl-C.

    Any number may run at a time; each event is applied once. If an event fails, its stream is parked
    (`pledger views parked`) and all other streams continue. A view that fails as a whole, or was built by
    other code, is tried again every few seconds; if this is true of all views, the command exits 1.

    JSON, one object per view at the end: view, position, events (how many were read), stopped (why it could
    not be followed; otherwise null).
    """
    session = session_of(context, as_json)
    wanted = views_for(session, names or [])
    from projections.engine.projector import Projector
    from projections.metrics import LedgerMetrics

    with session.ledger("pledger views follow") as log:
        _warn(session, log, wanted)
        projector = Projector(log, wanted)
        with ExitStack() as stack:
            stack.enter_context(log_to_stderr(session, "projections.engine"))
            serve_metrics(session, stack, metrics_port, lambda: LedgerMetrics(log))
            stack.callback(_report, projector, session)
            if once:
                projector.catch_up()
            else:
                _run(projector, session)


def metrics(context: typer.Context, as_json: AsJson = False) -> None:
    """Print the state of views in Prometheus' text format.

    JSON, one object per line: name, labels, value.
    """
    session = session_of(context, as_json)
    session.know_views()
    from projections.metrics import metrics as told
    from projections.metrics import samples

    with session.ledger() as log:
        if not session.json:
            write(told(log))
            return
        for name, labels, value in samples(log):
            json_line({"name": name, "labels": labels, "value": value})


# Following


def _warn(session: Session, log: Ledger, views: Sequence[View]) -> None:
    """Report the topics of the views that are unknown."""
    from projections.engine.topics import unknown_topics, warning

    with log.reader() as connection:
        for view in views:
            if unknown := unknown_topics(connection, log.schema, view):
                session.say(warning(view.name, unknown))


def _run(projector: Projector, session: Session) -> None:
    """Follow in a thread until a signal ends this one, and report progress."""
    session.say(f"following {', '.join(view.name for view in projector.views)}; Ctrl-C ends it")
    before, at = dict(projector.applied), monotonic()
    with projector:
        while not projector.wait_for(sys.maxsize, EVERY):
            now, applied = monotonic(), dict(projector.applied)
            for name in sorted(applied):
                if (many := applied[name] - before.get(name, 0)) > 0:
                    position = projector.positions[name]
                    session.say(f"{name} is at position {position}; {many / (now - at):,.0f} events/s")
            before, at = applied, now


def _report(projector: Projector, session: Session) -> None:
    """Report the position of each view at the end."""
    columns = [Column("view"), *titled("position", "events", number=True), Column("stopped", keep=True)]
    rows = [
        {"view": name, "position": projector.positions.get(name), "events": projector.applied[name],
         "stopped": projector.stopped.get(name)}
        for name in sorted(view.name for view in projector.views)
    ]  # fmt: skip
    session.print_rows(rows, columns, lambda row: [*row.values()])


# Printed


def _row(state: ViewState) -> list[Any]:
    age = "" if state.lag_seconds is None else f"{state.lag_seconds:.1f}"
    rate = "" if state.rate is None else f"{state.rate:.0f}"
    said = state.state.value if state.error is None else f"{state.state.value}: {state.error}"
    if state.building and state.copy is not None:
        said += f", copy {', '.join(map(str, state.building))} is being built"
    return [state.view, state.copy, state.position, state.lag_events, age, rate, state.parked, said]


Name = Annotated[str, typer.Argument(metavar="VIEW", help="A view; `pledger views` lists them.")]
Timeout = Annotated[float, typer.Option(metavar="S", min=0, help="Seconds to wait for open appends.")]


def attach(context: typer.Context, view: Name, timeout: Timeout = 60.0, as_json: AsJson = False) -> None:
    """Let every append update a view, in its own transaction.

    First the view is brought up to date; then appends wait for a moment. From then on it is never behind,
    appends are slower, and an append on whose event the view fails is refused. Needs the ledger's role owner.

    JSON: view, inline, changed.
    """
    session = session_of(context, as_json)
    (wanted,) = views_for(session, [view])
    from projections.engine.attach import attach as attach_view

    with session.ledger() as log:
        changed = attach_view(log, wanted, timeout=timeout)
    _print_inline(session, view, True, changed)


def detach(context: typer.Context, view: Name, timeout: Timeout = 60.0, as_json: AsJson = False) -> None:
    """Let a follower update a view again (`pledger views follow`).

    It continues exactly where the appends stopped. If the view refused appends, they are accepted again, and
    the follower parks what fails.

    JSON: view, inline, changed.
    """
    session = session_of(context, as_json)
    from projections.engine.attach import detach as detach_view

    with session.ledger() as log:
        changed = detach_view(log, view, timeout=timeout)
    _print_inline(session, view, False, changed)


def _print_inline(session: Session, view: str, inline: bool, changed: bool) -> None:
    if session.json:
        json_line({"view": view, "inline": inline, "changed": changed})
        return
    by = "appends update it" if inline else "a follower updates it"
    session.say(f"view {view}: {by}{'' if changed else ', as before'}")


def views_for(session: Session, names: Sequence[str]) -> list[View]:
    """The views of these names. Raises UnknownView, with similar names."""
    session.know_views()
    from ledger import UnknownView
    from ledger.domain.known import KNOWN
    from projections.engine.projector import views_named

    try:
        return views_named(names)
    except UnknownView as error:
        raise with_near(error, error.view, KNOWN.views) from None


def with_near(error: Exception, name: str, known: Iterable[str]) -> Exception:
    """The error, with a note of similar names."""
    if found := get_close_matches(name, list(known), n=3, cutoff=0.6):
        error.add_note(f"did you mean {' or '.join(found)}?")
    return error


OneName = Annotated[str | None, typer.Argument(metavar="VIEW", help="Only of this view.")]
Stream = Annotated[str | None, typer.Argument(metavar="STREAM", help="A parked stream.")]
Everything = Annotated[bool, typer.Option("--all", help="All parked streams of the view.")]


def parked(context: typer.Context, view: OneName = None, as_json: AsJson = False) -> None:
    """List the streams that views leave out because an event failed.

    Shows the position of the event, the error, how often it was tried, and when last.

    JSON, one object per line: view, stream, position, error, event (as it is recorded), parked_at, tries.
    """
    session = session_of(context, as_json)
    with session.ledger() as log:
        found = _parked(log, session, view)
    columns = [Column("view"), Column("stream", keep=True), *titled("position", "tries", number=True),
               Column("last"), Column("error", keep=True)]  # fmt: skip
    cells = attrgetter("view", "stream", "position", "tries", "parked_at", "error")
    session.print_rows(found, columns, cells)
    if not (found or session.json):
        session.say("nothing is parked")


def retry(
    context: typer.Context,
    view: Name,
    stream: Stream = None,
    everything: Everything = False,
    as_json: AsJson = False,
) -> None:
    """Retry parked streams, from the event that failed.

    The later events of the stream are applied too, in order. If an event fails again, the stream stays parked
    at it, and the command exits 1. Rows of other streams are not changed.

    JSON, one object per line: view, stream, followed (whether it is followed again), position, error, tries;
    the last three are null if it is.
    """
    session = session_of(context, as_json)
    if (stream is None) != everything:
        raise Misuse("give the stream to follow again, or --all")
    (wanted,) = views_for(session, [view])
    with session.ledger("pledger views retry") as log:
        failed = _retry(log, wanted, _chosen(_parked(log, session, view), view, stream), session)
    if failed:
        raise typer.Exit(Code.REFUSED)


# Which streams


def _parked(log: Ledger, session: Session, view: str | None) -> list[ParkedStream]:
    """The parked streams. Raises UnknownView for a view that neither the ledger nor this process has."""
    from ledger import UnknownView
    from projections.engine.watch import parked as found
    from projections.engine.watch import watch

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
    """Follow streams again, in the order of their events; returns how many failed."""
    from projections.engine.copies import open_copies
    from projections.engine.refold import retry as again
    from projections.engine.watch import parked as found

    failed = 0
    with open_copies(log) as copies:
        copy = copies.followed(view)
        for one in chosen:
            followed = again(copies, view, copy.number, one.stream)
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
