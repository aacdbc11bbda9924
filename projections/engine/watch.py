"""The condition of all views: position, lag, parked streams, followers."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from ledger import Ledger, TablesMissing
from ledger.log.sql import Statements, run

from .copies import missing_tables
from .projector import views_named
from .view import View

SQL = Statements(__package__, "watch")


BEHIND: Final = 1.0
"""A view counts as behind if the first event that it lacks is older than this, in seconds."""
COUNTED: Final = 100_000
"""Events up to which a lag is counted."""


class State(StrEnum):
    """The condition of a view, in one word."""

    LIVE = "live"  # up to date
    BEHIND = "behind"  # it is followed, but lags
    STOPPED = "stopped"  # its statements fail, or nobody follows it while there are events
    INLINE = "inline"  # the appends keep it
    BUILDING = "building"  # its first copy is being built
    NOT_MADE = "not made"  # never followed or built, or its tables are gone (see `error`)
    OTHER_DEFINITION = "other definition"  # other code than this process's built it


@dataclass(frozen=True, slots=True)
class ViewState:
    """One view at this moment; values are None if the view is not made, or appends keep it.

    lag_events: events after its position, whether it wants them or not; beyond 100,000 the difference of
    positions. lag_seconds: the age of the first of them. rate: events per second that were read while it was
    watched. parked: streams. building: copies that are being built. followers: projectors.
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
    """A stream that a view does not follow any more: from which event on, why, and the number of tries.

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
    """The condition of each view of the ledger or this process, by name; needs only to read.

    views: those whose definition is compared with the stored one, by default all of this process.
    seconds: watch for this long and return the rate at which events were read.
    """
    wanted = {view.name: view for view in (views_named() if views is None else views)}
    before, began = (_looked_at(ledger) if seconds else {}), time.monotonic()
    if seconds:
        time.sleep(seconds)
    passed = time.monotonic() - began
    with ledger.reader() as connection:
        rows = run(connection, ledger.schema, SQL.watched, counted=COUNTED)
        found = {row[0]: _state(row, wanted.get(row[0])) for row in rows}
        lost = {
            name: missing_tables(connection, ledger.schema, wanted[name], state.copy)
            for name, state in found.items()
            if state.copy is not None and name in wanted
        }
    for name, tables in lost.items():
        if tables:
            said = str(TablesMissing(name, tables))
            found[name] = replace(_not_made(name), copy=found[name].copy, error=said)
    for name, state in found.items():
        if state.events is not None and (name, state.copy) in before:
            rate = (state.events - before[name, state.copy]) / passed
            found[name] = replace(state, rate=max(0.0, rate))
    for name in wanted.keys() - found.keys():
        found[name] = _not_made(name)
    return [found[name] for name in sorted(found)]


def parked(ledger: Ledger, view: str | None = None) -> list[ParkedStream]:
    """The parked streams of one view or of all, those of a view by position."""
    rows = ledger.query(SQL.parked, view=view)
    return [
        ParkedStream(name, stream, position, error, event, at.astimezone(UTC), tries)
        for name, _, stream, position, error, event, at, tries in rows
    ]


def _looked_at(ledger: Ledger) -> dict[tuple[str, int | None], int]:
    rows = ledger.query(SQL.events_looked_at)
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
