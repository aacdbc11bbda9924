"""A machine as it is drawn and listed: its states, what may follow what, and how many objects stand where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ledger.machines import Defined

SHARES: Final = (0.0, 0.05, 0.20, 0.50, 1.0)
"""Shares of all objects, up to which a state is in one step of colour: none, a few, some, many, most."""


@dataclass(frozen=True, slots=True)
class Node:
    """A state. objects: how many are in it, None where nobody counted. declared: whether the definition has
    it; objects may stand where a later definition has no state any more."""

    state: str
    initial: bool = False
    terminal: bool = False
    declared: bool = True
    objects: int | None = None


@dataclass(frozen=True, slots=True)
class Arrow:
    """A declared transition. after: seconds until it is due by itself. metadata: the name of a model."""

    from_state: str
    to_state: str
    after: float | None = None
    metadata: str | None = None

    @property
    def label(self) -> str:
        """What stands beside it: when it is due by itself."""
        return "" if self.after is None else f"after {span(self.after)}"


@dataclass(frozen=True)
class Picture:
    """A machine under one of its definitions."""

    machine: str
    number: int
    nodes: tuple[Node, ...]
    arrows: tuple[Arrow, ...]

    @property
    def counted(self) -> bool:
        """Whether the objects were counted."""
        return any(node.objects is not None for node in self.nodes)

    @property
    def objects(self) -> int:
        """How many objects there are in all."""
        return sum(node.objects or 0 for node in self.nodes)

    @property
    def title(self) -> str:
        """What it is, in a line."""
        told = f", {amount(self.objects, 'object')}" if self.counted else ""
        return f"{self.machine}, definition {self.number}{told}"

    def step(self, node: Node) -> int:
        """The step of colour of a state, 0 to 4, by its share of all objects; 0 where nobody counted."""
        share = (node.objects or 0) / (self.objects or 1)
        return next(step for step, upto in enumerate(SHARES) if share <= upto)


def picture_of(machine: str, defined: Defined, counts: Mapping[str, int] | None) -> Picture:
    """A definition, with the counts of its states where they are given. States without objects have 0.

    States that hold objects and are not in the definition come last, by name.
    """
    left = {one["from"] for one in defined.transitions}
    nodes = [
        Node(state, state == defined.initial_state, state not in left, objects=_many(counts, state))
        for state in defined.states
    ]
    known = set(defined.states)
    nodes += [
        Node(state, declared=False, objects=many)
        for state, many in sorted((counts or {}).items())
        if many and state not in known
    ]
    return Picture(machine, defined.number, tuple(nodes), tuple(_arrows(defined)))


def _arrows(defined: Defined) -> Iterator[Arrow]:
    for one in defined.transitions:
        yield Arrow(one["from"], one["to"], one.get("after"), one.get("metadata"))


def _many(counts: Mapping[str, int] | None, state: str) -> int | None:
    return None if counts is None else counts.get(state, 0)


def called(defined: Defined, from_state: str, to_state: str) -> list[Mapping[str, Any]]:
    """What is asked and called on a move, in the order of declaration (spec S2-27)."""
    return [
        one
        for one in defined.callbacks
        if one.get("from") in (None, from_state) and (not one.get("to") or to_state in one["to"])
    ]


def span(seconds: float) -> str:
    """A span in the largest units that say it whole: `3 d`, `1 h 30 min`, `0.5 s`."""
    whole, parts = int(seconds), []
    left = seconds - whole
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        many, whole = divmod(whole, size)
        parts += [f"{many} {unit}"] * bool(many)
    if whole or left or not parts:
        parts.append(f"{whole + left:.6f}".rstrip("0").rstrip(".") + " s")
    return " ".join(parts)


def amount(many: int, what: str) -> str:
    """How many, in words: `1 object`, `1,234 objects`."""
    return f"{many:,} {what}{'' if many == 1 else 's'}"


def printable(text: str) -> str:
    """The text without characters that act, or that a drawing may not hold."""
    return "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in text)
