"""What views are told of a pipeline: its levels, and what their facts do (`ledger.store.levels`)."""

from __future__ import annotations

from typing import Any, Final

from ..event import TOPICS
from ..store.levels import LEVELS, Fact, Level
from .facts import (
    Completed,
    Created,
    Deleted,
    Entered,
    Failed,
    FlagSet,
    ItemFact,
    Left,
    MadePending,
    Planned,
    Reset,
    Started,
)
from .item import children_name, fields_of, flags_of, totals_of
from .views import Levels

_WORDS: Final[dict[type[ItemFact], str]] = {
    Created: "created",
    Started: "started",
    Completed: "completed",
    Failed: "failed",
    MadePending: "pending",
    Deleted: "deleted",
    FlagSet: "flag",
    Reset: "reset",
    Entered: "entered",
    Left: "left",
    Planned: "planned",
    ItemFact: "touched",
}
# What `evolve` of item.py tells apart; all that is none of the others does what a touch does.


def make_known(levels: Levels) -> None:
    """Let this process know a pipeline's levels, so that it declares them to ledgers."""
    parent = None
    for kind in levels:
        LEVELS[kind.CATEGORY] = level_of(kind, parent)
        parent = kind.CATEGORY


def level_of(kind: Any, parent: str | None) -> Level:
    """What views must know of a level. Facts of its own are those whose topics begin with its category."""
    shown = fields_of(kind.STATE)
    return Level(
        parent=parent,
        children=children_name(kind.STATE),
        named="project_name" in shown,
        ids=kind.IDENT.fields()[1:],
        flags=frozenset(flags_of(kind.STATE)),
        totals=frozenset(totals_of(kind.STATE)),
        facts={
            topic: fact_of(event)
            for topic, event in TOPICS.items()
            if topic.rpartition(".")[0] == kind.CATEGORY and issubclass(event, ItemFact)
        },
    )


def fact_of(event: type[ItemFact]) -> Fact:
    """What an event of this class does."""
    word = next(word for shape, word in _WORDS.items() if issubclass(event, shape))
    flag = event.flag if issubclass(event, FlagSet) else None
    return Fact(word, flag, None if event.to is None else event.to.value)
