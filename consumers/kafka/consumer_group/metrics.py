"""What a consumer tells Prometheus, and the server that answers it and probes of readiness."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

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

    def text(self) -> str:
        """The metrics in Prometheus' text format."""
        return generate_latest(self.registry).decode()


@contextmanager
def serving(
    metrics: ConsumerMetrics, why_not_ready: Callable[[], str | None], port: int, address: str = "127.0.0.1"
) -> Iterator[int]:
    """Serve /metrics, /ready and /live while the block runs; yields the port, which is chosen for 0.

    /ready answers 200, or 503 with the reason. Raises OSError if the port is taken.
    """

    server = _Server((address, port), _Answers)
    server.metrics, server.why_not_ready = metrics, why_not_ready
    thread = threading.Thread(target=server.serve_forever, name="consumer metrics", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    metrics: ConsumerMetrics
    why_not_ready: Callable[[], str | None]


class _Answers(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        match self.path.partition("?")[0]:
            case "/metrics":
                self._answer(200, self.server.metrics.text().encode(), CONTENT_TYPE_LATEST)
            case "/live":
                self._json(200, {"live": True})
            case "/ready":
                why = self.server.why_not_ready()
                self._json(200 if why is None else 503, {"ready": why is None, "why": why})
            case _:
                self._json(404, {"paths": ["/metrics", "/ready", "/live"]})

    def _json(self, code: int, body: dict[str, Any]) -> None:
        self._answer(code, json.dumps(body).encode(), "application/json")

    def _answer(self, code: int, body: bytes, kind: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *values: object) -> None:
        """Nothing: stderr is for what goes wrong."""
