"""A level or a pipeline that is declared wrongly is refused with a sentence, and leaves nothing behind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import new_class
from typing import Any

import pytest

from ledger import BadInput
from ledger.event import TOPICS
from ledger.project_state import LSM, OCT, Ident, Item, OpenBranch, OpenItem, ProjectStore, below, flag, total
from ledger.project_state.item import flags_of
from ledger.stream import CATEGORIES
from tests.project_state import survey
from tests.project_state.survey import SURVEYS, FlightId, FlightView, OpenFlight, PhotoId, PhotoView, SurveyId

view = dataclass(frozen=True, slots=True, kw_only=True)


def state(**fields: Any) -> type[Item]:
    """A view of a photo with these further fields: a type, or a type and what the field is."""
    hints = {name: given[0] if isinstance(given, tuple) else given for name, given in fields.items()}
    body = {name: given[1] for name, given in fields.items() if isinstance(given, tuple)}
    hints = {"flight_id": int, "photo_id": int} | hints
    made = new_class(
        "View", (Item,), {}, lambda ns: ns.update({"__annotations__": hints, "__module__": __name__, **body})
    )
    return view(made)


def flags(**clears: tuple[str, ...]) -> type[Item]:
    """A view of a photo with these flags, each with what it clears."""
    return state(**{name: (bool, flag(clears=those)) for name, those in clears.items()})


def holding(*names: str) -> type[Item]:
    """A view of a photo with children under these names."""
    return state(**{name: (Mapping[int, PhotoView], below()) for name in names})


def level(bases: tuple[Any, ...] = (OpenItem,), category: Any = "never.photo", **parts: Any) -> type[Any]:
    body = {"CATEGORY": category, "IDENT": PhotoId, "STATE": state(), "__module__": __name__} | parts
    return new_class(
        "Level", bases, {}, lambda ns: ns.update({k: v for k, v in body.items() if v is not None})
    )


class NoItem:
    pass


class Undecorated(Item):
    printed: bool = flag()


class UndecoratedId(FlightId):
    plate: int


@dataclass(frozen=True)
class NamedId(FlightId):
    photo_id: str


class NeverPhotoSpotted:
    """In the way of a fact of a flag `spotted`."""


DOTS, WHOSE = "must be lower-case words joined by dots", "which is a name of every open item"
WORD = "which is a fact or a status"
BAD: list[tuple[str, str, Callable[[], object]]] = [
    ("no CATEGORY", "declares no CATEGORY", lambda: level(category=None)),
    ("no STATE", "declares no STATE", lambda: level(STATE=None)),
    ("no IDENT", "declares no IDENT", lambda: level(IDENT=None)),
    ("nothing but STATE", "no CATEGORY and no IDENT", lambda: level(category=None, IDENT=None)),
    ("CATEGORY of the level above", "declares no CATEGORY", lambda: level((OpenFlight,), None)),
    ("CATEGORY with a capital", DOTS, lambda: level(category="Never.photo")),
    ("CATEGORY with a dash", DOTS, lambda: level(category="never-photo")),
    ("CATEGORY with a digit first", DOTS, lambda: level(category="1never.photo")),
    ("CATEGORY that is no text", "CATEGORY 7 must be", lambda: level(category=7)),
    ("CATEGORY of another level", "is that of SurveyPhoto", lambda: level(category="survey.photo")),
    ("STATE that is no item", "must be a class that extends Item", lambda: level(STATE=NoItem)),
    ("STATE that is an object", "that extends Item", lambda: level(STATE=state()(flight_id=1, photo_id=2))),
    ("STATE without @dataclass", "needs @dataclass(frozen=True, slots", lambda: level(STATE=Undecorated)),
    ("IDENT without @dataclass", "needs @dataclass(frozen=True)", lambda: level(IDENT=UndecoratedId)),
    ("IDENT that is none", "must be a class that extends Ident", lambda: level(IDENT=PhotoView)),
    ("an id of text", "photo_id of NamedId must be an int", lambda: level(IDENT=NamedId)),
    ("STATE without the ids", "no field photo_id, which is in IDENT", lambda: level(STATE=FlightView)),
    ("a project without its name", "no field project_name, which is in", lambda: level(IDENT=SurveyId)),
    ("a field without a default", "note of View needs a default", lambda: level(STATE=state(note=str))),
    ("a field without a fact", "would be set by no fact", lambda: level(STATE=state(note=(str, "")))),
    (
        "a changeable default",
        "starts as what can be changed",
        lambda: level(STATE=state(a=(Mapping[str, int], field(default_factory=dict))), evolve=len),
    ),
    (
        "a list",
        "a of View holds a list",
        lambda: level(STATE=state(a=(list[str] | None, None)), evolve=len),
    ),
    (
        "a dict in a union",
        "a of View holds a dict",
        lambda: level(STATE=state(a=(dict[str, int] | None, None)), evolve=len),
    ),
    (
        "a tuple of sets",
        "a of View holds a set",
        lambda: level(STATE=state(a=(tuple[set[int], ...], ())), evolve=len),
    ),
    ("a field of every item", "cannot declare attempts", lambda: level(STATE=flags(attempts=()))),
    ("a flag of every item", WHOSE, lambda: level(STATE=flags(finished=()))),
    ("a flag called name", WHOSE, lambda: level(STATE=flags(name=()))),
    ("a flag called state", WHOSE, lambda: level(STATE=flags(state=()))),
    ("a flag called touch", WHOSE, lambda: level(STATE=flags(touch=()))),
    ("a flag called flag", WHOSE, lambda: level(STATE=flags(flag=()))),
    ("a field called children", WHOSE, lambda: level((OpenBranch,), STATE=holding("children"))),
    ("a flag called completed", WORD, lambda: level(STATE=flags(completed=()))),
    ("a flag called running", WORD, lambda: level(STATE=flags(running=()))),
    ("a flag with a capital", "must be lower-case letters", lambda: level(STATE=flags(Printed=()))),
    ("a flag whose fact is in the way", "but tests.", lambda: level(STATE=flags(spotted=()))),
    ("a cascade to nowhere", "clears 'typo', which is no flag", lambda: level(STATE=flags(a=("typo",)))),
    ("a flag that clears itself", "'a' clears itself", lambda: level(STATE=flags(a=("a",)))),
    ("a circle", "clears itself in the end", lambda: level(STATE=flags(a=("b",), b=("c",), c=("a",)))),
    ("a circle below", "clears itself in the end", lambda: level(STATE=flags(a=("b",), b=("c",), c=("b",)))),
    ("clears that is no tuple", "clears=('uploaded',)", lambda: flag(clears="a")),  # type: ignore[arg-type]
    ("a leaf with children", "so it must be an OpenBranch", lambda: level(STATE=holding("parts"))),
    ("a branch without below()", "needs a field such as", lambda: level((OpenBranch,))),
    ("a plan below", "only the project has a plan", lambda: level(STATE=state(parts=(int | None, total())))),
    ("two kinds", "of several kinds (a, b)", lambda: level((OpenBranch,), STATE=holding("a", "b"))),
]


@pytest.mark.parametrize(("said", "declare"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
def test_a_level_that_is_declared_wrongly_is_refused(said: str, declare: Callable[[], object]) -> None:
    before = {**CATEGORIES}, {**TOPICS}, {*vars(sys.modules[__name__])}
    with pytest.raises(TypeError) as refused:
        declare()
    assert said in str(refused.value)
    assert ({**CATEGORIES}, {**TOPICS}, {*vars(sys.modules[__name__])}) == before, (
        "so it can be declared again"
    )


def test_a_level_that_was_refused_can_be_declared_rightly() -> None:
    with pytest.raises(TypeError, match="needs a default"):
        level(category="later.photo", STATE=state(note=str))
    made = level(category="later.photo", STATE=flags(spotted=()))
    assert made("p", 1, 2).spotted is False
    with pytest.raises(
        TypeError,
        match=r"the topic 'later\.photo\.\w+' is that of LaterPhoto\w+ already; a level is declared once",
    ):
        level(category="later.photo")


def test_cascades_that_meet_again_are_fine() -> None:
    """Thirty flags of which each clears all later ones: a way for each subset, but only thirty flags."""
    names = [f"f{i:02}" for i in range(30)]
    found = flags_of(flags(**{name: tuple(names[i + 1 :]) for i, name in enumerate(names)}))
    assert found[names[0]] == tuple(names)
    assert found[names[-1]] == (names[-1],)


def test_a_class_that_declares_no_part_is_no_level_yet() -> None:
    class Marked(OpenItem[Any]):
        """What several levels of a user share."""

        def mark(self) -> None:
            self.mark_completed()

    photo = level((Marked,), "shared.photo")("p", 1, 2)
    photo.create()
    photo.mark()
    assert photo.succeeded


# How levels fit together.


class LonelyBranch(OpenBranch[survey.FlightView, survey.OpenPhoto]):
    CATEGORY, STATE, IDENT = "lonely.flight", survey.FlightView, FlightId


class OtherPhoto(OpenItem[Any]):
    CATEGORY, STATE, IDENT = "other.photo", state(), PhotoId


@dataclass(frozen=True)
class StrangerId(Ident):
    """As a FlightId, but of another family."""

    flight_id: int


class Stranger(OpenBranch[survey.FlightView, survey.OpenPhoto]):
    CATEGORY, STATE, IDENT = "stranger.flight", survey.FlightView, StrangerId


PROJECT, FLIGHT, PHOTO = SURVEYS


@pytest.mark.parametrize(
    ("levels", "said"),
    [
        ((), "a sequence of the classes"),
        (None, "a sequence of the classes"),
        ({PROJECT}, "a sequence of the classes"),
        ((PROJECT, survey.FlightView), "is no level"),
        ((PROJECT, OpenItem), "is no level"),
        ((FLIGHT, PROJECT, PHOTO), "OpenFlight is out of order"),
        ((PROJECT, PHOTO, FLIGHT), "OpenPhoto is out of order"),
        ((PROJECT, PHOTO), "IDENT must have SurveyId and one id more"),
        ((PROJECT, FLIGHT, FLIGHT), "OpenFlight is out of order"),
        ((PROJECT, Stranger, PHOTO), "Stranger is out of order"),
        ((PROJECT, LSM[1]), "is out of order"),
        ((PROJECT, FLIGHT), "OpenFlight has children, but no level follows it"),
        ((PROJECT, LonelyBranch, OtherPhoto), "photos of FlightView holds PhotoView, but"),
    ],
)  # fmt: skip
def test_levels_that_are_no_pipeline_are_refused(levels: Any, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        ProjectStore(levels)
    assert said in str(refused.value)


@pytest.mark.parametrize("levels", [LSM, OCT, SURVEYS, list(SURVEYS)], ids=["lsm", "psoct", "survey", "list"])
def test_pipelines_are_accepted(levels: Any) -> None:
    assert [*ProjectStore(levels).levels] == [*levels]
