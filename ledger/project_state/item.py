"""
One item of a project's tree (a project, slice, channel, strip, …): what all levels of all pipelines share.

    (nothing) ──created──▶ pending
    pending | running | completed | failed  ──started────▶ running
                                            ──completed──▶ completed
                                            ──failed─────▶ failed
                                            ──pending────▶ pending
                                            ──deleted────▶ deleted ──created──▶ pending

Each of the four may follow each, itself too: a person may always set things right (spec S0-21), and whether a
move was odd is for an audit to say.

Beside its status an item has flags, each with a topic of its own, which a reset clears together with all
that was made from them: `uploaded` falls with `compressed`. Which flags fall is decided when the reset is
recorded; the fact carries them, so a cascade that is declared otherwise later changes no history.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, TypeVar

from ..event import Event
from ..frozen import FrozenDict
from ..moves import Moves
from .facts import (
    LIVE,
    Completed,
    Created,
    Failed,
    FlagSet,
    ItemFact,
    MadePending,
    ProcessingState,
    ProjectCreated,
    Reset,
    Started,
    Status,
)

# The statuses and the facts that lead to them are in facts.py.

MOVES: Final = Moves(
    {None: {Status.PENDING}, Status.DELETED: {Status.PENDING}, **dict.fromkeys(LIVE, frozenset(Status))}
)


# State: what is true now, which is also the read-only view of it.


def flag(*, clears: tuple[str, ...] = ()) -> bool:
    """A flag of a state, false at first. clears: the flags that fall with it, and so on from them."""
    return dataclasses.field(default=False, metadata={"clears": clears})


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """What is known of an item (spec S0-20). Times are aware, UTC, the database's; None before they are.

    attempts: how often it was started. reason: why it failed, if it did. incarnation: how often it was
    created. under: the incarnation of the parent below which it was created, so that what is left over below
    a deleted parent does not come back with the parent.
    """

    status: Status | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    processing_started_at: datetime | None = None
    processing_finished_at: datetime | None = None
    attempts: int = 0
    reason: str | None = None
    incarnation: int = 0
    under: int = 0

    @property
    def processing_state(self) -> ProcessingState:
        """Where the work stands; pending also where there is nothing."""
        return ProcessingState(self.status or "pending") if self.exists else ProcessingState.PENDING

    @property
    def finished(self) -> bool:
        """Whether the last attempt is over, failed or not (spec S0-20); a new start ends that (W0-05)."""
        return self.processing_finished_at is not None

    @property
    def succeeded(self) -> bool:
        """Whether the item is completed, and not failed (W0-04)."""
        return self.status is Status.COMPLETED

    @property
    def exists(self) -> bool:
        """Whether the item was created and not deleted since."""
        return self.status in LIVE

    def to_dict(self) -> dict[str, Any]:
        """The item and all below it as plain values that JSON can hold; times as ISO 8601."""
        shown = [name for name in fields_of(type(self)) if name not in ("status", "incarnation", "under")]
        values = {name: _plain(getattr(self, name)) for name in shown}
        return {"processing_state": self.processing_state.value, **values}


I = TypeVar("I", bound=Item)  # noqa: E741


def _plain(value: Any) -> Any:
    match value:
        case Item():
            return value.to_dict()
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case datetime():
            return value.isoformat()
        case _:
            return value


def fields_of(state: type[Item]) -> tuple[str, ...]:
    """The names of a state's fields."""
    return tuple(state.__dataclass_fields__)


_FLAGS: dict[type[Item], Mapping[str, tuple[str, ...]]] = {}


def flags_of(state: type[Item]) -> Mapping[str, tuple[str, ...]]:
    """The flags of a state, each with all the flags that a reset of it clears, itself first."""
    if state not in _FLAGS:
        direct = {f.name: f.metadata["clears"] for f in dataclasses.fields(state) if "clears" in f.metadata}
        _FLAGS[state] = FrozenDict({name: tuple(dict.fromkeys(_falling(name, direct))) for name in direct})
    return _FLAGS[state]


def _falling(name: str, direct: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    yield name
    for other in direct[name]:
        yield from _falling(other, direct)


def evolve(item: I, event: Event, at: datetime, /) -> I:
    """Apply a fact recorded at `at`. No rules here: the past is not up for debate."""
    match event:
        case Created():
            return _born(item, event, at)
        case ItemFact():
            status = item.status if event.to is None else Status(event.to)
            return replace(item, status=status, updated_at=at, **_changes(item, event, at))
        case _:
            return item


def _changes(item: Item, event: ItemFact, at: datetime) -> dict[str, Any]:
    """What a fact changes beside status and `updated_at`."""
    match event:
        case Started():
            attempts = item.attempts + 1
            return {
                "processing_started_at": at,
                "processing_finished_at": None,
                "attempts": attempts,
                "reason": None,
            }
        case Completed():
            return {"processing_finished_at": at, "reason": None}
        case Failed():
            return {"processing_finished_at": at, "reason": event.reason}
        case MadePending():
            return {"processing_started_at": None, "processing_finished_at": None, "reason": None}
        case FlagSet():
            return {event.flag: True}
        case Reset():
            return {name: False for name in event.cleared if name in flags_of(type(item))}
        case _:
            return {}


def _born(item: I, event: Created, at: datetime) -> I:
    """A new life: of an earlier one only the ids are left, and that it was."""
    blank: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(Item)}
    blank |= dict.fromkeys(flags_of(type(item)), False)
    if isinstance(event, ProjectCreated):
        blank["project_name"] = event.project_name
    born = {"status": Status.PENDING, "created_at": at, "updated_at": at, "under": event.under}
    return replace(item, **blank | born | {"incarnation": item.incarnation + 1})
