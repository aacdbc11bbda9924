"""The differences from Prefect's own server that are meant, each with its reason: the only list of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MISSING = "(missing)"


@dataclass(frozen=True, slots=True)
class Difference:
    """Where read models may differ (a pattern of places), and why they are meant to."""

    where: str
    about: str
    reason: str

    def covers(self, place: str) -> bool:
        return re.search(self.where, place) is not None


MEANT: tuple[Difference, ...] = ()


def differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """One line for each place where they differ and are not meant to."""
    places = [*theirs, *(place for place in ours if place not in theirs)]
    return [
        f"{place}: Prefect {theirs.get(place, MISSING)!r}, here {ours.get(place, MISSING)!r}"
        for place in places
        if theirs.get(place, MISSING) != ours.get(place, MISSING)
        and not any(meant.covers(place) for meant in MEANT)
    ]
