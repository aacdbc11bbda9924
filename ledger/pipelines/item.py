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
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, lru_cache
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    NamedTuple,
    NoReturn,
    Self,
    TypeVar,
    overload,
)

from ..domain.claimant import present_claimant
from ..domain.event import Event
from ..domain.frozen import FrozenDict, changed
from ..domain.moves import Moves
from ..domain.names import checked_id, stream_name
from ..domain.state import TREE
from ..domain.stream import Stream
from ..domain.topics import Unknown
from ..errors import BadInput, MoveNotAllowed, UnknownFlag
from .facts import (
    LIVE,
    Completed,
    Created,
    Entered,
    Facts,
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
    facts_of,
)
from .ident import Ident

if TYPE_CHECKING:
    from .tree import Tree

T = TypeVar("T")
C = TypeVar("C", bound="OpenItem[Any]")

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


def id_of_level(default: Any = dataclasses.MISSING) -> int:
    """The id of an item, or of one above it."""
    return dataclasses.field(default=default, metadata={"id": True})  # type: ignore[no-any-return]


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
        case Claim():
            return value.milestone
        case tuple():
            return [_plain(item) for item in value]
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
    kind: Any = type(item)  # the type checker does not treat every class as hashable
    blank = {**_unborn(kind), "status": Status.PENDING, "created_at": at, "updated_at": at}
    blank |= {"under": event.under, "incarnation": item.incarnation + 1, "claims": item.claims}
    if isinstance(event, ProjectCreated):
        blank["project_name"] = event.project_name
    return changed(item, **blank)


@cache
def _unborn(kind: Any) -> Mapping[str, Any]:
    """The values of all fields that a new incarnation does not keep."""
    blank: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(Item)}
    return FrozenDict(blank | dict.fromkeys(flags_of(kind), False) | dict.fromkeys(totals_of(kind)))


# The numbers of a state, its ids and totals, are checked in `__new__`, when a caller makes one. Loading a
# state and folding do not call `__new__`: what is in the log was checked before.


def check_numbers(state: Any, fields: Mapping[str, Any]) -> None:
    """Check the given fields of a state. Raises BadName for a value that is not an integer of 0 or more."""
    numbers = _numbers(state)
    for name in fields.keys() & numbers:
        if fields[name] is not None or numbers[name] == "id":
            checked_id(name, fields[name])


@cache
def _numbers(state: Any) -> Mapping[str, str]:
    """The fields that are ids or totals, and which of both each is; a total may be None."""
    kinds = {"id", "total"}
    found = {field.name: kinds & field.metadata.keys() for field in dataclasses.fields(state)}
    return {name: kind.pop() for name, kind in found.items() if kind}


# The item open for change: its methods decide, and record facts.


