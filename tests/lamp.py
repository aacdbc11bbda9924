"""
A small domain for tests: a lamp that is made, switched on, and broken for good.

    made -> on -> broken
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from ledger import Event, Moves, Stream


class Status(StrEnum):
    MADE = "made"
    ON = "on"
    BROKEN = "broken"


MOVES = Moves({None: {Status.MADE}, Status.MADE: {Status.ON, Status.BROKEN}, Status.ON: {Status.BROKEN}})


class LampMade(Event, topic="lamp.made", to=Status.MADE):
    watts: float = 1.0
    notes: dict[str, Any] = {}


class LampSwitchedOn(Event, topic="lamp.switched_on", to=Status.ON):
    pass


class LampBroke(Event, topic="lamp.broke", to=Status.BROKEN):
    reason: str = ""


class LampRead(Event, topic="lamp.read"):
    value: Any = None


@dataclass(frozen=True, slots=True)
class Lamp:
    status: Status | None = None
    watts: float = 0.0
    made_at: datetime | None = None
    read: int = 0
    values: tuple[Any, ...] = ()


def evolve(lamp: Lamp, event: Event, at: datetime) -> Lamp:
    match event:
        case LampMade():
            return replace(lamp, status=event.to, watts=event.watts, made_at=at)
        case LampRead():
            return replace(lamp, read=lamp.read + 1, values=(*lamp.values[-9:], event.value))
        case _:
            return replace(lamp, status=event.to or lamp.status)


class OpenLamp(Stream[Lamp, Event]):
    CATEGORY, MOVES, STATE = "lamp", MOVES, Lamp
    evolve = staticmethod(evolve)

    def make(self, watts: float = 1.0, notes: dict[str, Any] | None = None) -> None:
        self.record(LampMade(watts=watts, notes=notes or {}))

    def switch_on(self) -> None:
        self.record(LampSwitchedOn())

    def break_(self, reason: str = "") -> None:
        self.record(LampBroke(reason=reason))

    def read(self, value: Any = None) -> None:
        self.record(LampRead(value=value))
