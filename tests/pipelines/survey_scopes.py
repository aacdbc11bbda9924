"""One photo of a survey, and every way of the generic store to change it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from ledger.pipelines import ProjectStore
from tests.pipelines.survey import OpenPhoto, OpenSurvey, PhotoId

PHOTO = PhotoId("meadow", 1, 2)
NAME = "survey.photo/meadow/1/2"


def photo_of(survey: OpenSurvey) -> OpenPhoto:
    found: OpenPhoto = survey.find_or_create(PHOTO)
    return found


Scope = Callable[[ProjectStore, Callable[[OpenPhoto], object]], object]


def entered(scope: AbstractContextManager[Any], change: Callable[[Any], object]) -> None:
    with scope as target:
        change(target)


CHANGES: dict[str, Scope] = {
    "locked": lambda store, change: entered(store.locked("meadow"), lambda s: change(photo_of(s))),
    "update": lambda store, change: store.update("meadow", lambda survey: change(photo_of(survey))),
    "open": lambda store, change: entered(store.open("meadow", photo_of), change),
    "edit": lambda store, change: entered(store.edit("meadow", photo_of), change),
    "open_item": lambda store, change: entered(store.open_item(PHOTO), change),
    "update_item": lambda store, change: store.update_item(PHOTO, change),
}
every_change = pytest.mark.parametrize("scope", CHANGES.values(), ids=CHANGES)
