"""
`/events/out`: Prefect's events as they happen, of which a client wants those that its filter includes.

A client sends `{"type": "filter", "filter": {…}, "backfill": true}` after its login; it gets the events since
`filter.occurred.since`, for a quarter of an hour at most, and then those that happen, in the order of the log
and each once: `{"type": "event", "event": {…}}`. What is no filter is answered by a close with 1002.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from starlette.websockets import WebSocket

from ledger import Ledger, Recorded
from ledger.tokens import Role
from projections import Follower
from projections.runs.event_filters import EventFilter
from projections.runs.prefect_events import TOPICS, PrefectEvents

from .socket_login import admitted, asked
from .socket_sender import Past, Sender

if TYPE_CHECKING:
    from .socket_routes import Sockets

OLDEST: Final = timedelta(minutes=15)
"""How far back a client may ask for what has happened; Prefect's own limit."""
SKEW: Final = timedelta(minutes=1)
"""How much later than it was recorded an event may claim to have occurred."""
PAGE: Final = 200
"""Events of the history that are read at once."""


class NewEvents:
    """The events of the log from its end on: a source of a feed."""

    def __init__(self, ledger: Ledger, events: PrefectEvents) -> None:
        self._events = events
        self._follower = Follower(ledger, ledger.bound(), topics=TOPICS)

    @property
    def place(self) -> int:
        """The position up to which it was read."""
        return self._follower.position

    def poll(self) -> Sequence[Recorded] | None:
        """The next facts that may have an event; None at the end."""
        return self._follower.poll() or None

    def chosen(self, batch: Sequence[Recorded], filters: Sequence[EventFilter]) -> list[list[str]]:
        """The events that each filter includes. Those of one name are derived once for all filters."""
        derived: dict[str, list[tuple[dict[str, Any], str]]] = {}
        for wanted in filters:
            if repr(wanted.names) not in derived:
                events = self._events.of(batch, EventFilter(names=wanted.names))
                derived[repr(wanted.names)] = [(event, _told(event)) for event in events]
        return [
            [text for event, text in derived[repr(wanted.names)] if wanted.includes(event)]
            for wanted in filters
        ]


async def events_out(websocket: WebSocket) -> None:
    """Tell a client the events that it wants, until it is gone."""
    if await admitted(websocket, Role.READER) is None:
        return
    if (filter_ := await asked(websocket, _wanted)) is not None:
        wanted, backfill = filter_
        await _tell(websocket, wanted, backfill=backfill)


async def _tell(websocket: WebSocket, wanted: EventFilter, *, backfill: bool) -> None:
    sockets: Sockets = websocket.app.state.sockets

    def past(after: int, upto: int) -> Past:
        page = sockets.events.read(wanted, limit=PAGE, start=after, upto=upto)
        return Past([_told(event) for event in page.events], page.next)

    def begin() -> int:
        assert wanted.since is not None
        return sockets.events.position_before(wanted.since - SKEW)

    sender = Sender(websocket, sockets.new_events, wanted, past, sockets.limiter)
    await sender.run(begin if backfill else None)


async def _wanted(message: dict[str, Any]) -> tuple[EventFilter, bool]:
    """The filter of a message, and whether past events are wanted. Raises BadInput."""
    wanted = EventFilter.of(message.get("filter"))
    earliest = datetime.now(UTC) - OLDEST
    since = earliest if wanted.since is None else max(wanted.since, earliest)
    return replace(wanted, since=since, oldest_first=True), message.get("backfill") is not False


def _told(event: dict[str, Any]) -> str:
    return json.dumps({"type": "event", "event": event}, ensure_ascii=False)
