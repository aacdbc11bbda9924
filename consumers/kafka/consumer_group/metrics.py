"""What a consumer tells Prometheus."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class ConsumerMetrics:
    """The metrics of one group in this process, in a registry of their own or the given one.

    processed, failed: events, by topic. retries: attempts at parked events. parked: events that wait or are
    dead, by state. seconds: of a round's transaction. lag_events, lag_seconds: by topic and partition; the
    seconds are since the ledger recorded the last event applied, 0 where nothing waits. gaps: breaks in a
    chain. fenced: partitions that another consumer had moved. duplicates: records that were in a topic twice.
    """

    def __init__(self, group: str, registry: CollectorRegistry | None = None) -> None:
        self.group = group
        self.registry = registry or CollectorRegistry()
        self.processed = self._counter("processed", "Events that the handler was done with.", "topic")
        self.passed = self._counter("passed_over", "Events that the handler does not want.", "topic")
        self.failed = self._counter("failed", "Events whose handler raised, or that are unreadable.", "topic")
        self.retries = self._counter("retries", "Attempts at parked events.").labels(group)
        self.duplicates = self._counter("duplicates", "Records left out, as they came twice.").labels(group)
        self.gaps = self._counter("gaps", "Breaks in the chain of positions.").labels(group)
        self.fenced = self._counter("fenced", "Partitions that another consumer had moved.").labels(group)
        self.parked = self._gauge("parked", "Events that are parked.", "state")
        self._lag_events = self._gauge("lag_events", "Records that wait.", "topic", "partition")
        age = "Age of the last event applied, where others wait."
        self._lag_seconds = self._gauge("lag_seconds", age, "topic", "partition")
        duration = "Duration of a round: its handlers and the commit."
        name = "pledger_consumer_round_seconds"
        rounds = Histogram(name, duration, ("group",), buckets=SECONDS, registry=self.registry)
        self.seconds = rounds.labels(group)

    def _gauge(self, name: str, help_text: str, *labels: str) -> Gauge:
        return Gauge(f"pledger_consumer_{name}", help_text, ("group", *labels), registry=self.registry)

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(f"pledger_consumer_{name}", help_text, ("group", *labels), registry=self.registry)

    def lag(self, topic: str, partition: int, events: int, seconds: float) -> None:
        """Set the lag of a partition."""
        self._lag_events.labels(self.group, topic, partition).set(events)
        self._lag_seconds.labels(self.group, topic, partition).set(seconds)

    def forget(self, topic: str, partition: int) -> None:
        """Tell no lag of a partition that another consumer has now."""
        for gauge in (self._lag_events, self._lag_seconds):
            gauge.remove(self.group, topic, str(partition))
