"""What a rebuild tells of itself: on its way, and at its end."""

from __future__ import annotations

from dataclasses import dataclass

from .comparing import Difference


@dataclass(frozen=True, slots=True)
class Building:
    """How far a rebuild is. end: where the log ended when it was last looked at."""

    view: str
    copy: int
    position: int
    end: int
    events: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a rebuild did. switched: readers see the new copy. continued: it went on with what was there.

    differences: between the old copy and the new one, at one position. parked: streams with an event that
    fails.
    """

    view: str
    copy: int
    before: int | None
    position: int
    events: int
    seconds: float
    differences: tuple[Difference, ...]
    parked: int
    switched: bool
    continued: bool
