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

A claim says that somebody works towards a flag just now; its number fences: who lost the claim meanwhile
can no longer end it.

Beside its status an item has flags, each with a topic of its own, which a reset clears together with all
that was made from them: `uploaded` falls with `compressed`. Which flags fall is decided when the reset is
recorded; the fact carries them, so a cascade that is declared otherwise later changes no history.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeVar

from ..event import Event
from ..frozen import FrozenDict, changed
from ..moves import Moves
from ..state import TREE
from .facts import (
    LIVE,
    Completed,
    Created,
    Entered,
    Failed,
    FlagSet,
    ItemFact,
    Left,
    MadePending,
    Planned,
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
    if not isinstance(clears, tuple):
        raise TypeError(f"clears takes a tuple of names, such as clears=('uploaded',), not {clears!r}")
    return dataclasses.field(default=False, metadata={"clears": clears})


def total() -> int | None:
    """A number that the plan of a project sets: how many children of a kind are expected; None at first."""
    return dataclasses.field(default=None, metadata={"total": True})


def below() -> FrozenDict[int, Any]:
    """The children of a state, by id: filled when a tree is read."""
    return dataclasses.field(default=FrozenDict(), metadata=TREE)


class Claim(NamedTuple):
    """Work under way towards a flag, and the number of the claim among all of this item."""

    milestone: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """What is known of an item (spec S0-20). Times are aware, UTC, the database's; None before they are.

    attempts: how often it was started. reason: why it failed, if it did. under_way: the milestones that are
    being worked on; claims: how many there ever were. incarnation: how often it was created. under: the
    incarnation of the parent below which it was created, so that what is left over below a deleted parent
    does not come back with the parent.
    """

    status: Status | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    processing_started_at: datetime | None = None
    processing_finished_at: datetime | None = None
    attempts: int = 0
    reason: str | None = None
    under_way: tuple[Claim, ...] = ()
    claims: int = 0
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
        shown = [name for name in fields_of(type(self)) if name not in HIDDEN]
        values = {name: _plain(getattr(self, name)) for name in shown}
        return {"processing_state": self.processing_state.value, **values}


I = TypeVar("I", bound=Item)  # noqa: E741
HIDDEN: Final = frozenset({"status", "claims", "incarnation", "under"})
"""Fields that are of no use outside."""


def _plain(value: Any) -> Any:
    match value:
        case Item():
            return value.to_dict()
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case datetime():
            return value.isoformat()
        case tuple():
            return [claim.milestone for claim in value]
        case _:
            return value


def fields_of(state: type[Item]) -> tuple[str, ...]:
    """The names of a state's fields."""
    return tuple(state.__dataclass_fields__)


_FLAGS: dict[type[Item], Mapping[str, tuple[str, ...]]] = {}


def flags_of(state: type[Item]) -> Mapping[str, tuple[str, ...]]:
    """The flags of a state, each with all the flags that a reset of it clears, itself first.

    Raises TypeError where a flag clears what is no flag, or itself in the end.
    """
    if state not in _FLAGS:
        direct = {f.name: f.metadata["clears"] for f in dataclasses.fields(state) if "clears" in f.metadata}
        _FLAGS[state] = FrozenDict({name: _falling(name, direct) for name in direct})
    return _FLAGS[state]


def totals_of(state: type[Item]) -> tuple[str, ...]:
    """The numbers of a state that a plan sets."""
    return tuple(field.name for field in dataclasses.fields(state) if "total" in field.metadata)


def children_of(view: Item) -> Mapping[int, Any]:
    """The children of a view by id; none where it is a leaf."""
    name = children_name(type(view))
    found: Mapping[int, Any] = getattr(view, name) if name else {}
    return found


_CHILDREN: dict[type[Item], str | None] = {}


def children_name(state: type[Item]) -> str | None:
    """The field of a state that holds its children; None for a leaf."""
    if state not in _CHILDREN:
        names = (field.name for field in dataclasses.fields(state) if "tree" in field.metadata)
        _CHILDREN[state] = next(names, None)
    return _CHILDREN[state]


def _falling(name: str, direct: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    fallen, waiting = {name: None}, [*reversed(direct[name])]
    while waiting:
        other = waiting.pop()
        if other not in direct:
            flags = ", ".join(direct)
            raise TypeError(f"flag {name!r} clears {other!r}, which is no flag; the flags: {flags}")
        if other == name:
            raise TypeError(f"flag {name!r} clears itself in the end; a flag clears what is made from it")
        if other not in fallen:
            fallen[other] = None
            waiting += reversed(direct[other])
    return tuple(fallen)


def evolve(item: I, event: Event, at: datetime, /) -> I:
    """Apply a fact recorded at `at`. No rules here: the past is not up for debate."""
    match event:
        case Created():
            return _born(item, event, at)
        case ItemFact():
            status = item.status if event.to is None else Status(event.to)
            return changed(item, status=status, updated_at=at, **_changes(item, event, at))
        case _:
            return item


def _changes(item: Item, event: ItemFact, at: datetime) -> dict[str, Any]:
    """What a fact changes beside status and `updated_at`."""
    match event:
        case Started():
            begun = {"processing_started_at": at, "processing_finished_at": None}
            return {**begun, "attempts": item.attempts + 1, "reason": None}
        case Completed():
            return {"processing_finished_at": at, "reason": None}
        case Failed():
            return {"processing_finished_at": at, "reason": event.reason}
        case MadePending():
            never = {"processing_started_at": None, "processing_finished_at": None}
            return {**never, "reason": None, "under_way": ()}
        case Planned():
            return {name: value for name, value in event.totals.items() if name in totals_of(type(item))}
        case _:
            return _changes_of_flags(item, event)


def _changes_of_flags(item: Item, event: ItemFact) -> dict[str, Any]:
    match event:
        case FlagSet():
            return {event.flag: True, "under_way": _without(item, event.flag)}
        case Reset():
            cleared = {name: False for name in event.cleared if name in flags_of(type(item))}
            return cleared | {"under_way": _without(item, *event.cleared)}
        case Entered():
            claim = Claim(event.milestone, item.claims + 1)
            return {"under_way": (*_without(item, event.milestone), claim), "claims": claim.number}
        case Left():
            return {"under_way": _without(item, event.milestone)}
        case _:
            return {}


def _without(item: Item, *milestones: str) -> tuple[Claim, ...]:
    return tuple(claim for claim in item.under_way if claim.milestone not in milestones)


def _born(item: I, event: Created, at: datetime) -> I:
    """A new life: of an earlier one only the ids are left, that it was, and the numbers of its claims."""
    blank: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(Item)}
    blank |= dict.fromkeys(flags_of(type(item)), False) | dict.fromkeys(totals_of(type(item)))
    if isinstance(event, ProjectCreated):
        blank["project_name"] = event.project_name
    born = {"status": Status.PENDING, "created_at": at, "updated_at": at, "under": event.under}
    kept = {"incarnation": item.incarnation + 1, "claims": item.claims}
    return changed(item, **blank | born | kept)
