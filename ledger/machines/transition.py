"""Recorded moves: the event, the state after it, and the stream of one object's moves."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any, ClassVar, Final, Self, TypeVar

from pydantic import BaseModel

from ..domain.event import Event
from ..domain.frozen import FrozenDict
from ..domain.known import KNOWN
from ..domain.moves import Moves
from ..domain.stream import Stream
from ..domain.topics import Unknown
from ..errors import BadName, StreamConflict, TransitionConflict

M = TypeVar("M", bound=BaseModel)
SORT_STEP: Final = 10
"""How far the sort keys of two moves are apart (spec S2-03)."""

_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*\Z")


class Moved(Event):
    """An object moved. from_state: None for a first move to the initial state. definition: the number of the
    definition that allowed the move, 0 for an import.
    """

    from_state: str | None = None
    to_state: str
    metadata: Mapping[str, Any] = FrozenDict()
    definition: int = 0


@dataclass(frozen=True, slots=True)
class Transition:
    """One move of an object.

    at: the database's time; before it is recorded, this process's. claimed_at: the claimed time. number: 1
    for the first move. connection: that of the move's transaction, while its callbacks run in it.
    """

    to_state: str
    from_state: str | None
    number: int
    at: datetime
    metadata: Mapping[str, Any] = field(default_factory=FrozenDict)
    definition: int = 0
    claimed_at: datetime | None = field(default=None, compare=False)
    connection: Any = field(default=None, compare=False, repr=False)

    @property
    def sort_key(self) -> int:
        """10, 20, 30, …: ten times the number (spec S2-03)."""
        return SORT_STEP * self.number

    def metadata_as(self, model: type[M]) -> M:
        """The metadata as its model."""
        return model.model_validate(dict(self.metadata))


@dataclass(frozen=True)
class MachineState:
    """The state of an object, and the move that led to it."""

    status: str | None = None
    from_state: str | None = None
    since: datetime | None = None
    metadata: Mapping[str, Any] = field(default_factory=FrozenDict)
    definition: int = 0


class MachineStream(Stream[MachineState, Moved]):
    """The moves of one object through one machine: `payment/PM123`."""

    MOVES = Moves({})
    STATE = MachineState
    MOVED: ClassVar[type[Moved]]

    @staticmethod
    def evolve(state: MachineState, event: Moved, at: datetime, /) -> MachineState:
        """The state after a move."""
        return MachineState(event.to_state, event.from_state, at, event.metadata, event.definition)

    def replay(self, event: Event | Unknown, at: datetime) -> None:
        """Apply a move. An event of another topic only raises the version."""
        if isinstance(event, self.MOVED):
            super().replay(event, at)
        else:
            self.version += 1

    def settle(self, at: datetime) -> None:
        """Set the database's time on the last move."""
        if self.news:
            now = self.state
            self.state = MachineState(now.status, now.from_state, at, now.metadata, now.definition)
        self.version += len(self.news)
        self.news.clear()

    @classmethod
    def after(cls, key: Sequence[str | int], move: Transition) -> Self:
        """The stream of an object whose last move is this one."""
        stream = cls(*key)
        state = MachineState(move.to_state, move.from_state, move.at, move.metadata, move.definition)
        stream.restore(state, move.number)
        return stream

    @property
    def last(self) -> Transition | None:
        """The last move; None if there is none."""
        return None if self.state.status is None else self.transition()

    def transition(self, connection: Any = None, claimed_at: datetime | None = None) -> Transition:
        """The last move, recorded or still to be recorded."""
        now, number = self.state, self.version + len(self.news)
        assert now.status is not None
        assert now.since is not None
        return Transition(
            now.status,
            now.from_state,
            number,
            now.since,
            now.metadata,
            now.definition,
            claimed_at,
            connection,
        )

    def conflict(self, error: StreamConflict) -> StreamConflict:
        """The conflict as a TransitionConflict (spec S2-12)."""
        wanted = [event.to_state for event in self.news]
        return TransitionConflict(error.stream, error.expected, error.found, wanted[-1] if wanted else None)


def checked_machine(name: Any) -> str:
    """The name of a machine, if it can be a category and the first part of a topic. Raises BadName."""
    if not isinstance(name, str) or not _NAME.match(name) or len(name) > LONGEST_NAME:
        raise BadName("machine", name, "must be lower-case words of letters, digits and '_', joined by dots")
    other = KNOWN.streams.get(name)
    if name == "machine" or (other is not None and not issubclass(other, MachineStream)):
        raise BadName("machine", name, "is the category of other streams of the ledger")
    topic = f"{name}.moved"
    if topic in KNOWN.events and not issubclass(KNOWN.events[topic], Moved):
        raise BadName("machine", name, f"would use the topic {topic}, which belongs to another event")
    return name


LONGEST_NAME: Final = 100


def _stream_of(name: str, module: str = "__main__") -> type[MachineStream]:
    """The stream class of a machine; all its definitions in this process share it.

    module: declares the machine; by default none: then the class belongs to no domain, and no other process
    can import it.
    """
    checked_machine(name)
    title = "".join(word.title() for word in re.split(r"[._]", name))
    moved = KNOWN.events.get(f"{name}.moved")
    if moved is None:
        doc = {"__doc__": f"An object moved through the machine {name}.", "__module__": module}
        moved = type(f"{title}Moved", (Moved,), doc, topic=f"{name}.moved", to_field="to_state")
    parts = {
        "CATEGORY": name,
        "MOVED": moved,
        "__module__": module,
        "__doc__": f"Moves through the machine {name}.",
    }
    return type(f"{title}Stream", (MachineStream,), parts)


# A plain callable to the type checker.
stream_of: Callable[..., type[MachineStream]] = cache(_stream_of)
