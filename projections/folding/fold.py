"""The fold of one stream: version, status, state as far as it can be folded, and what is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

from ledger.errors import LedgerError
from ledger.event import Event, Unknown, read_event
from ledger.names import split_name
from ledger.state import dump
from ledger.store.declaring import Move
from ledger.stream import CATEGORIES, Stream

Row = tuple[str, int, int, str, int, str | None, datetime]
"""An event as `fold_events` reads it: stream, version, position, topic, schema, data, recorded_at (UTC)."""
SMALL: Final = 120
"""Characters of a body up to which its event is remembered: most bodies are small, and many equal."""
MANY: Final = 20_000
"""Events that are remembered at most."""


class Problem(NamedTuple):
    """What is wrong with an event, where it lies, and the words for it."""

    kind: str
    version: int
    position: int
    says: str


@dataclass(slots=True, eq=False)
class Fold:
    """What the events of one stream come to.

    opened: the stream object of its class, None for a category that nobody here knows. version, position: of
    the last event. moved, moved_at: the last status that an event led to, and the version of that event.
    json: whether it holds an event of ours, and so should have a head. folded: the version up to which the
    state could be folded. unknown: topics that this process has no class for. at: states at versions that
    were asked for.
    """

    stream: str
    opened: Stream[Any, Any] | None
    version: int = 0
    position: int = 0
    events: int = 0
    moved: str | None = None
    moved_at: int = 0
    json: bool = False
    folded: int = 0
    broken: bool = False
    unknown: set[str] = field(default_factory=set)
    problems: list[Problem] = field(default_factory=list)
    at: dict[int, Any] = field(default_factory=dict)

    @property
    def status(self) -> str | None:
        """The status after the last event, as an append of it alone leaves it in the head."""
        state = None if self.opened is None else self.opened.state.status
        if state is None or self.broken or (self.moved_at and self.moved_at == self.version):
            return self.moved
        return str(getattr(state, "value", state))

    @property
    def has_status(self) -> bool:
        """Whether the events say anything about the status."""
        return self.moved_at > 0 or self.status is not None

    @property
    def token(self) -> int | None:
        """The lease token that the events speak of, 0 for none; None where they do not, or nobody can say."""
        return self.opened.token_in(self.opened.state) if self.opened is not None and self.sure else None

    @property
    def sure(self) -> bool:
        """Whether the state is known: the class is, every topic is, and every event could be applied."""
        return self.opened is not None and not self.broken and not self.unknown

    @property
    def state(self) -> str | None:
        """The state as a head keeps it, as JSON text; None where nobody here knows the class."""
        return None if self.opened is None else dump(self.opened.state)

    @property
    def state_schema(self) -> int | None:
        """The mark of the code that folds the state."""
        return None if self.opened is None else self.opened.state_schema()


class Folder:
    """Folds streams in one process. moves: the status that each topic leads to."""

    def __init__(self, moves: Mapping[str, Move]) -> None:
        self._constant = {topic: move.status for topic, move in moves.items() if move.status is not None}
        self._fields = {topic: move.field for topic, move in moves.items() if move.field is not None}
        self._read: dict[tuple[str, int, str], Event | Unknown] = {}

    def fold(self, stream: str, rows: Iterable[Row], keep: int = -1) -> Fold:
        """The fold of a stream's events. keep: a version at which the state is kept beside the last one."""
        fold = Fold(stream, self._opened(stream))
        if keep == 0 and fold.opened is not None:
            fold.at[0] = fold.opened.state
        self.go_on(fold, rows, keep)
        return fold

    def go_on(self, fold: Fold, rows: Iterable[Row], keep: int = -1) -> None:
        """Take further events of the stream into its fold."""
        opened = fold.opened
        for _, version, position, topic, schema, data, at in rows:
            if version != fold.version + 1 or position <= fold.position:
                _misplaced(fold, version, position)
            fold.version, fold.position = version, position
            fold.events += 1
            event = self._event(fold, topic, schema, data)
            if (to := self._constant.get(topic)) is not None:
                fold.moved, fold.moved_at = to, version
            elif topic in self._fields and data is not None:
                self._move(fold, event, topic, data)
            if opened is None or fold.broken:
                continue
            try:
                opened.replay(event, at)
            except Exception as error:  # whatever somebody's evolve does
                _unreadable(fold, f"{topic} could not be applied", error)
                continue
            fold.folded = version
            if version == keep:
                fold.at[version] = opened.state

    def _event(self, fold: Fold, topic: str, schema: int, data: str | None) -> Event | Unknown:
        """The event; Unknown where it cannot be read, which the fold then says."""
        if data is None:
            return Unknown(topic, schema, {})
        fold.json = True
        event = self._read.get((topic, schema, data))
        if event is None:
            try:
                event = read_event(topic, schema, data)
            except Exception as error:  # a body that is not what its topic says, or somebody's upcast
                _unreadable(fold, f"{topic} cannot be read", error)
                return Unknown(topic, schema, {})
            if len(data) <= SMALL:
                if len(self._read) >= MANY:
                    self._read.clear()
                self._read[topic, schema, data] = event
        if type(event) is Unknown and fold.opened is not None:
            fold.unknown.add(topic)
        return event

    def _move(self, fold: Fold, event: Event | Unknown, topic: str, data: str) -> None:
        name = self._fields[topic]
        value = json.loads(data).get(name) if isinstance(event, Unknown) else getattr(event, name, None)
        if value is not None:
            fold.moved, fold.moved_at = str(value), fold.version

    def _opened(self, stream: str) -> Stream[Any, Any] | None:
        """A fresh stream object of this name; None where the name is no key of its category's class."""
        kind = CATEGORIES.get(stream.partition("/")[0])
        if kind is None:
            return None
        try:
            return kind(*split_name(stream)[1])
        except (LedgerError, TypeError, ValueError):
            return None


def _misplaced(fold: Fold, version: int, position: int) -> None:
    """Say what is wrong with the place of an event: dense versions, ascending positions."""
    before = fold.version
    if version == before:
        fold.problems.append(Problem("duplicate", version, position, f"version {version} is there twice"))
    elif version > before + 1:
        first = before + 1
        missing = f"version {first} is" if version == first + 1 else f"versions {first} to {version - 1} are"
        fold.problems.append(Problem("gap", version, position, f"{missing} missing"))
    if position <= fold.position:
        says = f"position {position} comes after position {fold.position}"
        fold.problems.append(Problem("order", version, position, says))


def _unreadable(fold: Fold, what: str, error: Exception) -> None:
    fold.broken = True
    said = " ".join(str(error).split())
    says = f"{what}: {type(error).__name__}: {said[:300]}"
    fold.problems.append(Problem("unreadable", fold.version, fold.position, says))
