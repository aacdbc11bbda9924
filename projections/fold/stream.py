"""The fold of one stream: version, status, state as far as it can be folded, and problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

import psycopg

from ledger.domain.event import Event
from ledger.domain.known import KNOWN
from ledger.domain.names import split_name
from ledger.domain.state import dump
from ledger.domain.stream import Stream
from ledger.domain.topics import TopicStatus, Unknown, known_statuses, read_event
from ledger.errors import LedgerError, UnreadableEvent
from ledger.log.announce import announced_statuses

Row = tuple[str, int, int, str, int, str | None, datetime]
"""An event as `fold_events` reads it: stream, version, position, topic, schema, data, recorded_at (UTC)."""
SMALL: Final = 120
"""Events with bodies up to this many characters are cached: most bodies are small, and many are equal."""
MANY: Final = 20_000
"""Maximum number of cached events."""


class Problem(NamedTuple):
    """What is wrong with an event, its place, and the message."""

    kind: str
    version: int
    position: int
    says: str


@dataclass(slots=True, eq=False)
class Fold:
    """The result of folding the events of one stream.

    opened: the stream object of its class, None for a category that nobody here knows. version, position: of
    the last event. moved, moved_at: the last status that an event led to, and the version of that event.
    json: whether it holds an event of ours, and so should have a head. folded: the version up to which the
    state could be folded. unknown: topics that this process has no class for, and how many events have each;
    none where it does not know the class of the stream either. untold_at: the version of the last of these of
    which no domain declared where it leads. at: states at versions that were asked for.
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
    unknown: Counter[str] = field(default_factory=Counter)
    problems: list[Problem] = field(default_factory=list)
    untold_at: int = 0
    at: dict[int, Any] = field(default_factory=dict)

    @property
    def status(self) -> str | None:
        """The status after the last event, as an append of it alone leaves it in the head.

        None too where an event that nobody here knows may have led elsewhere.
        """
        if self.untold_at > self.moved_at:
            return None
        state = None if self.opened is None else self.opened.state.status
        if state is None or self.broken or self.unknown or (self.moved_at and self.moved_at == self.version):
            return self.moved
        return str(getattr(state, "value", state))

    @property
    def has_status(self) -> bool:
        """Whether the events determine the status."""
        return self.untold_at <= self.moved_at and (self.moved_at > 0 or self.status is not None)

    @property
    def token(self) -> int | None:
        """The lease token in the events, 0 for none; None if they hold none or it cannot be determined."""
        return self.opened.token_in(self.opened.state) if self.opened is not None and self.sure else None

    @property
    def sure(self) -> bool:
        """Whether the state is certain: class and topics are known, and every event could be applied."""
        return self.opened is not None and not self.broken and not self.unknown

    @property
    def state(self) -> str | None:
        """The state as a head stores it, as JSON text; None if this process lacks the class."""
        return None if self.opened is None else dump(self.opened.state)

    @property
    def state_schema(self) -> int | None:
        """The mark of the code that folds the state."""
        return None if self.opened is None else self.opened.state_schema()


class Folder:
    """Folds streams in one process. statuses: the status that each topic leads to."""

    def __init__(self, statuses: Mapping[str, TopicStatus]) -> None:
        self._constant = {topic: one.status for topic, one in statuses.items() if one.status is not None}
        self._fields = {topic: one.field for topic, one in statuses.items() if one.field is not None}
        self._read: dict[tuple[str, int, str], Event | Unknown] = {}

    def fold(self, stream: str, rows: Iterable[Row], keep: int = -1) -> Fold:
        """The fold of a stream's events. keep: a version at which the state is kept beside the last one."""
        fold = Fold(stream, self._opened(stream))
        if keep == 0 and fold.opened is not None:
            fold.at[0] = fold.opened.state
        self.go_on(fold, rows, keep)
        return fold

    def go_on(self, fold: Fold, rows: Iterable[Row], keep: int = -1) -> None:
        """Add further events of the stream to its fold."""
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
                self._move(fold, event, topic)
            elif topic in fold.unknown and topic not in self._fields:
                fold.untold_at = version
            if opened is None or fold.broken:
                continue
            try:
                opened.replay(event, at)
            except Exception as error:  # any error of a user's evolve
                _unreadable(fold, f"{topic} could not be applied: {type(error).__name__}: {error}")
                continue
            fold.folded = version
            if version == keep:
                fold.at[version] = opened.state

    def _event(self, fold: Fold, topic: str, schema: int, data: str | None) -> Event | Unknown:
        """The event; Unknown if it cannot be read, which the fold then reports."""
        if data is None:
            return Unknown(topic, schema, {})
        fold.json = True
        event = self._read.get((topic, schema, data))
        if event is None:
            try:
                event = read_event(topic, schema, data)
            except UnreadableEvent as error:
                _unreadable(fold, str(error))
                return Unknown(topic, schema, {})
            if len(data) <= SMALL:
                if len(self._read) >= MANY:
                    self._read.clear()
                self._read[topic, schema, data] = event
        if type(event) is Unknown and fold.opened is not None:
            fold.unknown[topic] += 1
        return event

    def _move(self, fold: Fold, event: Event | Unknown, topic: str) -> None:
        name = self._fields[topic]
        value = event.data.get(name) if isinstance(event, Unknown) else getattr(event, name, None)
        if value is not None:
            fold.moved, fold.moved_at = str(value), fold.version

    def _opened(self, stream: str) -> Stream[Any, Any] | None:
        """A new stream object of this name; None if the name is no key of its category's class."""
        kind = KNOWN.streams.get(stream.partition("/")[0])
        if kind is None:
            return None
        try:
            return kind(*split_name(stream)[1])
        except (LedgerError, TypeError, ValueError):
            return None


def _misplaced(fold: Fold, version: int, position: int) -> None:
    """Report a wrong place of an event: versions must be dense, positions ascending."""
    before = fold.version
    if version == before:
        fold.problems.append(Problem("duplicate", version, position, f"version {version} occurs twice"))
    elif version > before + 1:
        first = before + 1
        missing = f"version {first} is" if version == first + 1 else f"versions {first} to {version - 1} are"
        fold.problems.append(Problem("gap", version, position, f"{missing} missing"))
    if position <= fold.position:
        says = f"position {position} comes after position {fold.position}"
        fold.problems.append(Problem("order", version, position, says))


def _unreadable(fold: Fold, what: str) -> None:
    fold.broken = True
    says = " ".join(what.split())[:300]
    fold.problems.append(Problem("unreadable", fold.version, fold.position, says))


def statuses_of(connection: psycopg.Connection[Any], schema: str) -> dict[str, TopicStatus]:
    """The status that each topic leads to: as this process declares it, else as it was announced."""
    return announced_statuses(connection, schema) | known_statuses()
