"""
A pipeline of a user's own, for tests: drone surveys of fields, survey → flight → photo.

    survey.project/<survey>                       photos_per_flight, a plan
    survey.flight/<survey>/<flight>               stitched ─▶ published
    survey.photo/<survey>/<flight>/<photo>        developed ─▶ (tagged, sharpened)    sharpened ─▶ printed

A photo also has a fact that only this pipeline knows: how bright it was found.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from ledger import Event
from ledger.pipelines import Flag, Item, ItemFact, Level, OpenItem, Pipeline, Total
from ledger.pipelines.item import evolve as evolve_item


@dataclass(frozen=True, slots=True, kw_only=True)
class Photo(Item):
    brightness: float | None = None


class BrightnessMeasured(ItemFact, topic="survey.photo.brightness_measured"):
    """How bright a photo was found."""

    brightness: float


def evolve(photo: Any, event: Event, at: datetime, /) -> Any:
    """Apply a fact of a photo."""
    seen = evolve_item(photo, event, at)
    match event:
        case BrightnessMeasured():
            return replace(seen, brightness=event.brightness)
        case _:
            return seen


class Measured(OpenItem[Any]):
    evolve = staticmethod(evolve)

    def measure(self, brightness: float) -> None:
        self.record(BrightnessMeasured(brightness=brightness))


SURVEYS: Final = Pipeline(
    "survey",
    [
        Level("project"),
        Level("flight", flags=[Flag("stitched", clears=("published",)), Flag("published")]),
        Level(
            "photo",
            total=Total("photos_per_flight"),
            flags=[
                Flag("developed", clears=("tagged", "sharpened")),
                Flag("tagged"),
                Flag("sharpened", clears=("printed",)),
                Flag("printed"),
            ],
            state=Photo,
            base=Measured,
        ),
    ],
)
OpenSurvey, OpenFlight, OpenPhoto = SURVEYS
SurveyId, FlightId, PhotoId = (kind.IDENT for kind in SURVEYS)
SurveyView, FlightView, PhotoView = (kind.STATE for kind in SURVEYS)
