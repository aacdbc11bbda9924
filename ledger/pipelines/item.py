"""
One item of a project's tree (a project, slice, channel, strip, …): what all levels of all pipelines share.

    (nothing) ──created──▶ pending
    pending | running | completed | failed  ──started────▶ running
                                            ──completed──▶ completed
                                            ──failed─────▶ failed
                                            ──pending────▶ pending
                                            ──deleted────▶ deleted ──created──▶ pending

Each of the four may follow each, itself too: a person may always correct a status (spec S0-21). An audit
reports odd transitions.

A claim means that a worker is working towards a flag now. Its number fences: a worker that has lost its
claim can no longer end it.

Beside its status an item has flags, each with a topic of its own. A reset clears a flag and all flags that
are made from it: `uploaded` is cleared with `compressed`. The flags to clear are decided when the reset is
recorded; the fact carries them, so a later change of the declared cascade changes no history.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple, Self, TypeVar

from ..domain.event import Event
from ..domain.frozen import FrozenDict, changed
from ..domain.moves import Moves
from ..domain.names import checked_id
from ..domain.state import TREE
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


# State: what is true now, which is also the read-only view of the item.


def flag(*, clears: tuple[str, ...] = ()) -> bool:
    """A flag of a state, false at first. clears: the flags that are cleared with it, and so on from them."""
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
    """Work under way towards a flag, and the number of the claim among all claims of this item."""

    milestone: str
    number: int


class BegunFor(NamedTuple):
    """The job or batch for which work under way was begun. milestone: the flag; None for the processing."""

    milestone: str | None
    stream: str
    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """The state of an item (spec S0-20). Times are aware, UTC, from the database; None until they are set.

    attempts: how often it was started. reason: why it failed, if it did. under_way: the milestones that are
    being worked on; claims: how many there ever were. begun_for: the work under way that jobs began.
    incarnation: how often it was created. under: the incarnation of the parent below which it was created, so
    that items left below a deleted parent do not come back when the parent is created again.
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
    begun_for: tuple[BegunFor, ...] = ()
    incarnation: int = 0
    under: int = 0

    def __new__(cls, *_args: Any, **fields: Any) -> Self:
        check_numbers(cls, fields)
        return object.__new__(cls)

    @property
    def processing_state(self) -> ProcessingState:
        """The state of the work; pending also for an item that does not exist."""
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
        """Whether the item was created and has not been deleted since."""
        return self.status in LIVE

    def to_dict(self) -> dict[str, Any]:
        """The item and all below it as plain JSON values; times as ISO 8601."""
        shown = [name for name in fields_of(type(self)) if name not in HIDDEN]
        values = {name: _plain(getattr(self, name)) for name in shown}
        return {"processing_state": self.processing_state.value, **values}


