"""`pledger consume`: run a consumer of Kafka topics, list groups, rewind one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import Misuse
from ..jobs.worker import stopped_by_signals
from ..metrics_port import MetricsPort, serve_metrics
from ..output import Column, plain, titled
from ..session import AsJson, Session, imported, session_of
from ..stderr import EVERY, log_to_stderr, logging_session
from .options import Kafka, Tables, Yes

if TYPE_CHECKING:
    import threading

    from consumers.kafka import Consumer
    from consumers.kafka.consumer_group.handler import Handler
    from consumers.kafka.consumer_group.offsets import Connection
    from ledger import Ledger

Named = Annotated[str, typer.Argument(metavar="MODULE:NAME", help="Your handler, declared with @consumer.")]
Concurrency = Annotated[
    int, typer.Option(metavar="N", min=1, help="How many keys are handled at once, each in a thread.")
]
Batch = Annotated[int, typer.Option(metavar="N", min=1, help="At most so many events in a transaction.")]
Instance = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="The name of this process: restarted in time, it keeps its partitions."
    ),
]
LedgerOf = Annotated[
    str | None,
    typer.Option("--ledger", metavar="DSN", help="The ledger, for bodies that are too large for a record."),
]
Drain = Annotated[
    float, typer.Option(metavar="SECONDS", min=0, help="How long running handlers get after a stop.")
]


def run(
    context: typer.Context,
    handler: Named,
    kafka: Kafka = None,
    tables: Tables = "consumers",
    concurrency: Concurrency = 1,
    batch: Batch = 500,
    instance: Instance = None,
    ledger: LedgerOf = None,
    metrics_port: MetricsPort = None,
    drain_seconds: Drain = 30.0,
    as_json: AsJson = False,
) -> None:
    """Run a consumer until SIGTERM or Ctrl-C.

    The effects of the handler and its offsets are stored in the database of --dsn, in one transaction. Any
    number of processes may run for one group: they share the partitions. While the brokers or the database
    are away it waits, and goes on.

    Exits 1 if a record of a topic is missing, or a topic was made anew.

    \b
    Examples:
      pledger consume run my_pipeline.counts:count --kafka localhost:9092
      pledger consume run my_pipeline.counts:count --concurrency 4 --metrics-port 9400

    JSON, one object at the end: group, processed, failed, parked.
    """
    session = logging_session(session_of(context, as_json))
    declared = _handler(handler)
    from consumers.kafka import Consumer
    from consumers.kafka.cluster import Cluster

    with ExitStack() as stack:
        consumer = Consumer(
            Cluster.of(kafka), declared, session.dsn, schema=tables, concurrency=concurrency, batch=batch,
            instance=instance, ledger=_ledger(ledger, stack), drain=drain_seconds,
        )  # fmt: skip
        stack.enter_context(log_to_stderr(session, "consumers"))
        stop = stack.enter_context(stopped_by_signals())
        serve_metrics(
            session, stack, metrics_port, lambda: consumer.metrics.registry, lambda: consumer.why_not_ready
        )
        session.say(f"group {declared.group} reads {', '.join(declared.topics)}; Ctrl-C ends it")
        stack.enter_context(_progress(session, consumer))
        try:
            consumer.run(stop)
        finally:
            session.print_fields(_totals(consumer))


def _handler(named: str) -> Handler:
    """The handler that is named. Raises Misuse."""
    from consumers.kafka.consumer_group.handler import Handler

    module, _, name = named.partition(":")
    if not (module and name):
        raise Misuse(f"{named!r} must be MODULE:NAME, such as my_pipeline.counts:count")
    found = getattr(imported(module, "module"), name, None)
    if not isinstance(found, Handler):
        raise Misuse(f"{named} is no handler: declare the function with @consumer(topics=…)")
    return found


def _ledger(dsn: str | None, stack: ExitStack) -> Ledger | None:
    if dsn is None:
        return None
    from ledger import connect

    return stack.enter_context(connect(dsn, create=False))


@contextmanager
def _progress(session: Session, consumer: Consumer) -> Iterator[None]:
    """Report on stderr, while the block runs, how many events were processed."""
    import threading

    end = threading.Event()
    thread = threading.Thread(target=_report, args=(session, consumer, end), name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


def _report(session: Session, consumer: Consumer, end: threading.Event) -> None:
    seen, at = 0, monotonic()
    while not end.wait(EVERY):
        now, totals = monotonic(), _totals(consumer)
        if totals["processed"] != seen:
            rate = (totals["processed"] - seen) / (now - at)
            session.say(f"{totals['processed']:,} events processed, {rate:,.0f}/s, {totals['parked']} parked")
        seen, at = totals["processed"], now


def _totals(consumer: Consumer) -> dict[str, Any]:
    metrics = consumer.metrics

    def total(metric: Any) -> int:
        return int(
            sum(
                one.value
                for family in metric.collect()
                for one in family.samples
                if one.name[-6:] == "_total"
            )
        )

    parked = sum(one.value for family in metrics.parked.collect() for one in family.samples)
    return {
        "group": metrics.group, "processed": total(metrics.processed), "failed": total(metrics.failed),
        "parked": int(parked),
    }  # fmt: skip


@contextmanager
def database(session: Session, schema: str) -> Iterator[Connection]:
    """The consumers' database, for one command. Raises SchemaMismatch where it has no tables of consumers."""
    from consumers.kafka.consumer_group.offsets import require_tables
    from ledger.log.admin import existing, single_connection

    with single_connection(existing(session.dsn)) as connection:
        require_tables(connection, schema)
        yield connection


