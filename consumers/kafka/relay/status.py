"""Where a relay stands: its checkpoint, how far the log is ahead, and who is elected; as metrics, too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ledger import Ledger, LedgerError
from ledger.log.sql import Statements

from ..cluster import Cluster
from ..routes import Routes
from .checkpoint import read_checkpoint
from .relay import Relay, election_of

SQL = Statements(__package__, "status")

MAX_COUNTED: Final = 100_000
"""Events that are counted; beyond, the difference of positions is told."""


class Lag(NamedTuple):
    """How far a log is ahead of a position. seconds: since the first event after it was recorded, or 0."""

    last: int
    events: int
    seconds: float


class PublishedTopic(NamedTuple):
    """A topic of events. records: how many were published."""

    topic: str
    partitions: int
    records: int


@dataclass(frozen=True, slots=True)
class RelayStatus:
    """Where a relay stands. start, position: the events after the one and up to the other are published.

    elected: the process that publishes, None if there is none. published: how many events.
    """

    relay: str
    prefix: str
    elected: str | None
    position: int
    start: int
    published: int
    last: int
    lag_events: int
    lag_seconds: float
    topics: tuple[PublishedTopic, ...]


def lag_of(ledger: Ledger, position: int) -> Lag:
    """How far the log is ahead of a position. Raises ServerUnavailable."""
    last, events, seconds = ledger.query(SQL.lag, position=position, limit=MAX_COUNTED + 1)[0]
    return Lag(last, events if events <= MAX_COUNTED else last - position, max(seconds or 0.0, 0.0))


def relay_status(ledger: Ledger, cluster: Cluster, prefix: str = "ledger") -> RelayStatus | None:
    """Where the relay of a prefix stands; None where nothing was published.

    Raises KafkaUnavailable, ServerUnavailable, TopicMismatch.
    """
    routes = Routes(prefix)
    if (found := read_checkpoint(cluster, routes)) is None:
        return None
    elected = ledger.query(SQL.elected, name=election_of(routes))
    lag = lag_of(ledger, position := max(found.cursor.position, found.start))
    topics = tuple(
        PublishedTopic(name, chain.topic.partitions, chain.count)
        for name, chain in sorted(found.chains.items())
    )
    return RelayStatus(
        found.relay, prefix, elected[0][0] if elected else None, position, found.start, found.count,
        *lag, topics,
    )  # fmt: skip


class RelayMetrics(Collector):
    """The metrics of a relay that runs in this process; without its lag while the ledger cannot be read."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now."""
        relay = self.relay
        done, named = relay.statistics, (relay.ledger.schema, relay.routes.prefix)
        for name, value, help_text in (
            ("lives", done.lives, "How often it began: once, and after each error or lost election."),
            ("blocks", done.blocks, "Blocks that it published, each in one transaction."),
            ("events", done.events, "Events that it published."),
        ):
            counter = CounterMetricFamily(f"pledger_relay_{name}", help_text, labels=("schema", "prefix"))
            counter.add_metric(named, value)
            yield counter
        yield _gauge("up", named, float(done.error is None), "0 after an error, until a block is published.")
        yield _gauge("position", named, done.published, "Position up to which the log is published.")
        try:
            lag = lag_of(relay.ledger, done.published)
        except LedgerError:
            return
        yield _gauge("lag_events", named, lag.events, "Events that are recorded and not published.")
        yield _gauge("lag_seconds", named, lag.seconds, "Seconds since the first of them was recorded.")


def _gauge(name: str, named: tuple[str, str], value: float, help_text: str) -> Metric:
    gauge = GaugeMetricFamily(f"pledger_relay_{name}", help_text, labels=("schema", "prefix"))
    gauge.add_metric(named, value)
    return gauge
