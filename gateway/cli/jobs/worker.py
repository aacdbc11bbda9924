"""`pledger worker` and `pledger reaper`: run operations, list workers, end claims of vanished workers."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ..errors import Code, Terminated
from ..output import Column, flush, plain, titled
from ..session import AsJson, Session, imported, session_of
from ..states import span
from ..stderr import EVERY, log_to_stderr, logging_session

if TYPE_CHECKING:
    from consumers.jobs import Worker
    from ledger.jobs.leases import WorkerStatus as Listed

PATIENCE = 3.0
"""Seconds for which a worker's call waits for an unreachable server, before it tries again."""
Operations = Annotated[
    str,
    typer.Option(metavar="MODULE:NAME", help="Your registry of operations. Default of NAME: registry."),
]
Concurrency = Annotated[
    int, typer.Option(metavar="N", min=1, help="How many operations run at once, each in its own process.")
]
Queues = Annotated[
    list[str] | None, typer.Option("--queue", metavar="NAME", help="Take from this queue only. Repeatable.")
]
Name = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The worker's name, and the actor of what it records. Default: made of --actor, process id and "
        "a random part.",
    ),
]
Lease = Annotated[
    float | None,
    typer.Option(
        metavar="N",
        min=0.1,
        help="Seconds until its claims end if it does not renew them. Default: 30.",
    ),
]
Drain = Annotated[
    float | None,
    typer.Option(metavar="N", min=0, help="Seconds to wait for running work after a stop. Default: 30."),
]
Grace = Annotated[
    float | None,
    typer.Option(metavar="N", min=0, help="Seconds that cancelled work gets to stop by itself. Default: 10."),
]
Memory = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Maximum memory of an operation, in megabytes.")
]
NoServices = Annotated[
    bool,
    typer.Option(
        "--no-services", help="Run operations only: no reaper, no scheduler, no fan-in, no cascade."
    ),
]
Hints = Annotated[
    bool,
    typer.Option(
        "--hints", help="Hear of new work from a relay's topics, and ask the ledger only then or rarely."
    ),
]
Named = Annotated[
    str | None,
    typer.Option("--kafka", metavar="HOST:PORT", help="The cluster of --hints. Default: LEDGER_KAFKA."),
]
Prefix = Annotated[str, typer.Option(metavar="NAME", help="The prefix of the relay's topics.")]
NoViews = Annotated[
    bool,
    typer.Option("--no-views", help="Do not follow views: `pledger views follow` runs elsewhere."),
]


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
    no_views: NoViews = False,
    hints: Hints = False,
    kafka: Named = None,
    prefix: Prefix = "ledger",
    as_json: AsJson = False,
) -> None:
    """Run operations until SIGTERM or Ctrl-C.

    Each operation runs in a process of its own. Any number of workers may run, on any machine that reaches
    the ledger. After SIGTERM or Ctrl-C it claims nothing more and waits for running work; work that does not
    finish in time is returned to the queue. A second Ctrl-C ends it at once; other workers take over its work
    when the leases run out. A worker also runs the services of jobs: it completes parents, cancels the
    batches and children of cancelled jobs, submits scheduled jobs, ends claims of dead workers, and follows
    the views of jobs.

    Its login needs the roles writer and projector; with --no-views writer and reader.

    With --hints it hears of new work over Kafka, where a relay publishes the log: an idle worker asks the
    ledger every 5 seconds instead of many times a second. That spares the ledger where workers are many, or
    far from it, and run with --no-views and --no-services. The claim stays the ledger's; without Kafka the
    worker asks as usual.

    \b
    Examples:
      pledger worker run --operations my_pipeline.operations:registry --concurrency 4
      pledger worker run --operations my_pipeline.operations --queue gpu --concurrency 1

    stderr gets a line for each piece of work that ends: time, level, job, operation, outcome, duration, and
    error.

    Exits 0 after a stop, 143 if work was returned to the queue. JSON, one object at the end: worker, done,
    gave_back; each line on stderr is an object too: time, level, message, and for a piece of work job, batch,
    operation, queue, attempt, status, seconds, error_code, error_message, worker.
    """
    session = session_of(context, as_json)
    imported(operations.partition(":")[0], "module of operations")
    given: dict[str, Any] = {
        "queues": queue or None, "concurrency": concurrency, "name": name, "lease_seconds": lease_seconds,
        "drain_seconds": drain_seconds, "grace_seconds": grace_seconds, "memory_mb": memory_mb,
        "services": not no_services, "projecting": not no_views,
    }  # fmt: skip
    if hints:
        from consumers.kafka.cluster import Cluster
        from consumers.kafka.hints import KafkaHints

        given["hints"] = KafkaHints(Cluster.of(kafka), prefix=prefix, queues=queue or None)
    _work(session, operations, {key: value for key, value in given.items() if value is not None})


def _work(session: Session, operations: str, given: dict[str, Any]) -> None:
    from consumers.jobs import Worker

    program = "pledger worker run" if given["projecting"] else "pledger worker run --no-views"
    session = logging_session(session)
    with session.ledger(program) as log:
        log.pool.timeout = min(log.pool.timeout, PATIENCE)
        worker, gave_back = Worker(log, operations, **given), False
        names = ", ".join(worker.registry.names) or "nothing"
        session.say(f"worker {worker.name} runs {names}; Ctrl-C ends it")
        with (
            log_to_stderr(session, "consumers", "projections.engine", lines=True),
            stopped_by_signals() as stop,
        ):
            try:
                with WorkerProgress(session, worker, stop):
                    gave_back = worker.run(stop)
            finally:
                _report(worker, gave_back, session)
    if gave_back:
        flush()
        session.say("work that did not finish in time was returned to the queue")
        raise typer.Exit(Code.TERMINATED)


