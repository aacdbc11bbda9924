"""An item open for change: its methods decide, and record facts; item.py says what the facts do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NoReturn, Protocol, Self, TypeVar, overload

from ..errors import BadInput, MoveNotAllowed, UnknownFlag
from ..event import Event, Unknown
from ..names import checked_id, stream_name
from ..stream import Stream
from .declared import check_level
from .facts import Created, Facts, ItemFact, ProcessingState, ProjectCreated, Status, facts_of
from .ident import Ident
from .item import MOVES, Claim, I, children_name, evolve, fields_of, flags_of, totals_of

if TYPE_CHECKING:
    from .tree import Tree

T = TypeVar("T")


class Shown(Generic[T]):
    """A field of the state, shown by the open item: `archived = Shown[bool]()`; only methods change it."""

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


class ShownBelow(Shown[T]):
    """The children of an open item, shown under the name that they have in the state."""

    def __get__(self, item: Any, owner: type) -> Any:
        return self if item is None else item.children


class SetFlag(Protocol):
    """`item.set_archived()`, `item.set_archived(False)`."""

    def __call__(self, value: bool = True) -> None: ...


class ResetFlag(Protocol):
    """`item.reset_archived()`."""

    def __call__(self) -> None: ...


class Setting:
    """The method `set_x` of the flag x; False clears it as `reset_x` does (W0-20)."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.flag = name.removeprefix("set_")

    @overload
    def __get__(self, item: None, owner: type) -> Callable[..., None]: ...
    @overload
    def __get__(self, item: OpenItem[Any], owner: type) -> SetFlag: ...
    def __get__(self, item: OpenItem[Any] | None, owner: type) -> Callable[..., None]:
        if item is None:
            return lambda item, *value: item.set_flag(self.flag, *value)
        return partial(item.set_flag, self.flag)


