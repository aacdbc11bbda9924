"""`pledger runs import`: what a Prefect server kept in its database."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ..errors import Code
from ..jobs.worker import stopped_by_signals
from ..output import flush, titled
from ..session import AsJson, Session, session_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from consumers.runs.imports import Progress, Report

Database = Annotated[
    str,
    typer.Argument(
        metavar="DATABASE",
        help="The file of a SQLite database, such as ~/.prefect/prefect.db, or postgresql://USER@HOST/NAME.",
    ),
]
EVERY: Final = 1.0
"""Seconds between two lines of progress."""
SHOWN: Final = 20
"""Rows that were left out of which the reasons are shown."""


def import_(context: typer.Context, database: Database, as_json: AsJson = False) -> None:
    """Record what a Prefect server kept: runs with their states, and all that they need.

    Takes over flows, flow runs and task runs with their states, inputs and results, deployments with their
    schedules, work pools and queues, variables, blocks, artifacts, concurrency limits, automations, saved
    searches and logs, from Prefect 3.6 to 3.8. Ids stay the same; Prefect's times become claimed times. The
    database is only read. The values of blocks are decrypted with the key in it, or in
    PREFECT_SERVER_ENCRYPTION_KEY, and encrypted with a key of the ledger.

    What the ledger has already stays as it is, so an import can be repeated: it records what is new. One that
    was interrupted or killed goes on where it was. Rows that cannot be recorded are named and left out.

    Exits 1 if a row was left out.

    \b
    Examples:
      pledger runs import ~/.prefect/prefect.db
      pledger runs import postgresql://prefect@db.example.org/prefect

    JSON, one object per line: table, new, changed (runs in further states), known, left_out (the reasons).
    """
    session = session_of(context, as_json)
    from consumers.runs.imports import Import, prefect_database

    with session.ledger("pledger runs import") as log, prefect_database(database) as source:
        with stopped_by_signals() as stop:
            report = Import(log, source).run(_teller(session), stop)
            if stop.is_set():
                session.say("interrupted: start it again to go on")
    _print(session, report)
    if report.total.left:
        flush()
        raise typer.Exit(Code.REFUSED)


def _teller(session: Session) -> Callable[[Progress], None]:
    """Says once a second how far it is, how fast, and how long it will take."""
    last = time.monotonic()

    def tell(progress: Progress) -> None:
        nonlocal last
        if time.monotonic() - last < EVERY:
            return
        last = time.monotonic()
        left = "" if progress.left is None else f", {progress.left:.0f} s left"
        session.say(
            f"{progress.table}: {progress.done} of {progress.total} rows, {progress.rate:.0f} rows/s{left}"
        )

    return tell


def _print(session: Session, report: Report) -> None:
    rows = [(table, counts) for table, counts in report.tables.items() if counts.seen]
    columns = [*titled("table"), *titled("new", "changed", "known", "left out", number=True)]
    session.print_rows(
        rows, columns, lambda row: [row[0], row[1].new, row[1].changed, row[1].known, len(row[1].left)],
        data=_data,
    )  # fmt: skip
    left = report.total.left
    for reason in left[:SHOWN]:
        session.say(f"left out: {reason}")
    if len(left) > SHOWN:
        session.say(f"and {len(left) - SHOWN} more")
    for words in report.left_out:
        session.say(f"not taken over: {words}")


def _data(row: tuple[str, Any]) -> dict[str, Any]:
    table, counts = row
    known = {"new": counts.new, "changed": counts.changed, "known": counts.known}
    return {"table": table, **known, "left_out": counts.left}
