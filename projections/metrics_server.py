"""The server that Prometheus scrapes, with probes of readiness: of views, of a relay, of a consumer."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector as Collector

ADDRESS: Final = "127.0.0.1"


@contextmanager
def serving(
    metrics: Collector, port: int, why_not_ready: Callable[[], str | None] = lambda: None
) -> Iterator[int]:
    """Serve /metrics, /ready and /live at ADDRESS:PORT while the block runs; yields the port, chosen for 0.

    /ready answers 200, or 503 with the reason. Raises OSError if the port is taken.
    """
    server = _Server((ADDRESS, port), _Answers)
    server.metrics, server.why_not_ready = metrics, why_not_ready
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def text_of(metrics: Collector) -> str:
    """The present metrics in Prometheus' text format."""
    return generate_latest(metrics).decode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    metrics: Collector
    why_not_ready: Callable[[], str | None]


class _Answers(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        match self.path.partition("?")[0]:
            case "/metrics":
                self._answer(200, generate_latest(self.server.metrics), CONTENT_TYPE_LATEST)
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