def list_(context: typer.Context, tables: Tables = "consumers", as_json: AsJson = False) -> None:
    """List the groups that store offsets in the database of --dsn, with each of their partitions.

    JSON, one object per line: group, topic, partition, next_offset, last_position (null: not known),
    recorded_at (of the last event), waiting, behind, dead (parked events).
    """
    session = session_of(context, as_json)
    from consumers.kafka.consumer_group.offsets import positions

    with database(session, tables) as connection:
        rows = positions(connection, tables)
    columns = [*titled("group", "topic", keep=True),
               *titled("partition", "next_offset", "last_position", number=True), Column("recorded_at"),
               *titled("waiting", "behind", "dead", number=True)]  # fmt: skip
    session.print_rows(rows, columns, lambda row: list(row))
    if not rows:
        session.say("no group has stored an offset here")


Group = Annotated[str, typer.Argument(metavar="GROUP", help="The group.")]
Topics = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Topics of Kafka.")]
ToOffset = Annotated[int | None, typer.Option("--to-offset", metavar="N", min=0, help="To this offset.")]
ToPosition = Annotated[
    int | None,
    typer.Option(
        "--to-position", metavar="P", min=0, help="To the first event at this position or after it."
    ),
]
ToTime = Annotated[
    str | None,
    typer.Option(
        "--to-time", metavar="TIME", help="To the first event that was recorded then or later: 14:00, now-2h."
    ),
]
ToStart = Annotated[bool, typer.Option("--to-start", help="To the start of the topics.")]
ToEnd = Annotated[bool, typer.Option("--to-end", help="To the end: what is not handled yet is left out.")]
Partition = Annotated[
    list[int] | None, typer.Option("--partition", metavar="N", help="Only this partition. Repeatable.")
]


def rewind_(
    context: typer.Context,
    group: Group,
    topics: Topics,
    to_offset: ToOffset = None,
    to_position: ToPosition = None,
    to_time: ToTime = None,
    to_start: ToStart = False,
    to_end: ToEnd = False,
    partition: Partition = None,
    kafka: Kafka = None,
    tables: Tables = "consumers",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Rewind a group: set where it goes on. Without --yes it only shows what it would do.

    Events are handled again from there on: undo their effects first, or have a handler that does them twice
    without harm. What is parked from there on is forgotten, since it is read again. Exits 5 while a member of
    the group runs.

    JSON, one object per line: topic, partition, old (null: the group never read it), new, last_position (of
    the event before), parked (how many are forgotten), done (false without --yes).
    """
    session = session_of(context, as_json)
    from consumers.kafka.cluster import Cluster
    from consumers.kafka.consumer_group.rewind import Target, rewind
    from projections.audit.moments import parse_time

    at: datetime | None = None if to_time is None else parse_time(to_time)
    end = True if to_end else False if to_start else None
    if to_start and to_end:
        raise Misuse("give --to-start or --to-end, not both")
    target = Target(to_offset, to_position, at, end)
    with database(session, tables) as connection:
        steps = rewind(
            Cluster.of(kafka),
            connection,
            group,
            topics,
            target,
            schema=tables,
            partitions=partition,
            dry_run=not yes,
        )
    columns = [
        Column("topic", keep=True),
        *titled("partition", "old", "new", "last_position", "parked", number=True),
    ]
    session.print_rows(
        steps, columns, lambda one: list(plain(one).values()), data=lambda one: {**plain(one), "done": yes}
    )
    session.say(f"group {group} was rewound" if yes else "nothing was changed; --yes does it")
