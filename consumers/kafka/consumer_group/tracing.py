"""
The trace that caused an event goes on in the handler: W3C's `traceparent`, through OpenTelemetry where it is
installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any


@contextmanager
def in_trace(traceparent: str | None) -> Iterator[None]:
    """Make the context of a `traceparent` the current one of OpenTelemetry while the block runs.

    Does nothing without a traceparent, without `opentelemetry-api` (extra `telemetry`), and for one that is
    malformed.
    """
    telemetry = None if traceparent is None else _telemetry()
    if telemetry is None:
        yield
        return
    context, propagator = telemetry
    token = context.attach(propagator.extract({"traceparent": traceparent}))
    try:
        yield
    finally:
        context.detach(token)


@cache
def _telemetry() -> tuple[Any, Any] | None:
    try:
        from opentelemetry import context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except ImportError:
        return None
    return context, TraceContextTextMapPropagator()
