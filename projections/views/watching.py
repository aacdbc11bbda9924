"""How all views are: where each stands, how far it is behind, what is parked, whether anybody follows it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from ledger import Ledger

from ..sql import query
from .view import VIEWS, View

BEHIND: Final = 1.0
"""Seconds that the first event which is not in a view may be old, before the view counts as behind."""
COUNTED: Final = 100_000
"""Events up to which a lag is counted."""


class State(StrEnum):
    """What can be said of a view in a word."""

    LIVE = "live"  # everything but the last moment is in
    BEHIND = "behind"  # it is followed, and has a way to go
    STOPPED = "stopped"  # its statements fail, or nobody follows it while there are events
    INLINE = "inline"  # the appends keep it
    BUILDING = "building"  # its first copy is being built
    NOT_MADE = "not made"  # nobody followed or built it yet
    OTHER_DEFINITION = "other definition"  # other code than this process's built it


@dataclass(frozen=True, slots=True)
class ViewState:
    """One view, as it is just now; None where the view is not made, or appends keep it.

    lag_events: events after its position, whether it wants them or not; beyond 100,000 the difference of
    positions. lag_seconds: how long the first of them is recorded. rate: events a second that were looked at
    while it was watched. parked: streams. building: copies that are being built. followers: projectors.
    error: why the last projector could not go on.
    """

    view: str
    copy: int | None
    position: int | None
    events: int | None
    lag_events: int | None
    lag_seconds: float | None
    rate: float | None
    parked: int
    state: State
    building: tuple[int, ...]
    followers: int
    updated_at: datetime | None
    error: str | None


@dataclass(frozen=True, slots=True)
class ParkedStream:
    """A stream that a view does not follow any more: from which event on, why, and how often that was tried.

    event: the event as it is recorded, its columns by name.
    """

    view: str
    stream: str
    position: int
    error: str
    event: dict[str, Any]
    parked_at: datetime
    tries: int


def watch(ledger: Ledger, views: Iterable[View] | None = None, *, seconds: float = 0.0) -> list[ViewState]:
    """How the views are that the ledger or this process knows, by name; reading is all that it needs.

    views: those whose definition is compared with what is there, by default all of this process.
    seconds: watch for so long and say at which rate events were looked at.
    """
    known = {view.name: view for view in (VIEWS.values() if views is None else views)}
    before, began = (_looked_at(ledger) if seconds else {}), time.monotonic()
    if seconds:
        time.sleep(seconds)
    passed = time.monotonic() - began
    with ledger.reader() as connection:
        rows = query(connection, ledger.schema, "watched", counted=COUNTED)
    found = {row[0]: _state(row, known.get(row[0])) for row in rows}
    for name, state in found.items():
        if state.events is not None and (name, state.copy) in before:
            rate = (state.events - before[name, state.copy]) / passed
            found[name] = replace(state, rate=max(0.0, rate))
    for name in known.keys() - found.keys():
        found[name] = _not_made(name)
    return [found[name] for name in sorted(found)]


def parked(ledger: Ledger, view: str | None = None) -> list[ParkedStream]:
    """The parked streams of one view or of all, those of a view by position."""
    with ledger.reader() as connection:
        rows = query(connection, ledger.schema, "parked", view=view)
    return [
        ParkedStream(name, stream, position, error, event, at.astimezone(UTC), tries)
        for name, _, stream, position, error, event, at, tries in rows
    ]


def _looked_at(ledger: Ledger) -> dict[tuple[str, int | None], int]:
    with ledger.reader() as connection:
        rows = query(connection, ledger.schema, "events_looked_at")
    return {(name, copy): events for name, copy, events in rows}


def _state(row: tuple[Any, ...], view: View | None) -> ViewState:
    name, copy, inline, position, events, definition, updated_at, error, lag, age, parked, building, many = (
        row
    )
    if copy is None:
        made = _not_made(name)
        return replace(made, state=State.BUILDING if building else State.NOT_MADE, building=tuple(building))
    if view is not None and view.definition != definition:
        state = State.OTHER_DEFINITION
    elif inline:
        state = State.INLINE
    elif error is not None or (lag and not many):
        state = State.STOPPED
    else:
        state = State.LIVE if age < BEHIND else State.BEHIND
    return ViewState(
        name, copy, None if inline else position, events, lag, age, None, parked, state, tuple(building),
        many, updated_at.astimezone(UTC), error,
    )  # fmt: skip


def _not_made(name: str) -> ViewState:
    return ViewState(name, None, None, None, None, None, None, 0, State.NOT_MADE, (), 0, None, None)
