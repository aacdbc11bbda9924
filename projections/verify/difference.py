"""A difference between what is kept and what the events say, and the sum of a run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

MOST_FIELDS: Final = 12
"""Fields of one difference that are named."""
MOST_TEXT: Final = 100
"""Characters of a value that are shown."""


class Kind(StrEnum):
    """What is wrong. These words are kept for ever, because scripts rely on them.

    Of a head: it is missing, behind or ahead of the events, differs (at the same version, or in the state
    that it holds), or has no events at all. Of the events themselves, which nothing mends: a gap in the
    versions, a version twice, positions that do not ascend, one that cannot be read. Of a command id: its row
    is missing, says something else than the events, has no events, or two appends were recorded under it. Of
    a view.
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
    COMMAND_MISSING = "command missing"
    COMMAND_DIFFERS = "command differs"
    COMMAND_ALONE = "command without events"
    COMMAND_TWICE = "command twice"
    VIEW = "view"


class Field(NamedTuple):
    """One field that differs: what is kept, and what the events say; both as JSON, shortened."""

    name: str
    kept: str
    events: str


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference.

    about: a stream, a command id, or what a view calls it. version, position: of the last event that it
    speaks of. says: a sentence. mended: what a repair did about it, such as `mended`, `inserted`, `removed`,
    `busy` (an append held it: run again); None where nothing was tried or can be done.
    """

    kind: Kind
    about: str
    version: int | None
    says: str
    fields: tuple[Field, ...] = ()
    position: int | None = None
    mended: str | None = None
    view: str | None = None

    @property
    def is_mended(self) -> bool:
        """Whether it is gone now."""
        return self.mended in ("mended", "inserted", "removed", "same")


@dataclass(slots=True)
class Summary:
    """What a run looked at and found.

    old: heads that were folded by other code. lagging: heads whose state is right but not of the last
    version. unsure: heads whose state cannot be judged here, since a topic or the whole class is unknown to
    this process. changed: rows written, by what was done.
    """

    streams: int = 0
    events: int = 0
    heads: int = 0
    commands: int = 0
    old: int = 0
    lagging: int = 0
    unsure: int = 0
    mended: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)

    @property
    def differences(self) -> int:
        """How many differences there were."""
        return self.kinds.total()

    @property
    def equal(self) -> bool:
        """Whether nothing is different, or nothing any more."""
        return self.mended == self.differences

    def note(self, difference: Difference) -> None:
        """Count one difference."""
        self.kinds[difference.kind.value] += 1
        self.mended += difference.is_mended

    def add(self, other: Summary) -> None:
        """Count what another part of the run looked at."""
        for name in ("streams", "events", "heads", "commands", "old", "lagging", "unsure", "mended"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.kinds.update(other.kinds)
        self.changed.update(other.changed)


MISSING: Final = object()
"""Stands for a field that is not there."""


def fields_between(kept: Any, events: Any, name: str = "") -> Iterator[Field]:
    """Each field in which two JSON values differ; what is equal to Python may differ: 1, 1.0 and true."""
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
    """A value as JSON, not all of it."""
    text = "(not there)" if value is MISSING else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}… ({len(text)} characters)"


def bounded(fields: list[Field]) -> tuple[Field, ...]:
    """The first of the fields, and how many more there are."""
    if len(fields) <= MOST_FIELDS:
        return tuple(fields)
    more = Field("…", f"{len(fields) - MOST_FIELDS} fields more", "")
    return (*fields[:MOST_FIELDS], more)