class Shown(Generic[T]):
    """A field of the state, read through the open item: `archived = Shown[bool]()`; methods change it."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, item: None, owner: type) -> Self: ...
    @overload
    def __get__(self, item: OpenItem[Any], owner: type) -> T: ...
    def __get__(self, item: OpenItem[Any] | None, owner: type) -> Self | T:
        return self if item is None else getattr(item.state, self.name)

    def __set__(self, item: OpenItem[Any], value: NoReturn) -> None:
        raise AttributeError(f"{self.name} is changed by methods, such as mark_completed() or set_uploaded()")


class _Children(Shown[T]):
    """The children of an open item, under the name that they have in the state."""

    def __get__(self, item: Any, owner: type) -> Any:
        return self if item is None else item.children


def _setter(flag: str) -> Any:
    def set_it(item: OpenItem[Any], value: bool = True) -> None:
        item.set_flag(flag, value)

    return named(set_it, f"set_{flag}", f"Set {flag}; False clears it as `reset_{flag}` does (W0-20).")


def _resetter(flag: str) -> Any:
    def reset_it(item: OpenItem[Any]) -> None:
        item.reset_flag(flag)

    return named(reset_it, f"reset_{flag}", f"Clear {flag}, and the flags that fall with it.")


def named(function: Any, name: str, doc: str, module: str = __name__) -> Any:
    """The function under a name of its own."""
    function.__name__ = function.__qualname__ = name
    function.__doc__, function.__module__ = doc, module
    return function


class Children(Mapping[int, C]):
    """The visible children of an open item, by id, in order; includes the changes of the scope."""

    def __init__(self, tree: Tree, parent: OpenItem[Any]) -> None:
        self._tree, self._parent = tree, parent

    def __getitem__(self, child_id: int) -> C:
        child = self._tree.below(self._parent)[child_id]
        if not self._tree.shows(child):
            raise KeyError(child_id)
        return child  # type: ignore[return-value]

    def __iter__(self) -> Iterator[int]:
        below = self._tree.below(self._parent)
        return iter([child_id for child_id in sorted(below) if self._tree.shows(below[child_id])])

    def __len__(self) -> int:
        return sum(1 for _ in self)


class OpenItem(Stream[I, ItemFact]):
    """An item open for change; a `Pipeline` makes a class of each level.

    The fields of STATE are attributes, and each flag x has `set_x` and `reset_x`. The facts are appended at
    the end of the scope that opened the item; nothing can be recorded after that. CATEGORY is also the root
    of the topics.
    """

    MOVES = MOVES
    IDENT: ClassVar[type[Ident]]
    FACTS: ClassVar[Facts]
    IDS: ClassVar[Sequence[tuple[int, str]]]
    evolve = staticmethod(evolve)

    processing_state = Shown[ProcessingState]()
    created_at = Shown[datetime | None]()
    updated_at = Shown[datetime | None]()
    processing_started_at = Shown[datetime | None]()
    processing_finished_at = Shown[datetime | None]()
    attempts = Shown[int]()
    reason = Shown[str | None]()
    under_way = Shown[tuple[Claim, ...]]()
    finished = Shown[bool]()
    succeeded = Shown[bool]()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "CATEGORY" in cls.__dict__:
            shown, root = fields_of(cls.STATE), len(cls.IDENT.fields()) == 1
            cls.IDS = [(place, name) for place, name in enumerate(cls.IDENT.fields()) if name in shown]
            cls.FACTS = facts_of(cls.CATEGORY, flags_of(cls.STATE), project=root, module=cls.__module__)
            cls._complete(shown)

    @classmethod
    def _complete(cls, shown: Iterable[str]) -> None:
        """Add an attribute for each field, and methods for each flag, unless the class has its own."""
        below = children_name(cls.STATE)
        named: dict[str, Any] = {
            name: _Children() if name == below else Shown() for name in shown if name != "status"
        }
        for flag in flags_of(cls.STATE):
            named |= {f"set_{flag}": _setter(flag), f"reset_{flag}": _resetter(flag)}
        for name, member in named.items():
            if not hasattr(cls, name):
                setattr(cls, name, member)
                if isinstance(member, Shown):
                    member.__set_name__(cls, name)

    def __init__(self, *key: str | int, past: Iterable[tuple[Event | Unknown, datetime]] = ()) -> None:
        super().__init__(*_named(type(self), key)[0], past=past)
        self.tree: Tree | None = None

    @classmethod
    def name_of(cls, *key: str | int) -> str:
        """The name of the stream with this key, the same for all spellings of a project."""
        return _named(cls, key)[1]

    @classmethod
    def key_of(cls, parts: Sequence[str | int]) -> tuple[str | int, ...]:
        """The parts of the stream's name, checked; an id may be its decimal text, as in the name."""
        return _named(cls, parts)[0]

    @classmethod
    def initial(cls, *key: str | int) -> I:
        """The state before the first fact: its ids."""
        kind: Any = cls  # the type checker does not treat every class as hashable
        return _blank(kind, *key)  # type: ignore[no-any-return]

    @property
    def ident(self) -> Ident:
        """The ident of this item."""
        return self.IDENT(*self.key)  # type: ignore[arg-type]

    def to_view(self) -> I:
        """A detached snapshot of the item and all below it, deeply immutable (spec S0-13)."""
        below = children_name(self.STATE)
        if below is None:
            return self.state
        views = {child_id: child.to_view() for child_id, child in self.children.items()}
        return replace(self.state, **{below: FrozenDict(views)})  # type: ignore[arg-type]

    def record(self, event: ItemFact) -> None:
        """Record a fact. Raises MoveNotAllowed without an item, BadInput after the scope's end."""
        if self.tree is not None and self.tree.ended:
            raise BadInput(f"{self.name}: its scope has ended, nothing would be stored; open it again")
        if not (self.state.exists or isinstance(event, Created)):
            raise MoveNotAllowed(self.state.status, event.topic.rpartition(".")[2], [Status.PENDING])
        super().record(event)

    def create(self, *, under: int = 0, name: str | None = None) -> None:
        """Create the item. under: the parent's incarnation; name: of a project, as given."""
        if issubclass(self.FACTS.created, ProjectCreated):
            self.record(self.FACTS.created(project_name=name or str(self.key[0]), under=under))
        else:
            self.record(self.FACTS.created(under=under))

    def touch(self) -> None:
        """Set `updated_at`."""
        self.record(self.FACTS.touched())

    def mark_started(self) -> None:
        """Begin an attempt: running, not finished, no reason; within a job, the attempt belongs to it."""
        self.record(self.FACTS.started(**_begun_for()))

    def mark_completed(self) -> None:
        """End the attempt with success."""
        self.record(self.FACTS.completed())

    def mark_failed(self, reason: str | None = None) -> None:
        """End the attempt without success, with a reason."""
        self.record(self.FACTS.failed(reason=reason))

    def mark_pending(self) -> None:
        """Set the item back to pending: neither started nor finished (spec S0-82)."""
        self.record(self.FACTS.pending())

    def set_flag(self, name: str, value: bool = True) -> None:
        """Set a flag; False clears it as `reset_flag` does (W0-20)."""
        if not isinstance(value, bool):
            raise BadInput(f"{name} is set to True or False, not to {value!r}")
        if value:
            self.record(self.FACTS.flags[self._flag(name)]())
        else:
            self.reset_flag(name)

    def reset_flag(self, name: str) -> None:
        """Clear a flag, and those that are cleared with it."""
        self.record(self.FACTS.reset(cleared=flags_of(self.STATE)[self._flag(name)]))

    def enter(self, milestone: str) -> int:
        """Claim the work towards a flag, which is cleared first, with its cascade (spec S0-63).

        Returns the number of the claim, which `leave` needs. Within a job the claim belongs to it.
        """
        self.reset_flag(milestone)
        self.record(self.FACTS.entered(milestone=milestone, **_begun_for()))
        return self.state.claims

    def leave(self, milestone: str, claim: int, reason: str | None = None) -> bool:
        """Give up a claim, without success; False where it was lost before."""
        held = self.holds(milestone, claim)
        if held:
            self.record(self.FACTS.left(milestone=milestone, reason=reason))
        return held

    def holds(self, milestone: str, claim: int) -> bool:
        """Whether the claim with this number still holds on the milestone."""
        return Claim(self._flag(milestone), claim) in self.state.under_way

    def plan(self, **totals: int | None) -> None:
        """Set how many children are expected, such as `strips_per_slice=4`; None: no longer known.

        Raises BadInput where the level has no such total.
        """
        for name, value in totals.items():
            if name not in totals_of(self.STATE):
                known = ", ".join(totals_of(self.STATE)) or "none"
                raise BadInput(f"{name!r} is no total of {self.CATEGORY}; its totals: {known}")
            if value is not None:
                checked_id(name, value)
        if any(getattr(self.state, name) != value for name, value in totals.items()):
            self.record(self.FACTS.planned(totals=totals))

    # Below

    @property
    def children(self) -> Mapping[int, Any]:
        """Its children; loaded, with all that is below the opened item, at first use."""
        return Children(self.siblings, self)

    def get_or_create(self, child_id: int) -> Any:
        """The child with this id, created if missing; always the same object (spec S0-32)."""
        return self.siblings.get_or_create(self, child_id)

    def find(self, ident: Ident) -> Any:
        """This item, or one below it; None if it does not exist. Raises WrongIdent for an item elsewhere."""
        return self.siblings.find(self, ident)

    def find_or_create(self, ident: Ident) -> Any:
        """The same item, created if missing, with what is missing above it."""
        item: Any = self
        for child_id in self.siblings.way_to(self, ident):
            item = item.get_or_create(child_id)
        return item

    def delete(self, ident: Ident) -> bool:
        """Delete an item below this one, with all below it; False if it does not exist (spec S0-33)."""
        found = self.siblings.find(self, ident)
        if found is self:
            raise BadInput(f"{ident} is what is open here; open what is above it to delete it")
        return self.siblings.delete(found)

    @property
    def siblings(self) -> Tree:
        """The tree in which it was opened."""
        if self.tree is None:
            raise BadInput(
                f"{self.name} was opened alone; open it with the service to reach what is below it"
            )
        return self.tree

    def _flag(self, name: str) -> str:
        if name not in self.FACTS.flags:
            raise UnknownFlag(name, self.CATEGORY, self.FACTS.flags)
        return name


