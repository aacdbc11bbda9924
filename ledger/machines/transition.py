"""A recorded move of a machine: the fact, where the machine stands after it, the streams that hold both."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from typing import Any, ClassVar, Final, TypeVar

from pydantic import BaseModel

from ..errors import BadName, StreamConflict, TransitionConflict
from ..event import TOPICS, Event, Unknown
from ..frozen import FrozenDict
from ..moves import Moves
from ..stream import CATEGORIES, Stream

M = TypeVar("M", bound=BaseModel)
SORT_STEP: Final = 10
"""How far the sort keys of two moves are apart (spec S2-03)."""

_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*\Z")


class Moved(Event):
    """A machine moved. from_state: None for what the history of an object begins with, unless it was in the
    initial state. definition: the number of the definition that allowed it, 0 where none did (an import)."""

    from_state: str | None = None
    to_state: str
    metadata: Mapping[str, Any] = FrozenDict()
    definition: int = 0


@dataclass(frozen=True, slots=True)
class Transition:
    """One move of a machine, as it was recorded.

    at: the ledger's time; before it is recorded, this process's. claimed_at: the time that was claimed for
    it. number: 1 for the first move of the object. connection: the transaction that the move is recorded in,
    while the callbacks before and after it run.
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
        """10, 20, 30, …: the order of the moves, with room between them (spec S2-03)."""
        return SORT_STEP * self.number

    def metadata_as(self, model: type[M]) -> M:
        """What was said with the move, as its model."""
        return model.model_validate(dict(self.metadata))


@dataclass(frozen=True)
class Standing:
    """Where an object stands: its state, how often it moved, and the last move."""

    status: str | None = None
    moves: int = 0
    from_state: str | None = None
    since: datetime | None = None
    metadata: Mapping[str, Any] = field(default_factory=FrozenDict)
    definition: int = 0

    @property
    def last(self) -> Transition | None:
        """The last move; None where there was none."""
        if self.status is None or self.since is None:
            return None
        return Transition(
            self.status, self.from_state, self.moves, self.since, self.metadata, self.definition
        )


class MachineStream(Stream[Standing, Moved]):
    """The moves of one object through one machine: `payment/PM123`."""

    MOVES = Moves({})
    STATE = Standing
    MOVED: ClassVar[type[Moved]]

    @staticmethod
    def evolve(state: Standing, event: Moved, at: datetime, /) -> Standing:
        """Stand where the move led to."""
        return Standing(
            event.to_state, state.moves + 1, event.from_state, at, event.metadata, event.definition
        )

    def replay(self, event: Event | Unknown, at: datetime) -> None:
        """Apply a move; what is none, and somebody appended here, only counts."""
        if isinstance(event, self.MOVED):
            super().replay(event, at)
        else:
            self.state = replace(self.state, moves=self.state.moves + 1)
            self.version += 1

    def settle(self, at: datetime) -> None:
        """The last move has the database's time; nothing else of a standing waits for it."""
        if self.news:
            now = self.state
            self.state = Standing(now.status, now.moves, now.from_state, at, now.metadata, now.definition)
        self.version += len(self.news)
        self.news.clear()

    def conflict(self, error: StreamConflict) -> StreamConflict:
        """Somebody else moved the object first (spec S2-12)."""
        wanted = [event.to_state for event in self.news]
        return TransitionConflict(error.stream, error.expected, error.found, wanted[-1] if wanted else None)


def checked_machine(name: Any) -> str:
    """The name of a machine, if it can be a category and the first part of a topic. Raises BadName."""
    if not isinstance(name, str) or not _NAME.match(name) or len(name) > LONGEST_NAME:
        raise BadName("machine", name, "must be lower-case words of letters, digits and '_', joined by dots")
    other = CATEGORIES.get(name)
    if name == "machine" or (other is not None and not issubclass(other, MachineStream)):
        raise BadName("machine", name, "is the category of other streams of the ledger")
    topic = f"{name}.moved"
    if topic in TOPICS and not issubclass(TOPICS[topic], Moved):
        raise BadName("machine", name, f"would record under the topic {topic}, which is another event's")
    return name


LONGEST_NAME: Final = 100


def _stream_of(name: str, module: str) -> type[MachineStream]:
    """The class of the streams of a machine, one for all its definitions in this process."""
    checked_machine(name)
    title = "".join(word.title() for word in re.split(r"[._]", name))
    moved = TOPICS.get(f"{name}.moved")
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


# A plain callable to the type checker; the module is what a process that folds beside this one imports.
stream_of: Callable[[str, str], type[MachineStream]] = cache(_stream_of)
