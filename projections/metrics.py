"""Metrics of views and jobs for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ledger import Ledger, LedgerError
from ledger.log.readers import ParkedStreams
from ledger.log.sql import Statements

from .engine.watch import State, ViewState, watch
from .jobs.metrics import job_metrics
from .metrics_server import text_of

SQL = Statements(__package__, "metrics")


_GAUGES: Final = {
    "position": "Position of the last event in the view.",
    "lag_events": "Events after its position; beyond 100,000 the difference of positions.",
    "lag_seconds": "Age in seconds of the first event that is not in the view.",
    "parked": "Streams that it does not follow because an event of theirs failed.",
    "followers": "Projectors that follow it.",
    "copy": "Number of the copy that is read.",
}


def metrics(ledger: Ledger) -> str:
    """The present metrics, in Prometheus' text format. Raises ServerUnavailable."""
    return text_of(_Told(list(_families(ledger, watch(ledger)))))


def samples(ledger: Ledger) -> Iterator[tuple[str, dict[str, str], float]]:
    """The same as values: name, labels, value. Raises ServerUnavailable."""
    for family in _families(ledger, watch(ledger)):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


class _Told(Collector):
    """Collects metrics that were read before."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


class LedgerMetrics(Collector):
    """Reads the metrics when they are scraped; `pledger_up 0` for a ledger that cannot be read."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("pledger_up", "Whether the ledger could be read.", labels=("schema",))
        try:
            families = list(_families(self._ledger, watch(self._ledger)))
        except LedgerError:
            families = []
        up.add_metric((self._ledger.schema,), 1 if families else 0)
        yield up
        yield from families


def _families(ledger: Ledger, states: list[ViewState]) -> Iterator[Metric]:
    yield from _log(ledger)
    yield from job_metrics(ledger)
    yield from _reactors(ledger)
    for field, help_text in _GAUGES.items():
        gauge = GaugeMetricFamily(f"pledger_view_{field}", help_text, labels=("schema", "view"))
        for state in states:
            value = getattr(state, field)
            if value is not None:
                gauge.add_metric((ledger.schema, state.view), value)
        yield gauge
    events = CounterMetricFamily(
        "pledger_view_events", "Events that the live copy has read.", labels=("schema", "view")
    )
    state_of = GaugeMetricFamily(
        "pledger_view_state", "1 for the present state of the view.", labels=("schema", "view", "state")
    )
    for state in states:
        events.add_metric((ledger.schema, state.view), state.events or 0)
        for each in State:
            state_of.add_metric((ledger.schema, state.view, each.value), int(each is state.state))
    yield events
    yield state_of


def _reactors(ledger: Ledger) -> Iterator[Metric]:
    """The positions of the named readers of the log, and their parked streams."""
    labels = ("schema", "reactor")
    position = GaugeMetricFamily(
        "pledger_reactor_position", "Position of the last event that it has handled.", labels=labels
    )
    parked = GaugeMetricFamily(
        "pledger_reactor_parked",
        "Streams that it leaves out because an event of theirs failed.",
        labels=labels,
    )
    for one in ParkedStreams(ledger).readers():
        position.add_metric((ledger.schema, one.reactor), one.position)
        parked.add_metric((ledger.schema, one.reactor), one.parked)
    yield position
    yield parked


def _log(ledger: Ledger) -> Iterator[Metric]:
    """The end of the log, which views must reach."""
    rows = ledger.query(SQL.log_newest)
    last = GaugeMetricFamily("pledger_log_position", "Position of the last event.", labels=("schema",))
    at = GaugeMetricFamily(
        "pledger_log_last_event_timestamp_seconds", "When it was recorded.", labels=("schema",)
    )
    for position, recorded_at in rows:
        last.add_metric((ledger.schema,), position)
        at.add_metric((ledger.schema,), recorded_at.timestamp())
    yield last
    yield at
