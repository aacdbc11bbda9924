"""`pledger views`: how views are, following them, and what is parked in them."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Final

import typer

from . import inlining, parking
from .aloud import aloud
from .codes import Misuse
from .naming_views import views_for
from .plain import plain
from .printing import Column, json_line, table, write
from .session import AsJson, Session, session_of

if TYPE_CHECKING:
    from ledger import Ledger
    from projections.views.projector import Projector
    from projections.views.watching import ViewState

EVERY: Final = 5.0
"""Seconds between two lines of progress, while there is any."""

Over = Annotated[
    float,
    typer.Option(
        metavar="SECONDS", min=0, max=3600, help="Watch for so long to tell the rate; 0 tells none."
    ),
]
Names = Annotated[
    list[str] | None, typer.Argument(metavar="VIEW", help="Only these; else all that are known.")
]
Once = Annotated[bool, typer.Option("--once", help="Apply what is there, and end.")]
Port = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=0, max=65535, help="Answer Prometheus at http://127.0.0.1:N/metrics meanwhile."
    ),
]

group = typer.Typer(
    help="How views are, following them, and what is parked in them.",
    invoke_without_command=True,
    rich_markup_mode=None,
)


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    parking.add_to(group)
    inlining.add_to(group)
    app.add_typer(group, name="views")


@group.callback()
def views(context: typer.Context, over: Over = 1.0, as_json: AsJson = False) -> None:
    """Show how each view is, or follow the log with them.

    Of each view: the copy that is read, its position, how many events of the log come after it and for how
    many seconds the first of them is recorded, events a second that are looked at, parked streams, and its
    state: live; behind; stopped (it fails, or nobody follows it); inline (the appends keep it); building (its
    first copy); not made; other definition (other code than this built it: `pledger rebuild`).

    JSON, one object a line: view, copy, position, events, lag_events, lag_seconds, rate, parked, state,
    building (copies), followers (projectors), updated_at, error.
    """
    session = session_of(context, as_json)
    context.find_root().obj = session
    if context.invoked_subcommand is not None:
        return
    session.know_views()
    from projections.views.watching import watch

    with session.ledger() as log:
        states = watch(log, seconds=over)
    if session.json:
        for state in states:
            json_line(plain(state))
        return
    numbers = ("copy", "position", "lag", "lag s", "events/s", "parked")
    columns = [Column("view"), *(Column(title, number=True) for title in numbers), Column("state", keep=True)]
    table(columns, map(_row, states), color=session.color)


@group.command()
def follow(
    context: typer.Context,
    names: Names = None,
    once: Once = False,
    metrics_port: Port = None,
    as_json: AsJson = False,
) -> None:
    """Apply what is recorded to views, until Ctrl-C.

    Any number may run at a time, each event is applied once. An event that fails is parked with its stream
    (`pledger views parked`), all other streams go on. A view that fails as a whole, or was built by other
    code, is left out and tried again every few seconds; where that is all of them, the command ends with 1.

    JSON, one object a view at the end: view, position, events (that were looked at), stopped (why it could
    not be followed, else null).
    """
    session = session_of(context, as_json)
    wanted = views_for(session, names or [])
    from projections.views.projector import Projector

    with session.ledger() as log:
        projector = Projector(log, wanted)
        with ExitStack() as stack:
            stack.enter_context(aloud(session, "projections.views"))
            if metrics_port is not None:
                _serve(stack, log, metrics_port, session)
            stack.callback(_report, projector, session)
            if once:
                projector.catch_up()
            else:
                _run(projector, session)


@group.command()
def metrics(context: typer.Context, as_json: AsJson = False) -> None:
    """Print how views are in the text format of Prometheus.

    JSON, one object a line: name, labels, value.
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


def _serve(stack: ExitStack, log: Ledger, port: int, session: Session) -> None:
    """Metrics over HTTP until the stack is closed. Raises Misuse where the port is taken."""
    from projections.metrics import ADDRESS, serving

    try:
        taken = stack.enter_context(serving(log, port))
    except OSError as error:
        raise Misuse(f"port {port} cannot be used: {error.strerror or error}") from error
    session.say(f"metrics are at http://{ADDRESS}:{taken}/metrics")


def _run(projector: Projector, session: Session) -> None:
    """Follow in a thread until a signal ends this one, and say how far it is."""
    session.say(f"followed are {', '.join(view.name for view in projector.views)}; Ctrl-C ends it")
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
    """Where each view stands at the end."""
    names = sorted(view.name for view in projector.views)
    rows = [
        (name, projector.positions.get(name), projector.applied[name], projector.stopped.get(name))
        for name in names
    ]
    if session.json:
        for name, position, events, error in rows:
            stopped = None if error is None else str(error)
            json_line({"view": name, "position": position, "events": events, "stopped": stopped})
        return
    columns = [Column("view"), Column("position", number=True), Column("events", number=True),
               Column("stopped", keep=True)]  # fmt: skip
    shown = [
        (name, _number(at), str(events), "" if why is None else str(why)) for name, at, events, why in rows
    ]
    table(columns, shown, color=session.color)


# Shown


def _row(state: ViewState) -> list[str]:
    age = "" if state.lag_seconds is None else f"{state.lag_seconds:.1f}"
    rate = "" if state.rate is None else f"{state.rate:.0f}"
    said = state.state.value if state.error is None else f"{state.state.value}: {state.error}"
    if state.building and state.copy is not None:
        said += f", copy {', '.join(map(str, state.building))} is being built"
    return [state.view, _number(state.copy), _number(state.position), _number(state.lag_events), age, rate,
            str(state.parked), said]  # fmt: skip


def _number(number: int | None) -> str:
    return "" if number is None else str(number)
