"""The sockets of the Prefect API, and what they share: the intake of events."""

from __future__ import annotations

from functools import partial
from types import TracebackType
from typing import Final, Self

from anyio import CapacityLimiter
from starlette.routing import WebSocketRoute

from ledger import Ledger
from projections.runs.event_filters import EventFilter
from projections.runs.prefect_events import PrefectEvents

from .events_in import events_in
from .events_intake import Intake, Record
from .events_out import NewEvents, events_out
from .socket_feed import Feed

ROUTES: Final = (WebSocketRoute("/events/in", events_in), WebSocketRoute("/events/out", events_out))
THREADS: Final = 4
"""Threads that read the history for sockets, so that these never take those of requests."""
FAREWELL: Final = 5.0
"""Seconds in which events that were received are recorded while the server stops."""


class Sockets:
    """What the sockets of one server share. A context manager, to be entered and left in its event loop."""

    def __init__(self, ledger: Ledger, record: Record) -> None:
        self.ledger, self._record = ledger, record
        self.events = PrefectEvents(ledger)
        self.intake: Intake
        self.new_events: Feed[EventFilter]
        self.limiter: CapacityLimiter

    def __enter__(self) -> Self:
        self.intake, self.limiter = Intake(self._record), CapacityLimiter(THREADS)
        source = partial(NewEvents, self.ledger, self.events)
        self.new_events = Feed(source, self.ledger.wakeup, "new events")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.intake.close(FAREWELL)
