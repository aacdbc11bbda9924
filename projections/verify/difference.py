"""A difference between what is kept and the events, and the summary of a run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

MOST_FIELDS: Final = 12
"""Maximum fields of one difference that are listed."""
MOST_TEXT: Final = 100
"""Characters of a value that are shown."""


class Kind(StrEnum):
    """What is wrong. These words never change, because scripts rely on them.

    A head is missing, behind or ahead of the events, differs (at the same version, or in its state), or has
    no events at all. The events themselves, which nothing repairs, have a gap in the versions, a version
    twice, positions that do not ascend, one that cannot be read, or a topic that no class of this process
    reads, in a stream whose class it has imported. The row of a command id is missing, differs from the
    events, has no events, or two appends were recorded under it. A view differs.

    What is missing or behind is repaired from the events. What contradicts them is
    evidence (EVIDENCE): one of the two was lost or changed, and what is kept may be the only trace of it.
    """

    HEAD_MISSING = "head missing"
    HEAD_BEHIND = "head behind"
    HEAD_AHEAD = "head ahead"
    HEAD_DIFFERS = "head differs"
    HEAD_ALONE = "head without events"
    GAP = "gap"
    DUPLICATE = "duplicate"
    ORDER = "order"
    UNREADABLE = "unreadable"
    UNKNOWN_TOPIC = "unknown topic"
    COMMAND_MISSING = "command missing"
    COMMAND_DIFFERS = "command differs"
    COMMAND_ALONE = "command without events"
    COMMAND_TWICE = "command twice"
    VIEW = "view"


EVIDENCE: Final = frozenset(
    {Kind.HEAD_AHEAD, Kind.HEAD_ALONE, Kind.HEAD_DIFFERS, Kind.COMMAND_ALONE, Kind.COMMAND_DIFFERS}
)
"""Kinds of rows that contradict the events: repaired only if named."""
DOUBTS: Final = frozenset({Kind.GAP, Kind.DUPLICATE, Kind.ORDER, Kind.UNREADABLE, Kind.COMMAND_TWICE})
"""Errors of events: nothing repairs them, and what is kept of such streams is evidence too."""
REPAIRABLE: Final = tuple(kind for kind in Kind if kind not in DOUBTS)
"""The kinds that can be repaired, by default or if named."""


class Field(NamedTuple):
    """One field that differs: the kept value and the events' value; both as JSON, shortened."""

    name: str
    kept: str
    events: str


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference.

    about: a stream, a command id, or a view's name for its row. version, position: of the last event that is
    concerned. says: a sentence. repaired: what a repair did, such as `repaired`, `inserted`, `removed`,
    `busy` (an append held the lock: run again); None if nothing was tried or can be done. evidence: of events
    that were lost or changed; it is not repaired unless its kind is named.
    """

    kind: Kind
    about: str
    version: int | None
    says: str
    fields: tuple[Field, ...] = ()
    position: int | None = None
    repaired: str | None = None
    view: str | None = None
    evidence: bool = False

    @property
    def is_repaired(self) -> bool:
        """Whether it was repaired."""
        return self.repaired in ("repaired", "inserted", "removed", "same")


class UnknownTopic(NamedTuple):
    """A topic that no class here reads: how many events have it, in how many streams, and one of these."""

    events: int
    streams: int
    stream: str

    def plus(self, other: UnknownTopic) -> UnknownTopic:
        """Both together."""
        return UnknownTopic(
            self.events + other.events, self.streams + other.streams, min(self.stream, other.stream)
        )

    def difference(self, topic: str) -> Difference:
        """What is wrong with it, in words."""
        events = "1 event has" if self.events == 1 else f"{self.events} events have"
        streams = "1 stream" if self.streams == 1 else f"{self.streams} streams"
        return Difference(
            Kind.UNKNOWN_TOPIC,
            topic,
            None,
            f"{events} it, in {streams} such as {self.stream}, and no imported class reads it: states are "
            "folded without it. Name the module that declares it (--domain), or run the newer code that has "
            f"it. If it was renamed, add was={topic!r} to its class. If nothing writes it any more, keep its "
            "class: recorded events are read for ever",
        )


@dataclass(slots=True)
class Summary:
    """What a run checked and found.

    old: heads that were folded by other code. lagging: heads whose state is right but not of the last
    version. unsure: heads whose state cannot be judged here, since a topic or the whole class is unknown to
    this process. unknown: the topics that no class of this process reads, in streams whose class it knows.
    changed: rows written, by what was done. evidence: differences that were left, by kind.
    """

    streams: int = 0
    events: int = 0
    heads: int = 0
    commands: int = 0
    old: int = 0
    lagging: int = 0
    unsure: int = 0
    repaired: int = 0
    unknown: dict[str, UnknownTopic] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)
    evidence: Counter[str] = field(default_factory=Counter)

    @property
    def differences(self) -> int:
        """How many differences there were."""
        return self.kinds.total()

    @property
    def equal(self) -> bool:
        """Whether nothing differs, or nothing differs any more."""
        return self.repaired == self.differences

    def note(self, difference: Difference) -> None:
        """Count one difference."""
        self.kinds[difference.kind.value] += 1
        self.repaired += difference.is_repaired
        if difference.evidence and not difference.is_repaired:
            self.evidence[difference.kind.value] += 1

    def add(self, other: Summary) -> None:
        """Add the counts of another part of the run."""
        for name in ("streams", "events", "heads", "commands", "old", "lagging", "unsure", "repaired"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for topic, found in other.unknown.items():
            self.unknown[topic] = self.unknown[topic].plus(found) if topic in self.unknown else found
        self.kinds.update(other.kinds)
        self.changed.update(other.changed)
        self.evidence.update(other.evidence)


MISSING: Final = object()
"""The value of a missing field."""


def fields_between(kept: Any, events: Any, name: str = "") -> Iterator[Field]:
    """Each field in which two JSON values differ, also if Python calls them equal: 1, 1.0 and true."""
    if isinstance(kept, dict) and isinstance(events, dict):
        for key in sorted({*kept, *events}):
            inner = f"{name}.{key}" if name else key
            yield from fields_between(kept.get(key, MISSING), events.get(key, MISSING), inner)
    elif canonical(kept) != canonical(events):
        yield Field(name, shortened(kept), shortened(events))


def canonical(value: Any) -> str | None:
    """A text that two values share only if they are the same JSON."""
    return None if value is MISSING else json.dumps(value, sort_keys=True)


def shortened(value: Any) -> str:
    """A value as JSON, shortened."""
    text = "(not there)" if value is MISSING else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}… ({len(text)} characters)"


def bounded(fields: list[Field]) -> tuple[Field, ...]:
    """The first of the fields, and how many more there are."""
    if len(fields) <= MOST_FIELDS:
        return tuple(fields)
    more = Field("…", f"{len(fields) - MOST_FIELDS} fields more", "")
    return (*fields[:MOST_FIELDS], more)
