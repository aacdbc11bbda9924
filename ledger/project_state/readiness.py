"""
Readiness: that all children of a parent were done, as a fact of a stream of its own (spec S0-72).

    lsm.channel.ready/<project>/<slice>/<channel>     strips 1 … strips_per_slice compressed, and not failed
    psoct.mosaic.ready/<project>/<slice>/<mosaic>     batches 1 … batches_per_mosaic succeeded
    psoct.slice.ready/<project>/<slice>               mosaics_per_slice mosaics (2) or more, all of them
                                                      enface_stitched, and not failed

A round ends with the event that completes the set; what makes the set incomplete again (a reset, a failure, a
restart, a deletion, a larger plan) begins the next. The facts are recorded by a reactor that follows the log
(`consumers.project_state`), each exactly once; its gates are declared here. A channel's own stream does not
get them, so they never conflict with who has the channel open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar, Final

from ..event import Event
from ..moves import Moves
from ..stream import Stream
from .facts import Status
from .item import Item
from .lsm import LSM, LSMChannelState, LSMStripStateView
from .open_item import OpenItem
from .psoct import OCT, OCTBatchStateView, OCTMosaicState, OCTMosaicStateView, OCTSliceState
from .views import Levels

# Facts.


class BecameReady(Event):
    """All children were there and done.

    total: how many were expected. present: how many were there. position, by: the event that completed the
    set, and its stream.
    """

    total: int
    present: int
    position: int
    by: str


class LSMChannelReady(BecameReady, topic="lsm.channel.ready"):
    """All strips of the channel were compressed."""


class OCTMosaicReady(BecameReady, topic="psoct.mosaic.ready"):
    """All batches of the mosaic succeeded."""


class OCTSliceReady(BecameReady, topic="psoct.slice.ready"):
    """The enface images of all mosaics of the slice were stitched."""


# State: what is true now, which is also the read-only view of it.


@dataclass(frozen=True, slots=True)
class Readiness:
    """How often a set was complete, and how the last time came.

    It has no status: whether the set is complete now is for its items to say.
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
    """Apply a fact recorded at `at`. No rules here: the past is not up for debate."""
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
        """The name of the stream with this key; spellings of one project share it."""
        return super().name_of(*cls.PARENT.key_of(key))


class LSMChannelReadiness(OpenReadiness):
    """The rounds of a channel."""

    CATEGORY, PARENT, READY = "lsm.channel.ready", LSMChannelState, LSMChannelReady


class OCTMosaicReadiness(OpenReadiness):
    """The rounds of a mosaic."""

    CATEGORY, PARENT, READY = "psoct.mosaic.ready", OCTMosaicState, OCTMosaicReady


class OCTSliceReadiness(OpenReadiness):
    """The rounds of a slice."""

    CATEGORY, PARENT, READY = "psoct.slice.ready", OCTSliceState, OCTSliceReady


# Gates: when a set is complete.


@dataclass(frozen=True, slots=True)
class Gate:
    """When a parent is ready.

    total: the field of the project that says how many children are expected. good: whether a child is done.
    numbered: the children 1 … total must be good, whatever else is there; otherwise at least `total` must be
    there, and all that are there good (spec S0-42). unplanned: the total where none is planned; with None
    nothing is ready then.
    """

    levels: Levels
    readiness: type[OpenReadiness]
    total: str
    good: Callable[[Any], bool]
    numbered: bool = True
    unplanned: int | None = None

    @property
    def depth(self) -> int:
        """How many levels there are down to the parent, itself counted."""
        return self.levels.index(self.readiness.PARENT) + 1

    def expected(self, project: Item, otherwise: Mapping[str, int | None]) -> int:
        """How many children a set of this project must have: planned, else `otherwise`; 0 where unknown."""
        return getattr(project, self.total) or otherwise.get(self.total) or self.unplanned or 0

    def complete(self, total: int, present: Set[int], good: Set[int]) -> bool:
        """Whether the ids of the children that show, and of those that are good, make a complete set."""
        if total < 1 or len(good) < total:
            return False
        return all(i in good for i in range(1, total + 1)) if self.numbered else len(good) == len(present)


def _compressed(strip: LSMStripStateView) -> bool:
    return strip.compressed and strip.status is not Status.FAILED


def _succeeded(batch: OCTBatchStateView) -> bool:
    return batch.succeeded


def _stitched(mosaic: OCTMosaicStateView) -> bool:
    return mosaic.enface_stitched and mosaic.status is not Status.FAILED


GATES: Final = (
    Gate(LSM, LSMChannelReadiness, "strips_per_slice", _compressed),
    Gate(OCT, OCTMosaicReadiness, "batches_per_mosaic", _succeeded),
    Gate(OCT, OCTSliceReadiness, "mosaics_per_slice", _stitched, numbered=False, unplanned=2),
)
"""Children that failed do not count, also where the flag was set before they did (W0-04)."""
