"""One stream opened for change: its methods decide, `record` checks and applies, the ledger appends."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import cache
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar
from zlib import crc32

from ..errors import StreamConflict
from .known import KNOWN
from .moves import Moves
from .names import stream_name
from .state import Pending, stamped
from .topics import Unknown, leads_to

if TYPE_CHECKING:
    from .event import Event


class HasStatus(Protocol):
    """A state: a frozen dataclass with a status, None before the first fact."""

    @property
    def status(self) -> str | None: ...


S = TypeVar("S", bound=HasStatus)
E = TypeVar("E", bound="Event")


class Stream(Generic[S, E]):
    """A stream of one domain, open for change; a domain subclasses it and adds its decisions.

    CATEGORY: first part of the stream's name. MOVES: the machine. STATE: the frozen dataclass that `evolve`
    folds. STATE_SCHEMA: raise it whenever `evolve` or the state's fields change, so that states folded by
    other code are folded again.
    """

    CATEGORY: ClassVar[str]
    MOVES: ClassVar[Moves]
    STATE: ClassVar[type[Any]]
    STATE_SCHEMA: ClassVar[int] = 1

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if isinstance(cls.__dict__.get("evolve"), FunctionType):
            raise TypeError(
                f"{cls.__qualname__}.evolve would get the open stream as its state: write `evolve = "
                "staticmethod(evolve)`, or decorate it with @staticmethod"
            )
        if "CATEGORY" in cls.__dict__:
            KNOWN.streams[cls.CATEGORY] = cls

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
        """The state before the first fact; override where the state contains its key."""
        return cls.STATE()  # type: ignore[no-any-return]

    @staticmethod
    def evolve(state: S, event: E, at: datetime, /) -> S:
        """Apply a fact recorded at `at`. It checks no rules: recorded facts are always accepted."""
        raise NotImplementedError

    @classmethod
    def state_schema(cls) -> int:
        """The mark of the code that folds a state: computed from STATE_SCHEMA and the fields."""
        return _state_schema(cls)

    def record(self, event: E) -> None:
        """Decide a fact: check the machine, apply it, keep it for the append.

        Raises MoveNotAllowed, and TypeError where `evolve` leads to another status than the fact's `to`.
        """
        before = self.state.status
        if event.to is not None:
            self.MOVES.check(before, event.to)
        state = self.evolve(self.state, event, Pending.clock())
        if state.status != (to := leads_to(event) or before):
            raise TypeError(_mismatch(event, before, to, state.status))
        self.state = state
        self.news.append(event)

    def replay(self, event: Event | Unknown, at: datetime) -> None:
        """Apply a recorded fact; one of an unknown topic only raises the version."""
        if not isinstance(event, Unknown):
            self.state = self.evolve(self.state, event, at)  # type: ignore[arg-type]
        self.version += 1

    def restore(self, state: S, version: int) -> None:
        """Start from a state that was folded before, instead of from the first fact."""
        self.state, self.version = state, version

    def lease(self) -> int | None:
        """The lease token of the head after the new events; 0 clears it, None leaves it unchanged."""
        return None

    @classmethod
    def token_in(cls, state: S) -> int | None:
        """The lease token in a folded state, 0 for none; None where events contain no token."""
        return None

    def conflict(self, error: StreamConflict) -> StreamConflict:
        """The error to raise for a conflict on this stream; a domain may override it with its own."""
        return error

    def settle(self, at: datetime) -> None:
        """Mark the new events as appended at the database's time `at`."""
        self.state = stamped(self.state, at)
        self.version += len(self.news)
        self.news.clear()


def _mismatch(event: Event, before: str | None, to: str | None, after: str | None) -> str:
    """The message where `evolve` leads to another status than the fact, with the remedy."""
    name = type(event).__name__
    if to == before:
        return (
            f"evolve moves the status from {before} to {after} on {name}, which has no `to`: add it to "
            f"the definition of the fact, `class {name}(Event, topic=…, to=…)`, so that moves are checked "
            "and views know the status"
        )
    return (
        f"evolve leaves the status at {after} on {name}, which leads to {to}: use the event's status, as in "
        "`replace(state, status=event.to or state.status)`"
    )


def _marked(kind: type[Stream[Any, Any]]) -> int:
    fields = [
        (field.name, str(field.type))
        for field in dataclasses.fields(kind.STATE)
        if "tree" not in field.metadata
    ]
    return crc32(repr((kind.STATE_SCHEMA, fields)).encode()) & 0x7FFFFFFF


# A plain callable to the type checker: to it, a class is not always hashable.
_state_schema: Callable[[Any], int] = cache(_marked)
