"""One stream opened for change: its methods decide, `record` checks and applies, the store appends."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import cache
from typing import Any, ClassVar, Generic, Protocol, TypeVar
from zlib import crc32

from .errors import StreamConflict
from .event import Event, Unknown
from .moves import Moves
from .names import stream_name
from .state import Pending, stamped


class HasStatus(Protocol):
    """A state: a frozen dataclass with a status, None before the first fact."""

    @property
    def status(self) -> str | None: ...


S = TypeVar("S", bound=HasStatus)
E = TypeVar("E", bound=Event)

CATEGORIES: dict[str, type[Stream[Any, Any]]] = {}
"""Every stream class that this process has imported, by category; of two with one category, the later."""


class Stream(Generic[S, E]):
    """A stream of one domain, open for change; a domain subclasses it and adds its decisions.

    CATEGORY: first part of the stream's name. MOVES: the machine. STATE: the frozen dataclass that `evolve`
    folds. STATE_SCHEMA: raise it whenever `evolve` or the state's fields change, so that heads folded by
    other code are folded again.
    """

    CATEGORY: ClassVar[str]
    MOVES: ClassVar[Moves]
    STATE: ClassVar[type[Any]]
    STATE_SCHEMA: ClassVar[int] = 1

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "CATEGORY" in cls.__dict__:
            CATEGORIES[cls.CATEGORY] = cls

    def __init__(self, *key: str | int, past: Iterable[tuple[Event | Unknown, datetime]] = ()) -> None:
        self.key = key
        self.name = self.name_of(*key)
        self.version = 0
        self.state: S = self.initial(*key)
        self.news: list[E] = []
        for event, at in past:
            self.replay(event, at)

    @classmethod
    def name_of(cls, *key: str | int) -> str:
        """The name of the stream with this key."""
        return stream_name(cls.CATEGORY, *key)

    @classmethod
    def initial(cls, *key: str | int) -> S:
        """The state before the first fact; override where it carries its key."""
        return cls.STATE()  # type: ignore[no-any-return]

    @staticmethod
    def evolve(state: S, event: E, at: datetime, /) -> S:
        """Apply a fact recorded at `at`. No rules here: the past is not up for debate."""
        raise NotImplementedError

    @classmethod
    def state_schema(cls) -> int:
        """The mark of the code that folds a state: STATE_SCHEMA and the fields, so that a change is seen."""
        return _state_schema(cls)

    def record(self, event: E) -> None:
        """Decide a fact: check the machine, apply it, keep it for the append. Raises MoveNotAllowed."""
        if event.to is not None:
            self.MOVES.check(self.state.status, event.to)
        self.state = self.evolve(self.state, event, Pending.clock())
        self.news.append(event)

    def replay(self, event: Event | Unknown, at: datetime) -> None:
        """Apply a fact that the log holds; one that this process does not know only counts."""
        if isinstance(event, Event):
            self.state = self.evolve(self.state, event, at)  # type: ignore[arg-type]
        self.version += 1

    def restore(self, state: S, version: int) -> None:
        """Start from a state that was folded before, instead of from the first fact."""
        self.state, self.version = state, version

    def lease(self) -> int | None:
        """The lease token that the head shall hold after the news; 0 clears it, None leaves it as it is."""
        return None

    @classmethod
    def token_in(cls, state: S) -> int | None:
        """The lease token that a folded state speaks of, 0 for none; None where no event holds it."""
        return None

    def conflict(self, error: StreamConflict) -> StreamConflict:
        """The error that a conflict on this stream is; a domain may say it in its own words."""
        return error

    def settle(self, at: datetime) -> None:
        """The news were appended at the database's time `at`."""
        self.state = stamped(self.state, at)
        self.version += len(self.news)
        self.news.clear()


def _marked(kind: type[Stream[Any, Any]]) -> int:
    fields = [
        (field.name, str(field.type))
        for field in dataclasses.fields(kind.STATE)
        if "tree" not in field.metadata
    ]
    return crc32(repr((kind.STATE_SCHEMA, fields)).encode()) & 0x7FFFFFFF


# A plain callable to the type checker: to it, a class is not always hashable.
_state_schema: Callable[[Any], int] = cache(_marked)
