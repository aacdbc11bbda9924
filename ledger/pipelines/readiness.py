"""
Readiness: all children of a parent are done, recorded as a fact in a stream of its own (spec S0-72).

    lsm.channel.ready/<project>/<slice>/<channel>     strips 1 … strips_per_slice compressed, and not failed
    psoct.mosaic.ready/<project>/<slice>/<mosaic>     batches 1 … batches_per_mosaic succeeded
    psoct.slice.ready/<project>/<slice>               mosaics_per_slice mosaics (2) or more, all of them
                                                      enface_stitched, and not failed

A round ends with the event that completes the set. An event that makes the set incomplete again (a reset, a
failure, a restart, a deletion, a larger plan) begins the next round. A reactor that follows the log
(`consumers.pipelines`) records the facts, each exactly once; a level with `ready` has a gate. The facts are
not in a channel's own stream, so they never conflict with a scope that has the channel open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar

from ..domain.event import Event
from ..domain.moves import Moves
from ..domain.stream import Stream
from .facts import Status
from .item import Item, OpenItem

# Facts.


class BecameReady(Event):
    """All children existed and were done.

    total: how many were expected. present: how many existed. position, by: the event that completed the
    set, and its stream.
    """

    total: int
    present: int
    position: int
    by: str


# State: what is true now, which is also the read-only view.


@dataclass(frozen=True, slots=True)
class Readiness:
    """How often a set was complete, and the details of the last time.

    It has no status: the items determine whether the set is complete now.
    """

    status: None = None
    rounds: int = 0
    total: int = 0
    present: int = 0
    position: int = 0
    by: str = ""
    first_at: datetime | None = None
    last_at: datetime | None = None


def evolve(readiness: Readiness, event: Event, at: datetime, /) -> Readiness:
    """Apply a fact recorded at `at`. It applies no rules: recorded facts are never refused."""
    match event:
        case BecameReady():
            return replace(
                readiness,
                rounds=readiness.rounds + 1,
                total=event.total,
                present=event.present,
                position=event.position,
                by=event.by,
                first_at=readiness.first_at or at,
                last_at=at,
            )
        case _:
            return readiness


class OpenReadiness(Stream[Readiness, BecameReady]):
    """The rounds of one parent. PARENT: its level; READY: the fact."""

    MOVES, STATE = Moves({}), Readiness
    PARENT: ClassVar[type[OpenItem[Any]]]
    READY: ClassVar[type[BecameReady]]
    evolve = staticmethod(evolve)

    @classmethod
    def name_of(cls, *key: str | int) -> str:
        """The name of the stream with this key, the same for all spellings of a project."""
        return super().name_of(*cls.PARENT.key_of(key))


# Gates: when a set is complete.


@dataclass(frozen=True, slots=True)
class Gate:
    """When a parent is ready.

    total: the field of the project with the number of expected children. flag: the flag that a child must
    have, without having failed; None: it must have succeeded. A failed child does not count, even if
    its flag was set before (W0-04). numbered: the children 1 … total must be good, whatever others exist;
    otherwise at least `total` children must exist, and all of them be good (spec S0-42). unplanned: the total
    where none is planned; with None the parent is not ready then.
    """

    levels: Sequence[type[OpenItem[Any]]]
    readiness: type[OpenReadiness]
    total: str
    flag: str | None = None
    numbered: bool = True
    unplanned: int | None = None

    @property
    def depth(self) -> int:
        """The number of levels down to the parent, including it."""
        return self.levels.index(self.readiness.PARENT) + 1

    def good(self, child: Item) -> bool:
        """Whether a child is done."""
        if self.flag is None:
            return child.succeeded
        return bool(getattr(child, self.flag)) and child.status is not Status.FAILED

    def expected(self, project: Item, otherwise: Mapping[str, int | None]) -> int:
        """How many children a set of this project must have: planned, else `otherwise`; 0 where unknown."""
        return getattr(project, self.total) or otherwise.get(self.total) or self.unplanned or 0