def _begun_for() -> dict[str, Any]:
    """The fields of a fact that begins work: the present job or batch, if there is one."""
    claimant = present_claimant()
    return {} if claimant is None else {"claimant": claimant.stream, "token": claimant.token}


_DECIMAL: Final = re.compile(r"0|[1-9][0-9]{0,18}").fullmatch  # as ids are written, so 01 is no item
Named = tuple[tuple[str | int, ...], str]
"""A key, checked, and the name of its stream."""


def _named(kind: Any, parts: Sequence[str | int]) -> Named:
    """The key and the name of the item with these parts; cached, because a scope needs each many times."""
    try:
        return _name(kind, *parts)
    except TypeError:  # an invalid part may not be hashable either
        return _name.__wrapped__(kind, *parts)


@lru_cache(maxsize=20_000, typed=True)
def _blank(kind: Any, *key: str | int) -> Any:
    """The state of an item before its first fact, immutable."""
    return kind.STATE(**{name: key[place] for place, name in kind.IDS})


@lru_cache(maxsize=20_000, typed=True)
def _name(kind: Any, *parts: str | int) -> Named:
    whole = [int(p) if n and isinstance(p, str) and _DECIMAL(p) else p for n, p in enumerate(parts)]
    key = kind.IDENT.key_of(whole)
    return key, stream_name(kind.CATEGORY, *key)
