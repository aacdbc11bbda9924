"""`pledger runs services`: the services of runs, in a process of their own."""

from __future__ import annotations

import typer

from ..jobs.worker import stopped_by_signals
from ..session import session_of
from ..stderr import log_to_stderr


def services(context: typer.Context) -> None:
    """Run the services of runs until Ctrl-C: the scheduler, late runs, pauses, slots, workers, crashes.

    `pledger serve --prefect` runs them too, unless it is started with --no-services. Any number of processes
    may run them: one is elected, and another takes over when it ends.

    \b
    Examples:
      pledger runs services
    """
    session = session_of(context, as_json=False)
    from consumers.runs import run_services

    with (
        session.ledger("pledger runs services") as log,
        stopped_by_signals() as stop,
        log_to_stderr(session, "consumers"),
    ):
        session.say("the services of runs are at work; Ctrl-C ends them")
        run_services(log, stop)
