"""`pledger relay`: publish the log to Kafka, see how far it is, publish it anew."""

from __future__ import annotations

from contextlib import ExitStack
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..errors import Misuse, NotThere
from ..jobs.worker import stopped_by_signals
from ..metrics_port import MetricsPort, serve_metrics
from ..session import AsJson, Session, session_of
from ..stderr import log_to_stderr
from .options import Kafka, Prefix

if TYPE_CHECKING:
    from consumers.kafka.relay.relay import Derived, Relay, RelayStatistics
    from ledger import Ledger

EVERY: Final = 5.0
"""Seconds between two lines of progress, if there is any."""

NewPrefix = Annotated[str, typer.Option(metavar="NAME", help="The prefix of the new topics.")]
Name = Annotated[str, typer.Option(metavar="NAME", help="The relay's name; a prefix has one relay.")]
Partitions = Annotated[
    int,
    typer.Option(metavar="N", min=1, max=10_000, help="Partitions of new topics; they stay."),
]
Replicas = Annotated[
    int, typer.Option(metavar="N", min=-1, max=9, help="Copies of new topics; -1: as the brokers are set.")
]
Compression = Annotated[
    str | None, typer.Option(metavar="KIND", help="Compress records: gzip, lz4 or zstd. Default: none.")
]
Once = Annotated[bool, typer.Option("--once", help="Publish the present events, and end.")]
FromPosition = Annotated[int | None, typer.Option(metavar="P", min=0, help="Begin with the event after P.")]
FromTime = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Begin with the first event after a time: 2026-03-01, now-2h."),
]
States = Annotated[
    bool, typer.Option("--states", help="Also publish the current state of each stream (compacted topics).")
]
Views = Annotated[
    bool,
    typer.Option("--views", help="Also publish who entered which state, and the progress of sets."),
]
Follow = Annotated[bool, typer.Option("--follow", help="Go on with new events until Ctrl-C.")]


def run(
    context: typer.Context,
    kafka: Kafka = None,
    prefix: Prefix = "ledger",
    name: Name = "main",
    partitions: Partitions = 12,
    replicas: Replicas = -1,
    compression: Compression = None,
    states: States = False,
    views: Views = False,
    once: Once = False,
    metrics_port: MetricsPort = None,
    as_json: AsJson = False,
) -> None:
    """Publish the log to Kafka until Ctrl-C, each event once.

    Any number may run at a time: one is elected and publishes, and another follows if it is gone. Topics are
    made when their first event comes. If PostgreSQL or Kafka is away, it waits, and goes on where it was.

    --states and --views publish what follows from the events, in the same transactions. --states leaves out
    streams whose domain is not imported (--domain). --views needs the view progress, which a projector keeps,
    or the appends.

    \b
    Examples:
      pledger relay run --kafka localhost:9092
      pledger relay run --metrics-port 9464

    Exits 1 if the topics are not those of its checkpoint; the message says what to do. JSON, one object at
    the end: relay, prefix, position, events, blocks, lives.
    """
    session = session_of(context, as_json)
    with session.ledger("pledger relay run") as log:
        relay = _relay(session, log, kafka, prefix, name, partitions, replicas, compression, None)
        relay.derived = _derived(session, log, prefix, states=states, views=views)
        _publish(session, relay, last_position(log) if once else None, metrics_port)


def replay(
    context: typer.Context,
    prefix: NewPrefix,
    kafka: Kafka = None,
    name: Name = "replay",
    from_position: FromPosition = None,
    from_time: FromTime = None,
    follow: Follow = False,
    partitions: Partitions = 12,
    replicas: Replicas = -1,
    compression: Compression = None,
    states: States = False,
    views: Views = False,
    as_json: AsJson = False,
) -> None:
    """Publish the log anew, from a position or a time, below another prefix.

    The topics of other prefixes stay as they are. If it is interrupted, the same command goes on. Without
    --follow it ends with the event that is the last one when it begins.

    --states and --views publish the states of all streams that the events are of, and their progress, too: so
    topics of states are filled for a ledger that was published without them, or that is older than the relay.

    \b
    Examples:
      pledger relay replay --prefix ledger2
      pledger relay replay --prefix ledger2 --states --views --follow
      pledger relay replay --prefix since-monday --from-time 2026-03-02 --follow

    JSON, one object at the end: relay, prefix, position, events, blocks, lives.
    """
    session = session_of(context, as_json)
    with session.ledger("pledger relay run") as log:
        start = _start(log, from_position, from_time)
        relay = _relay(session, log, kafka, prefix, name, partitions, replicas, compression, start)
        relay.derived = _derived(session, log, prefix, states=states, views=views)
        _publish(session, relay, None if follow else last_position(log), None)


