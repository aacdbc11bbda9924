"""
The language in which a pipeline is declared: levels with flags, totals, readiness, methods, and reports.

    SCENES = Pipeline(
        "scenes",
        levels=[
            Level("project"),
            Level("scene", ready=Ready("georeferenced")),
            Level("tile", total=Total("tiles_per_scene"), flags=[
                Flag("calibrated", clears=("georeferenced",)),
                Flag("georeferenced"),
            ]),
        ],
    )

What follows from it is in pipeline.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter
from typing import Any

from .item import Item, OpenItem


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag of a level: a field of its view, `set_x`, `reset_x`, a fact and a milestone; false at first.

    clears: the flags that are made from this one, and so are cleared with it. title, short: of its column in
    a report, and in a narrow table; by default its name. outside: the states in its external names, by
    default its name. counted: whether a summary counts it.
    """

    name: str
    clears: tuple[str, ...] = ()
    title: str = ""
    short: str = ""
    outside: tuple[str, ...] | None = None
    counted: bool = True

    @property
    def words(self) -> str:
        """The name as words."""
        return self.name.replace("_", " ").capitalize()


@dataclass(frozen=True, slots=True)
class Total:
    """A number that the plan of a project sets: how many items of a level each parent has.

    unplanned: the number where none is planned. needed: whether a report refuses to count without a number;
    otherwise it counts the items that exist.
    """

    name: str
    help: str = ""
    unplanned: int | None = None
    needed: bool = False


@dataclass(frozen=True, slots=True)
class Ready:
    """When an item is ready: all its children have this flag and none failed; None: all succeeded."""

    flag: str | None = None


@dataclass(frozen=True, slots=True)
class Every:
    """A method of a view and of an open item that returns whether every expected child has a quality.

    quality: a flag of the child, `finished` or `succeeded`. parameter, default: of the method; the number of
    expected children. some: whether the method returns False without any child, even where none is expected.
    """

    name: str
    quality: str
    parameter: str = "total"
    default: Any = Parameter.empty
    some: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """A report: of a project, a row for each parent of leaves; of an item below, a row for each leaf.

    title, key: may name {project} and the levels: {scene}, {scene:04d}. columns: names of levels (their ids),
    `processing`, `total`, `started`, `running`, `completed`, `failed`, `progress`, names of flags; `flags`:
    those of the leaves that are not named; `made`: those of the row's own item that are not named. done: the
    word for completed leaves. shares: by a flag of the leaves, the word for leaves that have it. status:
    whether the report begins with the remaining work.
    """

    title: str
    key: str
    columns: tuple[str, ...]
    of: str = "project"
    done: str = ""
    shares: Mapping[str, str] = field(default_factory=dict)
    status: bool = True


@dataclass(frozen=True, slots=True)
class Level:
    """A level of a pipeline. The first one is the project; each item of another level has one parent above.

    plural: the field of the parent's view that holds the items. total: how many of them a parent has. ready:
    when an item is ready. default: the id that applies where a caller names an item below without it.
    parent_of: where ids are unique in the whole project, the function that computes the id of the parent
    from an id and the total. every: further methods. outside: further facts with external names, beside flags
    and readiness, each with its state in the name. heading: of the column of its ids. state, base: classes
    that the view and the open item extend, for your own fields, facts and methods.
    """

    name: str
    plural: str = ""
    flags: Sequence[Flag] = ()
    total: Total | None = None
    ready: Ready | None = None
    default: int | None = None
    parent_of: Callable[[int, int], int] | None = None
    every: Sequence[Every] = ()
    outside: Mapping[str, str] = field(default_factory=dict)
    heading: str = ""
    state: type[Item] = Item
    base: type[OpenItem[Any]] = OpenItem

    def __post_init__(self) -> None:
        object.__setattr__(self, "flags", tuple(self.flags))
        object.__setattr__(self, "plural", self.plural or f"{self.name}s")
        object.__setattr__(self, "heading", self.heading or str(self.name).capitalize())

    @property
    def camel(self) -> str:
        """Its name as in names of classes."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def id(self) -> str:
        """The name of the field with its id."""
        return f"{self.name}_id"
