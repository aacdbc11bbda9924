"""The option --metrics-port: a command that runs on serves its metrics and its readiness."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from .errors import Misuse
from .session import Session

if TYPE_CHECKING:
    from projections.metrics_server import Collector

MetricsPort = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=0, max=65535,
        help="Serve /metrics for Prometheus, /ready and /live at 127.0.0.1:N meanwhile.",
    ),
]  # fmt: skip


def serve_metrics(
    session: Session, stack: ExitStack, port: int | None, metrics: Callable[[], Collector],
    why_not_ready: Callable[[], str | None] = lambda: None,
) -> None:  # fmt: skip
    """Serve metrics until the stack is closed, if a port is given. Raises Misuse if it is taken."""
    if port is None:
        return
    from projections.metrics_server import ADDRESS, serving

    try:
        taken = stack.enter_context(serving(metrics(), port, why_not_ready))
    except OSError as error:
        raise Misuse(f"port {port} cannot be used: {error.strerror or error}") from error
    session.say(f"metrics are at http://{ADDRESS}:{taken}/metrics")
