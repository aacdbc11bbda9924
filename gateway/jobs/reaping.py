"""`pledger reaper run`: rescues work whose worker vanished, and work that waits for too long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..aloud import aloud
from ..printing import fields, json_line
from ..session import AsJson, Session, session_of
from .stopping import stopped_by_signals

if TYPE_CHECKING:
    from consumers.jobs.reaper import Figures

Once = Annotated[bool, typer.Option("--once", help="Rescue what is to be rescued now, and end.")]
Every = Annotated[
    float | None, typer.Option(metavar="SECONDS", min=0.05, help="How often it looks; every 5 s by default.")
]


def add_to(group: typer.Typer) -> None:
    """Add the command of this module."""
    group.command()(run)


def run(context: typer.Context, once: Once = False, every: Every = None, as_json: AsJson = False) -> None:
    """Rescue what was left behind, until it is told to stop.

    Work whose lease is over is offered again, within its budget, then failed; a claim whose lease was lost
    gets one of grace; work that is due and that nobody takes for long is offered again; workers that say
    nothing for long are forgotten. Every worker does this as well, unless it is told not to; any number may.

    JSON, one object at the end: requeued, failed (claims that were ended), dropped (leases of claims that
    were over), granted (leases of grace), offered (again), forgotten (workers).
    """
    session = session_of(context, as_json)
    from consumers.jobs.reaper import Reaper

    with session.ledger() as log:
        if once:
            _report(Reaper(log).run_once(), session)
            return
        reaper = Reaper(log) if every is None else Reaper(log, every=every)
        with stopped_by_signals() as stop, aloud(session, "consumers"):
            session.say(f"the reaper looks every {reaper.every:g} s; Ctrl-C ends it")
            try:
                reaper.run(stop)
            finally:
                _report(reaper.figures, session)


def _report(figures: Figures, session: Session) -> None:
    counts = figures._asdict()
    if session.json:
        json_line(counts)
    else:
        fields([(name, str(count)) for name, count in counts.items()], color=session.color)
