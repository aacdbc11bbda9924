"""
The statuses and facts of an item: facts as shapes, and the classes that each level derives from them.

A level `lsm.strip` with a flag `archived` records `lsm.strip.created`, `.touched`, `.started`, `.completed`,
`.failed`, `.pending`, `.deleted`, `.reset`, `.entered`, `.left` and `.archived`, a project `.planned` too.
These topics are permanent. Match on the shapes (`case Completed():`) where the level does not matter, and on
the topic where it does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import new_class
from typing import Any, ClassVar, Final

from ..domain.event import Event
from ..domain.frozen import FrozenDict


class ProcessingState(StrEnum):
    """The state of the work on an item (spec S0-01)."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


class Status(StrEnum):
    """The statuses of an item's machine: those of ProcessingState, and one for an item that was deleted."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    DELETED = "deleted"


LIVE: Final = frozenset(Status) - {Status.DELETED}
"""The statuses of an item that exists."""


class ItemFact(Event):
    """A fact of an item."""


class Created(ItemFact):
    """The item was created. under: the incarnation of its parent; 0 where it has none."""

    under: int = 0


class ProjectCreated(Created):
    """A project was created. name: as it was given, for display."""

    project_name: str


class Touched(ItemFact):
    """The item was touched: only `updated_at` changes."""


class Started(ItemFact):
    """An attempt began. claimant: the stream of the job or batch that it is for; token: of its claim."""

    claimant: str | None = None
    token: int | None = None


class Completed(ItemFact):
    """The attempt succeeded."""


class Failed(ItemFact):
    """The attempt failed; with the reason."""

    reason: str | None = None


class MadePending(ItemFact):
    """The item waits again, as before the first attempt; attempts stay counted."""


class Deleted(ItemFact):
    """The item was deleted; it may be created again."""


class FlagSet(ItemFact):
    """One flag became true; each flag has a class and a topic of its own."""

    flag: ClassVar[str]


class Reset(ItemFact):
    """Flags became false: the one that was reset first, then all that are cleared with it."""

    cleared: tuple[str, ...]


class Entered(ItemFact):
    """A worker claimed and began the work that leads to a flag (spec S0-63).

    claimant, token: as of Started.
    """

    milestone: str
    claimant: str | None = None
    token: int | None = None


class Left(ItemFact):
    """That work ended without success, with the reason; the flag stays false and the claim is over."""

    milestone: str
    reason: str | None = None


class Planned(ItemFact):
    """How many children of a kind each parent in the project is expected to have; None: no longer known."""

    totals: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class Facts:
    """The classes of one level's facts."""

    created: type[Created]
    touched: type[Touched]
    started: type[Started]
    completed: type[Completed]
    failed: type[Failed]
    pending: type[MadePending]
    deleted: type[Deleted]
    reset: type[Reset]
    entered: type[Entered]
    left: type[Left]
    planned: type[Planned]
    flags: Mapping[str, type[FlagSet]]


_SHAPES: Final[dict[str, tuple[type[ItemFact], Status | None]]] = {
    "created": (Created, Status.PENDING),
    "touched": (Touched, None),
    "started": (Started, Status.RUNNING),
    "completed": (Completed, Status.COMPLETED),
    "failed": (Failed, Status.FAILED),
    "pending": (MadePending, Status.PENDING),
    "deleted": (Deleted, Status.DELETED),
    "reset": (Reset, None),
    "entered": (Entered, None),
    "left": (Left, None),
    "planned": (Planned, None),
}
# The last word of the topic, the shape, and the status that the topic leads to.


def facts_of(level: str, flags: Iterable[str], *, project: bool, module: str) -> Facts:
    """Declare the facts of a level, as classes of `module`. project: this level is the root of its tree.

    Raises TypeError where a flag has the name of a fact, or the level is declared twice.
    """
    flags = tuple(flags)
    if wrong := sorted(set(flags) & set(_SHAPES)):
        raise TypeError(f"{level}: a flag cannot be named {' or '.join(wrong)}: every item has such a fact")
    shapes = dict(_SHAPES)
    if project:
        shapes["created"] = (ProjectCreated, Status.PENDING)
    else:
        del shapes["planned"]
    made: dict[str, Any] = {"planned": Planned}
    made |= {name: _declare(level, name, shape, to, module) for name, (shape, to) in shapes.items()}
    set_flags = {name: _declare(level, name, FlagSet, None, module, flag=name) for name in flags}
    return Facts(**made, flags=FrozenDict(set_flags))


def title_of(level: str, name: str) -> str:
    """The name of the class of a level's fact: LsmStripCompleted."""
    return "".join(word.capitalize() for word in f"{level}.{name}".replace("_", ".").split("."))


def _declare(level: str, name: str, shape: type[Any], to: Status | None, module: str, **body: str) -> Any:
    """The class of one fact, also set as a name of its module, so that pickle works."""
    title = title_of(level, name)
    body |= {"__module__": module, "__qualname__": title, "__doc__": f"{shape.__doc__} Of {level}."}
    made = new_class(
        title, (shape,), {"topic": f"{level}.{name}", "to": to}, lambda names: names.update(body)
    )
    setattr(sys.modules[module], title, made)
    return made
