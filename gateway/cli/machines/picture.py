"""The content of a machine's drawing or list: states, transitions, counts, colours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from ledger.machines.definition_stream import DefinitionState

SHARES: Final = (0.0, 0.05, 0.20, 0.50, 1.0)
"""Upper bounds of a state's share of all objects for each step of colour: none, few, some, many, most."""
RANKS: Final = 9
"""Maximum number of states in a row that Mermaid and Graphviz draw from left to right."""


@dataclass(frozen=True, slots=True)
class Node:
    """A state. objects: how many are in it, None if they were not counted. declared: whether the definition
    has it; old objects may be in states of earlier definitions.
    """

    state: str
    initial: bool = False
    terminal: bool = False
    declared: bool = True
    objects: int | None = None


@dataclass(frozen=True, slots=True)
class Arrow:
    """A transition. after: seconds until it is due by itself. metadata: the name of its model."""

    from_state: str
    to_state: str
    after: float | None = None
    metadata: str | None = None

    @property
    def label(self) -> str:
        """The text beside the arrow: the time after which it is due."""
        return "" if self.after is None else f"after {span(self.after)}"


@dataclass(frozen=True)
class Picture:
    """A machine under one of its definitions, with counts."""

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
        """The number of all objects."""
        return sum(node.objects or 0 for node in self.nodes)

    @property
    def title(self) -> str:
        """The machine, the definition and the number of objects, in one line."""
        told = f", {amount(self.objects, 'object')}" if self.counted else ""
        under = f"definition {self.number}" if self.number else "as moved"
        return f"{self.machine}, {under}{told}"

    @property
    def flows_down(self) -> bool:
        """Whether it is drawn from top to bottom, because it has too many states in a row."""
        following: dict[str, list[str]] = {}
        for arrow in self.arrows:
            following.setdefault(arrow.from_state, []).append(arrow.to_state)
        seen: set[str] = set()
        ranks = 0
        rank = [node.state for node in self.nodes if node.initial] or [node.state for node in self.nodes[:1]]
        while rank:
            ranks += 1
            seen.update(rank)
            further = dict.fromkeys(other for state in rank for other in following.get(state, ()))
            rank = [state for state in further if state not in seen]
        return ranks > RANKS

    def step(self, node: Node) -> int:
        """The colour of a state, 0 to 4, by its share of all objects; 0 if they were not counted."""
        share = (node.objects or 0) / (self.objects or 1)
        return next(step for step, upto in enumerate(SHARES) if share <= upto)


def picture_of(machine: str, defined: DefinitionState, counts: Mapping[str, int] | None) -> Picture:
    """The picture of a definition; a state without a count has 0 objects.

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


def _arrows(defined: DefinitionState) -> Iterator[Arrow]:
    for one in defined.transitions:
        yield Arrow(one["from"], one["to"], one.get("after"), one.get("metadata"))


def _many(counts: Mapping[str, int] | None, state: str) -> int | None:
    return None if counts is None else counts.get(state, 0)


def called(defined: DefinitionState, from_state: str, to_state: str) -> list[Mapping[str, Any]]:
    """The guards and callbacks of a move, in the order of declaration (spec S2-27)."""
    return [
        one
        for one in defined.callbacks
        if one.get("from") in (None, from_state) and (not one.get("to") or to_state in one["to"])
    ]


def span(seconds: float) -> str:
    """A time span in its largest whole units: `3 d`, `1 h 30 min`, `0.5 s`."""
    whole, parts = int(seconds), []
    left = seconds - whole
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        many, whole = divmod(whole, size)
        parts += [f"{many} {unit}"] * bool(many)
    if whole or left or not parts:
        parts.append(f"{whole + left:.6f}".rstrip("0").rstrip(".") + " s")
    return " ".join(parts)


def amount(many: int, what: str) -> str:
    """A number with its noun: `1 object`, `1,234 objects`."""
    return f"{many:,} {what}{'' if many == 1 else 's'}"


def printable(text: str) -> str:
    """The text without control characters and others that a drawing may not contain."""
    return "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in text)


class Scheme(NamedTuple):
    """The colours of a drawing. fills: by `Picture.step`; `text` is readable on each."""

    ground: str
    text: str
    line: str
    quiet: str
    fills: tuple[str, str, str, str, str]


LIGHT: Final = Scheme(
    "#ffffff", "#1b2733", "#4a5b6c", "#566675", ("#f4f6f8", "#dcebf7", "#b3d4ee", "#83b7e2", "#569ad2")
)
DARK: Final = Scheme(
    "#12181f", "#eef3f8", "#9db0c2", "#a3b3c2", ("#1d262f", "#1c3a54", "#1d4f7a", "#1f62a0", "#2a72b5")
)
UNDECLARED: Final = "#b4472f"
"""The border of states that hold objects and are not declared any more."""
STEPS: Final = ("none", "up to 5 %", "up to 20 %", "up to 50 %", "more")
"""The meaning of the fills, in the legend."""