def _report(worker: Worker, gave_back: bool, session: Session) -> None:
    told = {"worker": worker.name, "done": worker.done}
    back = "yes" if gave_back else "no"
    session.print_fields(told | {"gave_back": gave_back}, told | {"gave back": back})


def list_(context: typer.Context, as_json: AsJson = False) -> None:
    """List the workers.

    Shows the queues and operations of each worker, its busy slots, how many pieces of work it has done, and
    the seconds since it was last seen. States: here; draining, after a stop; silent, if it does not renew its
    leases, for instance after a kill. A worker that stopped normally is not listed; a silent one is listed
    until a reaper removes it. stderr shows work that no worker takes.

    JSON, one object per line: worker, host, pid, queues (null: all), operations, slots, busy, draining, done,
    started_at, seen_at, silent (seconds), state.
    """
    session = session_of(context, as_json)
    with session.ledger() as log:
        from ledger.jobs.leases import Leases
        from projections.jobs.unclaimed import unclaimed

        rows, left = Leases(log).workers(), unclaimed(log)
    columns = [*titled("worker", "queues", keep=True), *titled("busy", "done", "silent", number=True),
               Column("state"), Column("operations", rest=True)]  # fmt: skip
    session.print_rows(rows, columns, _row, data=lambda row: {**plain(row), "state": row.state})
    for one in left:
        session.say(f"{one.waiting} jobs of {one.operation} wait in queue {one.queue}: {one.why}")
    if not rows:
        session.say("no worker runs; start one with `pledger worker run --operations MODULE:NAME`")


def _row(row: Listed) -> list[Any]:
    queues, busy = "all" if row.queues is None else row.queues, f"{row.busy}/{row.slots}"
    return [row.worker, queues, busy, row.done, span(row.silent), row.state, row.operations]


BLINK: Final = 0.5
"""Seconds between two reads."""


class WorkerProgress:
    """Reports from its own thread, while the block runs, how many pieces of work run and are done."""

    def __init__(self, session: Session, worker: Worker, stop: threading.Event) -> None:
        self._session, self._worker, self._stop = session, worker, stop
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)
        self._drains = False

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: TracebackType | type[BaseException] | BaseException | None) -> None:
        self._end.set()
        self._thread.join()
        self._say_stop()

    def _run(self) -> None:
        with _line(self._session) as show:
            done, at = self._worker.done, monotonic()
            while not self._end.wait(BLINK):
                self._say_stop()
                now = monotonic()
                if show is None and (now - at < EVERY or self._worker.done == done):
                    continue
                rate = (self._worker.done - done) / (now - at)
                done, at = self._worker.done, now
                told = f"{self._running()} running, {done:,} done, {rate:,.0f}/s"
                self._session.say(told) if show is None else show(told)

    def _running(self) -> int:
        return sum(slot.task is not None for slot in self._worker.slots)

    def _say_stop(self) -> None:
        """Report once that it was told to stop."""
        if self._stop.is_set() and not self._drains:
            self._drains = True
            running = self._running()
            waits = f"{running} still running; Ctrl-C again ends it at once" if running else "nothing runs"
            self._session.say(f"stopping: claims nothing more, {waits}")


@contextmanager
def _line(session: Session) -> Iterator[Callable[[str], None] | None]:
    """The function that changes the line on the terminal; None if there is no terminal."""
    if session.quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    console = Console(file=sys.stderr, color_system="auto" if session.color else None)
    with console.status("begins") as status:
        yield status.update


SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that the first signal sets. Raises Terminated or KeyboardInterrupt at the second one."""
    stop = threading.Event()

    def came(number: int, _frame: FrameType | None) -> None:
        if not stop.is_set():
            stop.set()
        elif number == signal.SIGTERM:
            raise Terminated
        else:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, came) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


Once = Annotated[bool, typer.Option("--once", help="Do it once, and end.")]
Every = Annotated[
    float | None, typer.Option(metavar="SECONDS", min=0.05, help="Seconds between two cycles. Default: 5.")
]


def run_reaper(
    context: typer.Context, once: Once = False, every: Every = None, as_json: AsJson = False
) -> None:
    """End the claims of dead workers, and offer their work again.

    Work whose lease has run out is offered again until its retries are used up, then it fails. A claim
    without a lease gets a new one. Due work that has not been claimed for long is offered again. Silent
    workers are removed from the list. Every worker does the same, unless it runs with --no-services; any
    number may run.

    JSON, one object at the end: requeued, failed (claims that were ended), dropped (leases of finished
    claims), granted (leases for claims without one), offered (again), forgotten (workers).
    """
    session = session_of(context, as_json)
    from consumers.jobs.reaper import Reaper

    with session.ledger("pledger reaper run") as log:
        if once:
            session.print_fields(Reaper(log).run_once()._asdict())
            return
        reaper = Reaper(log) if every is None else Reaper(log, every=every)
        with stopped_by_signals() as stop, log_to_stderr(session, "consumers"):
            session.say(f"the reaper checks every {reaper.every:g} s; Ctrl-C ends it")
            try:
                reaper.run(stop)
            finally:
                session.print_fields(reaper.counts._asdict())
