"""`pledger runs services`: the services of runs, in a process of their own."""

from __future__ import annotations

from typing import Annotated

import typer

from ..jobs.worker import stopped_by_signals
from ..output import flush, json_line
from ..session import AsJson, session_of
from ..stderr import log_to_stderr

LateAfter = Annotated[
    float, typer.Option(metavar="SECONDS", min=0, help="Seconds after its time when a run is late.")
]
CancellingTimeout = Annotated[
    float,
    typer.Option(metavar="SECONDS", min=0, help="Seconds that a run may be Cancelling."),
]
LogDays = Annotated[
    float, typer.Option(metavar="DAYS", min=0, help="Days for which log lines are kept; 0: for ever.")
]


def services(
    context: typer.Context,
    late_after: LateAfter = 15.0,
    cancelling_timeout: CancellingTimeout = 300.0,
    log_days: LogDays = 90.0,
    as_json: AsJson = False,
) -> None:
    """Run the services of runs until Ctrl-C: the scheduler, late runs, pauses, slots, workers, crashes.

    `pledger serve --prefect` runs them too, unless it is started with --no-services. Any number of processes
    may run them: one is elected, and another takes over when it ends.

    \b
    Examples:
      pledger runs services
      pledger runs services --late-after 60 --log-days 30

    JSON, one object when it has begun: services, their names.
    """
    session = session_of(context, as_json)
    from consumers.runs import RunServices, RunServiceSettings

    settings = RunServiceSettings(late_after, cancelling_timeout, log_days)
    with (
        session.ledger("pledger runs services") as log,
        stopped_by_signals() as stop,
        log_to_stderr(session, "consumers"),
        RunServices(log, settings) as running,
    ):
        if session.json:
            json_line({"services": [service.name for service in running.services]})
            flush()
        session.say("the services of runs are at work; Ctrl-C ends them")
        stop.wait()
