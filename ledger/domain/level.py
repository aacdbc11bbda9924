"""What a pipeline announces of its levels, so that views fold items without importing the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .names import checked_topic


class Fact(NamedTuple):
    """The effect of a topic's events on an item: a word such as `started`, or `flag` with the flag's name."""

    word: str
    flag: str | None = None
    status: str | None = None


class Level(NamedTuple):
    """A level of a pipeline: the category of the level above, and the fields of its state.

    ids: the parts of a key after the project. named: whether the state shows the project's name. children:
    the field that holds the level below. facts: the effect of its events, by topic.
    """

    parent: str | None
    children: str | None
    named: bool
    ids: tuple[str, ...]
    flags: frozenset[str]
    totals: frozenset[str]
    facts: Mapping[str, Fact]

    def row(self, category: str) -> dict[str, Any]:
        """The level as it is announced. Raises BadName."""
        return {
            "category": category, "parent": self.parent, "children": self.children, "named": self.named,
            "ids": list(self.ids), "flags": sorted(self.flags), "totals": sorted(self.totals),
            "facts": [[checked_topic(topic), *fact] for topic, fact in sorted(self.facts.items())],
        }  # fmt: skip
