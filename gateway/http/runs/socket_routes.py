"""The sockets of the Prefect API, and what they share: the intake of events."""

from __future__ import annotations

from functools import partial
from types import TracebackType
from typing import Final, Self

from anyio import CapacityLimiter
from starlette.responses import Response
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from ledger import Ledger
from projections.runs.event_filters import EventFilter
from projections.runs.prefect_events import PrefectEvents

from .events_in import events_in
from .events_intake import Intake, Record
from .events_out import NewEvents, events_out
from .socket_feed import Feed
from .socket_logs import logs_out
from .socket_task_runs import Handout, scheduled_task_runs

THREADS: Final = 4
"""Threads that read the history for sockets, so that these never take those of requests."""
FAREWELL: Final = 5.0
"""Seconds in which events that were received are recorded while the server stops."""


async def no_worker_channel(websocket: WebSocket) -> None:
    """404: a worker then sends its heartbeats by HTTP."""
    await websocket.send_denial_response(Response(status_code=404))


ROUTES: Final = (
    WebSocketRoute("/events/in", events_in),
    WebSocketRoute("/events/out", events_out),
    WebSocketRoute("/task_runs/subscriptions/scheduled", scheduled_task_runs),
    WebSocketRoute("/logs/out", logs_out),
    WebSocketRoute("/work_pools/{name}/workers/connect", no_worker_channel),
)


class Sockets:
    """What the sockets of one server share. A context manager, to be entered and left in its event loop."""

    def __init__(self, ledger: Ledger, record: Record) -> None:
        self.ledger, self._record = ledger, record
        self.events = PrefectEvents(ledger)
        self.intake: Intake
        self.new_events: Feed[EventFilter, str]
        self.handout: Handout
        self.limiter: CapacityLimiter

    def __enter__(self) -> Self:
        self.intake, self.limiter = Intake(self._record), CapacityLimiter(THREADS)
        source = partial(NewEvents, self.ledger, self.events)
        self.new_events = Feed(source, self.ledger.wakeup, "new events")
        self.handout = Handout(self.ledger, self.limiter)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.intake.close(FAREWELL)
