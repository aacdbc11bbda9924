"""A pipeline that is declared wrongly is refused with a sentence, and leaves nothing behind."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from ledger import BadInput
from ledger.domain.known import KNOWN
from ledger.pipelines import (
    LSM,
    OCT,
    PIPELINES,
    Every,
    Flag,
    Item,
    Level,
    OpenItem,
    Pipeline,
    ProjectStore,
    Ready,
    Total,
)
from ledger.pipelines.item import flags_of
from tests.pipelines.survey import SURVEYS

state = dataclass(frozen=True, slots=True, kw_only=True)


def declare(*levels: Level, name: Any = "never") -> Pipeline:
    """A pipeline with these levels below its project."""
    return Pipeline(name, [Level("project"), *levels])


def leaf(*flags: Flag, **settings: Any) -> Pipeline:
    """A pipeline whose leaf is declared so."""
    return declare(Level("photo", flags=flags, **settings))


def flags(**clears: tuple[str, ...]) -> Pipeline:
    """A pipeline whose leaf has these flags, each with what it clears."""
    return leaf(*(Flag(name, clears=those) for name, those in clears.items()))


class NoItem:
    pass


class Undecorated(Item):
    printed: bool = False


@state
class Note(Item):
    note: str = ""


@state
class NoDefault(Item):
    note: str


@state
class Changeable(Item):
    a: Mapping[str, int] = field(default_factory=dict)


@state
class Listed(Item):
    a: list[str] | None = None


@state
class Nested(Item):
    a: tuple[set[int], ...] = ()


@state
class Counted(Item):
    attempts: str = ""  # type: ignore[assignment]


@state
class Named(Item):
    children: int = 0


class Evolved(OpenItem[Any]):
    evolve = staticmethod(lambda item, event, at, /: item)


class Marking(OpenItem[Any]):
    def develop(self) -> None:
        self.set_flag("spotted")


class NeverPhotoSpotted:
    """In the way of a fact of a flag `spotted`."""


NAMES, WHOSE = "must be lower-case letters, digits and '_'", "every open item has that name"
WORD = "every item has a fact or status"
BAD: list[tuple[str, str, Callable[[], object]]] = [
    ("a name with a capital", NAMES, lambda: declare(name="Never")),
    ("a name with a dash", NAMES, lambda: declare(name="never-ever")),
    ("a name with a digit first", NAMES, lambda: declare(name="1never")),
    ("a name that is no text", NAMES, lambda: declare(name=7)),
    ("a name with a dot", NAMES, lambda: declare(name="never.ever")),
    ("a level with a capital", NAMES, lambda: declare(Level("Photo"))),
    ("a plural with a space", NAMES, lambda: declare(Level("photo", "many photos"))),
    ("no level", "needs at least one level", lambda: Pipeline("never", [])),
    ("two levels of one name", "two levels are named photo", lambda: declare(Level("photo"), Level("photo"))),
    ("a level of another pipeline", "belongs to Survey", lambda: Pipeline("survey", SURVEYS.levels)),
    (
        "a total of the project",
        "nothing above it",
        lambda: Pipeline("never", [Level("p", total=Total("n"))]),
    ),
    ("a total with a capital", NAMES, lambda: leaf(total=Total("Photos"))),
    (
        "one total of two levels",
        "two levels have the total n",
        lambda: declare(Level("flight", total=Total("n")), Level("photo", total=Total("n"))),
    ),
    ("a total with a name of all", WHOSE, lambda: leaf(total=Total("name"))),
    ("a leaf that is ready", "it is the last level", lambda: leaf(ready=Ready())),
    ("a leaf about its children", "it is the last level", lambda: leaf(every=[Every("all", "finished")])),
    (
        "ready without a number",
        "give the level photo a total",
        lambda: declare(Level("flight", ready=Ready()), Level("photo")),
    ),
    (
        "ready by no flag",
        "a photo has no quality 'printed': it has finished, succeeded",
        lambda: declare(Level("flight", ready=Ready("printed")), Level("photo", total=Total("n"))),
    ),
    (
        "ids counted too high",
        "only the second level below",
        lambda: leaf(parent_of=lambda child, per: 1, total=Total("n")),
    ),
    ("a state that is no item", "must be a class that extends Item", lambda: leaf(state=NoItem)),
    ("a state that is an object", "that extends Item", lambda: leaf(state=Note())),
    ("a state without @dataclass", "needs @dataclass(frozen=True, slots", lambda: leaf(state=Undecorated)),
    ("a base that is none", "must be a class that extends OpenItem", lambda: leaf(base=NoItem)),
    ("a field without a default", "note of NoDefault needs a default", lambda: leaf(state=NoDefault)),
    ("a field without a fact", "no fact would set", lambda: leaf(state=Note)),
    ("a changeable default", "is mutable", lambda: leaf(state=Changeable, base=Evolved)),
    ("a list", "a of Listed holds a list", lambda: leaf(state=Listed, base=Evolved)),
    ("a tuple of sets", "a of Nested holds a set", lambda: leaf(state=Nested, base=Evolved)),
    ("a field of every item", "cannot declare attempts", lambda: leaf(state=Counted, base=Evolved)),
    ("a field with a name of all", WHOSE, lambda: leaf(state=Named, base=Evolved)),
    ("a flag of every item", "cannot declare attempts", lambda: flags(attempts=())),
    ("a flag called finished", WHOSE, lambda: flags(finished=())),
    ("a flag called name", WHOSE, lambda: flags(name=())),
    ("a flag called state", WHOSE, lambda: flags(state=())),
    ("a flag called touch", WHOSE, lambda: flags(touch=())),
    ("a flag called flag", WHOSE, lambda: flags(flag=())),
    ("a flag called as an id", WHOSE, lambda: flags(photo_id=())),
    ("a flag called as a method of the base", WHOSE, lambda: leaf(Flag("develop"), base=Marking)),
    (
        "a flag called as the children",
        "two of its fields are named photos",
        lambda: declare(Level("flight", flags=[Flag("photos")]), Level("photo")),
    ),
    ("children called children", WHOSE, lambda: leaf(plural="children")),
    ("a flag called completed", WORD, lambda: flags(completed=())),
    ("a flag called running", WORD, lambda: flags(running=())),
    ("a flag with a capital", "must be lower-case letters", lambda: flags(Printed=())),
    ("a flag twice", "two flags are named a", lambda: leaf(Flag("a"), Flag("a"))),
    ("a flag whose fact is in the way", "but tests.", lambda: flags(spotted=())),
    ("a cascade to nowhere", "clears 'typo', which is no flag", lambda: flags(a=("typo",))),
    ("a flag that clears itself", "'a' clears itself", lambda: flags(a=("a",))),
    ("a circle", "clears itself in the end", lambda: flags(a=("b",), b=("c",), c=("a",))),
    ("a circle below", "clears itself in the end", lambda: flags(a=("b",), b=("c",), c=("b",))),
    ("clears that is no tuple", "clears=('uploaded',)", lambda: flags(a="b")),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("said", "wrong"), [bad[1:] for bad in BAD], ids=[bad[0] for bad in BAD])
def test_a_pipeline_that_is_declared_wrongly_is_refused(said: str, wrong: Callable[[], object]) -> None:
    def known() -> Any:
        return (
            {**KNOWN.streams},
            {**KNOWN.events},
            {**KNOWN.domains},
            {**PIPELINES},
            {*vars(sys.modules[__name__])},
        )

    before = known()
    with pytest.raises(TypeError) as refused:
        wrong()
    assert said in str(refused.value)
    assert known() == before, "so it can be declared again"


def test_a_pipeline_that_was_refused_can_be_declared_rightly_once() -> None:
    with pytest.raises(TypeError, match="needs a default"):
        declare(Level("photo", state=NoDefault), name="later")
    made = declare(Level("photo", flags=[Flag("spotted")]), name="later")
    assert made[1]("p", 1).spotted is False
    with pytest.raises(
        TypeError,
        match=r"the topic 'later\.project\.\w+' belongs to LaterProject\w+ already; a pipeline is declared",
    ):
        declare(name="later")


def test_cascades_that_meet_again_are_fine() -> None:
    """Thirty flags of which each clears all later ones: a way for each subset, but only thirty flags."""
    names = [f"f{i:02}" for i in range(30)]
    made = declare(
        Level("photo", flags=[Flag(name, clears=tuple(names[i + 1 :])) for i, name in enumerate(names)]),
        name="falling",
    )
    found = flags_of(made[1].STATE)
    assert found[names[0]] == tuple(names)
    assert found[names[-1]] == (names[-1],)


def test_a_level_takes_methods_of_a_class_of_the_users() -> None:
    made = declare(Level("photo", flags=[Flag("spotted")], base=Marking), name="shared")
    photo = made[1]("p", 1)
    photo.create()
    photo.develop()
    assert photo.spotted


def test_all_classes_are_names_of_the_declaring_module() -> None:
    made = declare(Level("photo", total=Total("photo_count"), flags=[Flag("spotted")]), name="pickled")
    kind = made[1]
    for value in (kind.IDENT("p", 1), kind.STATE(photo_id=1, spotted=True), kind.FACTS.flags["spotted"]()):
        assert pickle.loads(pickle.dumps(value)) == value
        assert type(value).__module__ == __name__


@pytest.mark.parametrize("levels", [(), None, tuple(LSM), [*SURVEYS], LSM[0], "lsm"])
def test_what_is_no_pipeline_has_no_store(levels: Any) -> None:
    with pytest.raises(BadInput, match="is no pipeline; a store is of a Pipeline, such as LSM"):
        ProjectStore(levels)


@pytest.mark.parametrize("pipeline", [LSM, OCT, SURVEYS], ids=["lsm", "psoct", "survey"])
def test_pipelines_are_accepted(pipeline: Pipeline) -> None:
    assert [*ProjectStore(pipeline).levels] == [*pipeline]
