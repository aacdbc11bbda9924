"""The sockets of the Prefect API, and what they share: the intake of events."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

from starlette.routing import WebSocketRoute

from .events_in import events_in
from .events_intake import Intake, Record

ROUTES: Final = (WebSocketRoute("/events/in", events_in),)
FAREWELL: Final = 5.0
"""Seconds in which events that were received are recorded while the server stops."""


class Sockets:
    """What the sockets of one server share. A context manager, to be entered and left in its event loop."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self.intake: Intake

    def __enter__(self) -> Self:
        self.intake = Intake(self._record)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.intake.close(FAREWELL)