I = TypeVar("I", bound=Item)  # noqa: E741
HIDDEN: Final = frozenset({"status", "claims", "begun_for", "incarnation", "under"})
"""Fields that are internal."""


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

    Raises TypeError where a flag clears something that is not a flag, or clears itself, also indirectly.
    """
    if state not in _FLAGS:
        direct = {f.name: f.metadata["clears"] for f in dataclasses.fields(state) if "clears" in f.metadata}
        _FLAGS[state] = FrozenDict({name: falling(name, direct) for name in direct})
    return _FLAGS[state]


def totals_of(state: type[Item]) -> tuple[str, ...]:
    """The numbers of a state that a plan sets."""
    return tuple(field.name for field in dataclasses.fields(state) if "total" in field.metadata)


def children_of(view: Item) -> Mapping[int, Any]:
    """The children of a view by id; empty for a leaf."""
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


def falling(name: str, direct: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
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
    """Apply a fact recorded at `at`. It applies no rules: recorded facts are never refused."""
    match event:
        case Created():
            return _born(item, event, at)
        case ItemFact():
            status = item.status if event.to is None else Status(event.to)
            return changed(item, status=status, updated_at=at, **_changes(item, event, at))
        case _:
            return item


def _changes(item: Item, event: ItemFact, at: datetime) -> dict[str, Any]:
    """The fields that a fact changes, beside status and `updated_at`."""
    match event:
        case Started():
            begun = {"processing_started_at": at, "processing_finished_at": None}
            return {**begun, **_begun(item, None, event), "attempts": item.attempts + 1, "reason": None}
        case Completed():
            return {"processing_finished_at": at, "reason": None, **_ended(item, None)}
        case Failed():
            return {"processing_finished_at": at, "reason": event.reason, **_ended(item, None)}
        case MadePending():
            never = {"processing_started_at": None, "processing_finished_at": None}
            return {**never, "reason": None, "under_way": (), "begun_for": ()}
        case Planned():
            return {name: value for name, value in event.totals.items() if name in totals_of(type(item))}
        case _:
            return _changes_of_flags(item, event)


def _changes_of_flags(item: Item, event: ItemFact) -> dict[str, Any]:
    match event:
        case FlagSet():
            return {event.flag: True, **_ended(item, event.flag)}
        case Reset():
            cleared = {name: False for name in event.cleared if name in flags_of(type(item))}
            return cleared | _ended(item, *event.cleared)
        case Entered():
            under_way = _ended(item, event.milestone)["under_way"]
            claim = Claim(event.milestone, item.claims + 1)
            begun = _begun(item, event.milestone, event)
            return {**begun, "under_way": (*under_way, claim), "claims": claim.number}
        case Left():
            return _ended(item, event.milestone)
        case _:
            return {}


def _begun(item: Item, milestone: str | None, event: Started | Entered) -> dict[str, Any]:
    """Work begins; record its job or batch, if there is one."""
    begun_for = _ended(item, milestone).get("begun_for", item.begun_for)
    if event.claimant is not None and event.token is not None:
        begun_for = (*begun_for, BegunFor(milestone, event.claimant, event.token))
    return {"begun_for": begun_for}


def _ended(item: Item, *milestones: str | None) -> dict[str, Any]:
    """Work towards these flags is no longer under way; None: the processing."""
    left = {"under_way": tuple(claim for claim in item.under_way if claim.milestone not in milestones)}
    if not item.begun_for:  # the usual case: no job
        return left
    return {**left, "begun_for": tuple(each for each in item.begun_for if each.milestone not in milestones)}


def _born(item: I, event: Created, at: datetime) -> I:
    """A new incarnation: it keeps only the ids, the count of incarnations and the numbers of the claims."""
    blank: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(Item)}
    blank |= dict.fromkeys(flags_of(type(item)), False) | dict.fromkeys(totals_of(type(item)))
    if isinstance(event, ProjectCreated):
        blank["project_name"] = event.project_name
    born = {"status": Status.PENDING, "created_at": at, "updated_at": at, "under": event.under}
    kept = {"incarnation": item.incarnation + 1, "claims": item.claims}
    return changed(item, **blank | born | kept)


# The numbers of a state, its ids and totals, are checked in `__new__`, when a caller makes one. Loading a
# state and folding do not call `__new__`: what is in the log was checked before.

_NUMBERS: dict[type[Any], frozenset[str]] = {}
_MAY_BE_NONE: dict[type[Any], frozenset[str]] = {}


def know_numbers(state: type[Any], ids: Iterable[str], totals: Iterable[str]) -> None:
    """Register these fields to be checked; of them a total may be None."""
    _MAY_BE_NONE[state] = frozenset(totals)
    _NUMBERS[state] = _MAY_BE_NONE[state] | frozenset(ids)


def check_numbers(state: type[Any], fields: Mapping[str, Any]) -> None:
    """Check the given fields of a state. Raises BadName for a value that is not an integer of 0 or more."""
    for name in fields.keys() & _NUMBERS.get(state, ()):
        if fields[name] is not None or name not in _MAY_BE_NONE[state]:
            checked_id(name, fields[name])
