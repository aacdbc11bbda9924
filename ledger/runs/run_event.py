"""
What clients report of anything but their task runs: events of flow runs, workers, and the user's own.

    run_event/RESOURCE    the events of a resource, by its id, in the order in which they came

The ledger does not decide about them: it keeps each once, by its id. Prefect's events of states that were
set through the API are not here; they are derived from the streams of runs when they are read (spec W3-08).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from ..domain.event import Event
from ..domain.frozen import changed
from ..domain.moves import Moves
from ..domain.stream import Stream

HELD: Final = 32
"""How many ids of events the state of a resource keeps; of an older event, the log is asked."""

# Facts.


class RunEventReceived(Event, topic="run_event.received"):
    """A client sent an event (spec 2.3). occurred: when it happened, as the client claims, in UTC."""

    id: str
    occurred: str
    event: str
    resource: dict[str, str]
    related: tuple[dict[str, str], ...] = ()
    payload: dict[str, Any] = {}
    follows: str | None = None


# State.


@dataclass(frozen=True, slots=True)
class RunEvents:
    """What is known of a resource's events. held: the latest ids; newest: the latest claimed time."""

    status: str | None = None
    count: int = 0
    held: tuple[str, ...] = ()
    newest: datetime | None = None


def evolve(events: RunEvents, event: Event, at: datetime, /) -> RunEvents:
    """Apply a fact. It applies no rules."""
    if not isinstance(event, RunEventReceived):
        return events
    occurred = datetime.fromisoformat(event.occurred)
    return changed(
        events,
        count=events.count + 1,
        held=(*events.held, event.id)[-HELD:],
        newest=occurred if events.newest is None else max(events.newest, occurred),
    )


class OpenRunEvents(Stream[RunEvents, Event]):
    """The events of a resource open for change; its key is the id of the resource."""

    CATEGORY, MOVES, STATE = "run_event", Moves({}), RunEvents
    evolve = staticmethod(evolve)
