"""What pipelines declare of their levels, so that views can fold items without importing the pipeline."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from ..names import checked_topic
from . import reading
from .ledger import Ledger


class Fact(NamedTuple):
    """What events of one topic do to an item: a word such as `started`, or `flag` with the flag's name."""

    word: str
    flag: str | None = None
    status: str | None = None


class Level(NamedTuple):
    """A level of a pipeline: the category of the level above, and what its state shows.

    ids: the parts of a key after the project. named: whether it shows the project's name. children: the field
    that holds the level below. facts: what its events do, by topic.
    """

    parent: str | None
    children: str | None
    named: bool
    ids: tuple[str, ...]
    flags: frozenset[str]
    totals: frozenset[str]
    facts: Mapping[str, Fact]


LEVELS: Final[dict[str, Level]] = {}
"""Every level that this process has put together in a pipeline, by category."""


def declare_levels(ledger: Ledger, levels: Mapping[str, Level] | None = None) -> list[str]:
    """Tell the ledger of levels, by default all that this process knows; returns those that are news.

    What was declared before stays declared: old and new code run side by side. Needs the writer's or the
    projector's role. Raises BadName, NoPermission.
    """
    news = []
    wanted = dict(LEVELS) if levels is None else levels
    with ledger.reader() as connection:
        told, facts = _told(connection, ledger.schema)
        for category, level in sorted(wanted.items()):
            if _knows(told.get(category), level) and level.facts.items() <= facts.items():
                continue
            rows = [
                [checked_topic(topic), fact.word, fact.flag, fact.status]
                for topic, fact in sorted(level.facts.items())
            ]
            parameters = {
                "category": category, "parent": level.parent, "children": level.children,
                "named": level.named, "ids": list(level.ids), "flags": sorted(level.flags),
                "totals": sorted(level.totals),
                "facts": json.dumps(rows),
            }  # fmt: skip
            reading.query(connection, ledger.schema, "declare_level", **parameters)
            news.append(category)
    return news


def _told(connection: reading.Connection, schema: str) -> tuple[dict[str, Level], dict[str, Fact]]:
    """What the ledger knows: levels, without their facts, and facts by topic."""
    levels = {
        category: Level(parent, children, named, tuple(ids), frozenset(flags), frozenset(totals), {})
        for category, parent, children, named, ids, flags, totals in reading.query(
            connection, schema, "levels"
        )
    }
    facts = {topic: Fact(*rest) for topic, *rest in reading.query(connection, schema, "level_facts")}
    return levels, facts


def _knows(told: Level | None, wanted: Level) -> bool:
    """Whether nothing of a level is news, its facts aside."""
    return told is not None and told[:4] == wanted[:4] and told[4] >= wanted[4] and told[5] >= wanted[5]
