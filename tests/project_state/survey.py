"""
A pipeline of a user's own, for tests: drone surveys of fields, survey → flight → photo.

    survey.project/<survey>                       photos_per_flight, a plan
    survey.flight/<survey>/<flight>               stitched ─▶ published
    survey.photo/<survey>/<flight>/<photo>        developed ─▶ (tagged, sharpened)    sharpened ─▶ printed

A photo also has a fact that only this pipeline knows: how bright it was found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from ledger import Event
from ledger.project_state import Ident, Item, ItemFact, Levels, OpenBranch, OpenItem, below, flag, total
from ledger.project_state.item import evolve as evolve_item


@dataclass(frozen=True)
class SurveyId(Ident):
    pass


@dataclass(frozen=True)
class FlightId(SurveyId):
    flight_id: int


@dataclass(frozen=True)
class PhotoId(FlightId):
    photo_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PhotoView(Item):
    flight_id: int
    photo_id: int
    developed: bool = flag(clears=("tagged", "sharpened"))
    tagged: bool = flag()
    sharpened: bool = flag(clears=("printed",))
    printed: bool = flag()
    brightness: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightView(Item):
    flight_id: int
    stitched: bool = flag(clears=("published",))
    published: bool = flag()
    photos: Mapping[int, PhotoView] = below()


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyView(Item):
    project_name: str
    photos_per_flight: int | None = total()
    flights: Mapping[int, FlightView] = below()


class BrightnessMeasured(ItemFact, topic="survey.photo.brightness_measured"):
    """How bright a photo was found."""

    brightness: float


def evolve(photo: PhotoView, event: Event, at: datetime, /) -> PhotoView:
    """Apply a fact of a photo."""
    seen = evolve_item(photo, event, at)
    match event:
        case BrightnessMeasured():
            return replace(seen, brightness=event.brightness)
        case _:
            return seen


class OpenPhoto(OpenItem[PhotoView]):
    CATEGORY, STATE, IDENT = "survey.photo", PhotoView, PhotoId
    evolve = staticmethod(evolve)

    def measure(self, brightness: float) -> None:
        self.record(BrightnessMeasured(brightness=brightness))


class OpenFlight(OpenBranch[FlightView, OpenPhoto]):
    CATEGORY, STATE, IDENT = "survey.flight", FlightView, FlightId


class OpenSurvey(OpenBranch[SurveyView, OpenFlight]):
    CATEGORY, STATE, IDENT = "survey.project", SurveyView, SurveyId


SURVEYS: Final[Levels] = (OpenSurvey, OpenFlight, OpenPhoto)