def status(
    context: typer.Context, kafka: Kafka = None, prefix: Prefix = "ledger", as_json: AsJson = False
) -> None:
    """Show how far a relay has published the log.

    JSON, one object: relay, prefix, elected (the process that publishes; null if there is none), position,
    start (events after this position are published), published (how many), last (position of the log),
    lag_events, lag_seconds, topics (topic, partitions, records).
    """
    session = session_of(context, as_json)
    from consumers.kafka.cluster import Cluster
    from consumers.kafka.relay.status import relay_status

    cluster = Cluster.of(kafka)
    with session.ledger() as log:
        found = relay_status(log, cluster, prefix)
    if found is None:
        raise NotThere(f"nothing was published below {prefix}; `pledger relay run` does", prefix=prefix)
    topics = ", ".join(f"{one.topic} ({one.records} in {one.partitions} partitions)" for one in found.topics)
    shown = {
        "relay": found.relay, "prefix": prefix, "elected": found.elected or "nobody",
        "position": f"{found.position} of {found.last}",
        "lag": f"{found.lag_events} events, {found.lag_seconds:.1f} s", "published": found.published,
        "topics": topics,
    }  # fmt: skip
    session.print_fields(found, shown)


def _relay(
    session: Session,
    log: Ledger,
    kafka: str | None,
    prefix: str,
    name: str,
    partitions: int,
    replicas: int,
    compression: str | None,
    start: int | None,
) -> Relay:
    from consumers.kafka.cluster import Cluster
    from consumers.kafka.relay.producer import COMPRESSIONS
    from consumers.kafka.relay.relay import Relay

    if compression is not None and compression not in COMPRESSIONS:
        raise Misuse(f"--compression {compression}: it must be one of {', '.join(COMPRESSIONS)}")
    cluster = Cluster.of(kafka)
    session.say(f"publishing to {cluster.bootstrap} below {prefix}")
    return Relay(
        log, cluster, name, prefix,
        partitions=partitions, replicas=replicas, start=start, compression=compression,
    )  # fmt: skip


def _derived(session: Session, log: Ledger, prefix: str, *, states: bool, views: bool) -> tuple[Derived, ...]:
    """What is published beside the events."""
    from consumers.kafka.relay.states import StateTopics, ViewTopics

    if states or views:
        session.know_views()  # the states of its streams are those of the domains that are imported
    of_states = [StateTopics(log, prefix)] if states else []
    of_views = [ViewTopics(log, prefix)] if views else []
    return (*of_states, *of_views)


def _publish(session: Session, relay: Relay, until: int | None, port: int | None) -> None:
    """Publish until `until` or a signal, with lines of progress."""
    from consumers.kafka.relay.status import RelayMetrics

    with ExitStack() as stack:
        stack.enter_context(log_to_stderr(session, "consumers.kafka"))
        serve_metrics(session, stack, port, lambda: RelayMetrics(relay), lambda: relay.statistics.error)
        stop = stack.enter_context(stopped_by_signals())
        try:
            relay.run(stop, until, Progress(session))
        finally:
            done = relay.statistics
            told = {"relay": relay.name, "prefix": relay.routes.prefix, "position": done.published,
                    "events": done.events, "blocks": done.blocks, "lives": done.lives}  # fmt: skip
            session.print_fields(told)


class Progress:
    """Tells how many events are published, every few seconds."""

    def __init__(self, session: Session) -> None:
        self.session, self.events, self.at = session, 0, monotonic()

    def __call__(self, statistics: RelayStatistics) -> None:
        now = monotonic()
        if now - self.at >= EVERY:
            rate = (statistics.events - self.events) / (now - self.at)
            self.session.say(f"position {statistics.published}: {rate:,.0f} events/s")
            self.events, self.at = statistics.events, now


def last_position(log: Ledger) -> int:
    """The position of the last event; 0 in an empty ledger."""
    from consumers.kafka.relay.status import lag_of

    return lag_of(log, 0).last


def _start(log: Ledger, position: int | None, time: str | None) -> int:
    """The position after which a replay begins. Raises Misuse."""
    if position is not None and time is not None:
        raise Misuse("--from-position and --from-time mean different moments: give one of them")
    if time is None:
        return position or 0
    from projections.audit import as_of

    from ..moments import moment_of

    return as_of(log, moment_of(at=time)).position
