"""`pledger worker`: a worker that runs operations, and the workers that are there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..aloud import aloud
from ..codes import Code
from ..plain import plain
from ..printing import Column, fields, flush, json_line, table
from ..session import AsJson, Session, imported, session_of
from ..states import span
from .pulse import Pulse
from .stopping import stopped_by_signals

if TYPE_CHECKING:
    from consumers.jobs import Worker
    from ledger.store.leases import Worker as Listed

Operations = Annotated[
    str,
    typer.Option(metavar="MODULE:NAME", help="Your registry of operations; NAME: `registry` by default."),
]
Concurrency = Annotated[
    int, typer.Option(metavar="N", min=1, help="How many run at once, each in its process.")
]
Queues = Annotated[
    list[str] | None, typer.Option("--queue", metavar="NAME", help="Take from this queue only. Repeatable.")
]
Name = Annotated[str | None, typer.Option(metavar="NAME", help="Its name; else of host, process and chance.")]
Lease = Annotated[
    float | None,
    typer.Option(
        metavar="N", min=0.1, help="Without a sign of life its claims are over after so long; 30 by default."
    ),
]
Drain = Annotated[
    float | None,
    typer.Option(metavar="N", min=0, help="Told to stop, it waits so long for what runs; 30 by default."),
]
Grace = Annotated[
    float | None,
    typer.Option(metavar="N", min=0, help="What is cancelled has so long to stop by itself; 10 by default."),
]
Memory = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Memory that an operation may take, in megabytes.")
]
NoServices = Annotated[
    bool,
    typer.Option("--no-services", help="Only work: no reaper, no schedules, no parents closed, no cascade."),
]


def add_to(group: typer.Typer) -> None:
    """Add the commands of this module."""
    group.command()(run)
    group.command("list")(list_)


def run(
    context: typer.Context,
    operations: Operations,
    concurrency: Concurrency = 1,
    queue: Queues = None,
    name: Name = None,
    lease_seconds: Lease = None,
    drain_seconds: Drain = None,
    grace_seconds: Grace = None,
    memory_mb: Memory = None,
    no_services: NoServices = False,
    as_json: AsJson = False,
) -> None:
    """Run operations, until it is told to stop.

    Each operation runs in a process of its own. Any number of workers may run, on any machine that reaches
    the ledger. SIGTERM or Ctrl-C: it takes nothing more, and lets what runs come to its end; what does not in
    time is given back, for others. A second Ctrl-C ends at once; what it had is taken over once its lease is
    over. Besides, it keeps what jobs need: it closes parents, cancels what hangs on what was cancelled,
    submits what is scheduled, rescues what was left behind, and follows the views.

    \b
    Examples:
      pledger worker run --operations my_pipeline.operations:registry --concurrency 4
      pledger worker run --operations my_pipeline.operations --queue gpu --concurrency 1

    Exits 0 after a stop, 143 where work had to be given back. JSON, one object at the end: worker, done,
    gave_back.
    """
    session = session_of(context, as_json)
    imported(operations.partition(":")[0], "module of operations")
    given: dict[str, Any] = {
        "queues": queue or None, "concurrency": concurrency, "name": name, "lease_seconds": lease_seconds,
        "drain_seconds": drain_seconds, "grace_seconds": grace_seconds, "memory_mb": memory_mb,
        "services": not no_services,
    }  # fmt: skip
    _work(session, operations, {key: value for key, value in given.items() if value is not None})


def _work(session: Session, operations: str, given: dict[str, Any]) -> None:
    from consumers.jobs import Worker

    with session.ledger() as log:
        worker, gave_back = Worker(log, operations, **given), False
        names = ", ".join(worker.registry.names) or "nothing"
        session.say(f"worker {worker.name} runs {names}; Ctrl-C ends it")
        with aloud(session, "consumers", "projections.views"), stopped_by_signals() as stop:
            try:
                with Pulse(session, worker, stop):
                    gave_back = worker.run(stop)
            finally:
                _report(worker, gave_back, session)
    if gave_back:
        flush()
        session.say("work that was not done in time was given back")
        raise typer.Exit(Code.TERMINATED)


def _report(worker: Worker, gave_back: bool, session: Session) -> None:
    if session.json:
        json_line({"worker": worker.name, "done": worker.done, "gave_back": gave_back})
    else:
        back = "yes" if gave_back else "no"
        pairs = [("worker", worker.name), ("done", str(worker.done)), ("gave back", back)]
        fields(pairs, color=session.color)


def list_(context: typer.Context, as_json: AsJson = False) -> None:
    """List the workers that say that they are there.

    Each with its queues, how many of its slots are busy, how many pieces of work it has done, and for how
    long nothing was heard of it. Who leaves in order is not listed any more; who was killed is, until a
    reaper forgets it.

    JSON, one object a line: worker, host, pid, queues (null: all), operations, slots, busy, draining, done,
    started_at, seen_at, silent (seconds).
    """
    session = session_of(context, as_json)
    with session.ledger() as log:
        from ledger.store.leases import Leases

        rows = Leases(log).workers()
    if session.json:
        for row in rows:
            json_line(plain(row._asdict()))
    else:
        columns = [Column("worker", keep=True), Column("queues", keep=True), Column("busy", number=True),
                   Column("done", number=True), Column("silent", number=True), Column("state")]  # fmt: skip
        table(columns, map(_row, rows), color=session.color)
    if not rows:
        session.say("no worker is there; `pledger worker run --operations MODULE:NAME` is one")


def _row(row: Listed) -> list[str]:
    state = "draining" if row.draining else "here"
    queues = "all" if row.queues is None else ", ".join(row.queues)
    return [row.worker, queues, f"{row.busy}/{row.slots}", str(row.done), span(row.silent), state]