class Resetting:
    """The method `reset_x` of the flag x: clears it, and the flags that fall with it."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.flag = name.removeprefix("reset_")

    @overload
    def __get__(self, item: None, owner: type) -> Callable[..., None]: ...
    @overload
    def __get__(self, item: OpenItem[Any], owner: type) -> ResetFlag: ...
    def __get__(self, item: OpenItem[Any] | None, owner: type) -> Callable[..., None]:
        if item is None:
            return lambda item, *value: item.reset_flag(self.flag, *value)
        return partial(item.reset_flag, self.flag)


def flag_methods() -> tuple[Shown[bool], Setting, Resetting]:
    """A flag shown and changed: `archived, set_archived, reset_archived = flag_methods()`.

    A level need not say this; it is there for type checkers and readers.
    """
    return Shown[bool](), Setting(), Resetting()


class OpenItem(Stream[I, ItemFact]):
    """An item open for change. A level declares CATEGORY (also the root of its topics), STATE and IDENT.

    The fields of STATE are shown, and each flag x has `set_x` and `reset_x`, also where the level does not
    say so. What is recorded is appended at the end of the scope that opened the item; nothing can be later.
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
        check_level(cls)
        super().__init_subclass__(**kwargs)
        if "CATEGORY" in cls.__dict__:
            shown, root = fields_of(cls.STATE), len(cls.IDENT.fields()) == 1
            cls.IDS = [(place, name) for place, name in enumerate(cls.IDENT.fields()) if name in shown]
            cls.FACTS = facts_of(cls.CATEGORY, flags_of(cls.STATE), project=root, module=cls.__module__)
            cls._complete(shown)

    @classmethod
    def _complete(cls, shown: Iterable[str]) -> None:
        """Show each field, and give each flag its methods, unless the level does so itself."""
        below = children_name(cls.STATE)
        named: list[tuple[str, Any]] = [
            (name, ShownBelow() if name == below else Shown()) for name in shown if name != "status"
        ]
        for flag in flags_of(cls.STATE):
            named += [(f"set_{flag}", Setting()), (f"reset_{flag}", Resetting())]
        for name, descriptor in named:
            if not hasattr(cls, name):
                setattr(cls, name, descriptor)
                descriptor.__set_name__(cls, name)

    def __init__(self, *key: str | int, past: Iterable[tuple[Event | Unknown, datetime]] = ()) -> None:
        super().__init__(*self.key_of(key), past=past)
        self.tree: Tree | None = None

    @classmethod
    def name_of(cls, *key: str | int) -> str:
        """The name of the stream with this key; spellings of one project share it."""
        return _named(cls, key)[1]

    @classmethod
    def key_of(cls, parts: Sequence[str | int]) -> tuple[str | int, ...]:
        """The parts of the stream's name, checked; an id may be its decimal text, as it is in there."""
        return _named(cls, parts)[0]

    @classmethod
    def initial(cls, *key: str | int) -> I:
        """The state before the first fact: its ids."""
        return cls.STATE(**{name: key[place] for place, name in cls.IDS})  # type: ignore[no-any-return]

    @property
    def ident(self) -> Ident:
        """Who this item is."""
        return self.IDENT(*self.key)  # type: ignore[arg-type]

    def to_view(self) -> I:
        """A detached snapshot, deeply immutable."""
        return self.state

    def record(self, event: ItemFact) -> None:
        """Decide a fact. Raises MoveNotAllowed where there is no item, BadInput after the scope's end."""
        if self.tree is not None and self.tree.ended:
            raise BadInput(f"{self.name}: its scope has ended, nothing would be stored; open it again")
        if not (self.state.exists or isinstance(event, Created)):
            raise MoveNotAllowed(self.state.status, event.topic.rpartition(".")[2], [Status.PENDING])
        super().record(event)

    def create(self, *, under: int = 0, name: str | None = None) -> None:
        """Begin its life. under: the parent's incarnation; name: of a project, as given."""
        if issubclass(self.FACTS.created, ProjectCreated):
            self.record(self.FACTS.created(project_name=name or str(self.key[0]), under=under))
        else:
            self.record(self.FACTS.created(under=under))

    def touch(self) -> None:
        """Set `updated_at`."""
        self.record(self.FACTS.touched())

    def mark_started(self) -> None:
        """Begin an attempt: running, not finished, no reason."""
        self.record(self.FACTS.started())

    def mark_completed(self) -> None:
        """End the attempt with success."""
        self.record(self.FACTS.completed())

    def mark_failed(self, reason: str | None = None) -> None:
        """End the attempt without success, and say why."""
        self.record(self.FACTS.failed(reason=reason))

    def mark_pending(self) -> None:
        """Let it wait again: neither started nor finished (spec S0-82)."""
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
        """Clear a flag, and those that fall with it."""
        self.record(self.FACTS.reset(cleared=flags_of(self.STATE)[self._flag(name)]))

    def enter(self, milestone: str) -> int:
        """Claim the work towards a flag, which is cleared first, with its cascade (spec S0-63).

        Returns the number of the claim, which ends it in `leave`.
        """
        self.reset_flag(milestone)
        self.record(self.FACTS.entered(milestone=milestone))
        return self.state.claims

    def leave(self, milestone: str, claim: int, reason: str | None = None) -> bool:
        """Give a claim up, without success; False where it was lost before."""
        held = self.holds(milestone, claim)
        if held:
            self.record(self.FACTS.left(milestone=milestone, reason=reason))
        return held

    def holds(self, milestone: str, claim: int) -> bool:
        """Whether the claim of this number still is the one on the milestone."""
        return Claim(self._flag(milestone), claim) in self.state.under_way

    def plan(self, **totals: int | None) -> None:
        """Say how many children are expected, such as `strips_per_slice=4`; None: no longer known.

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

    def _flag(self, name: str) -> str:
        if name not in self.FACTS.flags:
            raise UnknownFlag(name, self.CATEGORY, self.FACTS.flags)
        return name


_DECIMAL: Final = re.compile(r"0|[1-9][0-9]{0,18}").fullmatch  # as ids are written, so 01 is no item
Named = tuple[tuple[str | int, ...], str]
"""A key, checked, and the name of its stream."""


def _named(kind: Any, parts: Sequence[str | int]) -> Named:
    """The key and the name of the item with these parts; remembered, as a scope asks for each many times."""
    try:
        return _name(kind, *parts)
    except TypeError:  # what cannot be a part may be no key of a dict either
        return _name.__wrapped__(kind, *parts)


@lru_cache(maxsize=20_000, typed=True)
def _name(kind: Any, *parts: str | int) -> Named:
    whole = [int(p) if n and isinstance(p, str) and _DECIMAL(p) else p for n, p in enumerate(parts)]
    key = kind.IDENT.key_of(whole)
    return key, stream_name(kind.CATEGORY, *key)
