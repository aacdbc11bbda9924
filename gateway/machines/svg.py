"""A machine as an SVG drawing, made without any other program; it follows the reader's light or dark."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import ceil
from typing import Final, NamedTuple
from xml.sax.saxutils import escape, quoteattr

from .colors import DARK, LIGHT, STEPS, UNDECLARED, Scheme
from .layout import Cell, Edge, Layout, Route, laid_out
from .picture import Node, Picture, amount, printable

MARGIN: Final = 24.0
TITLE: Final = 34.0
"""Height of the line with the title."""
LEGEND: Final = 44.0
"""Height of the legend with the room above it."""
BEGIN: Final = 34.0
"""Room for the dot at the left of the initial state, and its arrow."""
LOOP: Final = 30.0
"""Height of a transition from a state to itself, above its box; with a label so much more."""
LABEL: Final = 14.0
HEAD: Final = 8.0
"""Length of an arrow's head."""
LONGEST: Final = 36
"""Characters of a name that are drawn; a longer one is shortened in the middle, and whole in its tooltip."""

# Widths of letters of DejaVu Sans, one of the widest that readers have, in ems; other ASCII is 0.66 at most.
_WIDTHS: Final = {
    **dict.fromkeys("iIjl'|.,:;", 0.36), **dict.fromkeys(" !frt()[]-/\\", 0.42),
    **dict.fromkeys("_\"J`", 0.52), **dict.fromkeys("mwMW@%+=<>~^#", 1.0),
    **dict.fromkeys("ABCDEFGHKLNOPQRSTUVXYZ&", 0.79),
}  # fmt: skip
BOLD: Final = 1.15
"""How much wider bold text is."""


class Box(NamedTuple):
    """A state's box: its corners, and the y of its transition to itself, which is above it."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def middle(self) -> tuple[float, float]:
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2


def svg(picture: Picture) -> str:
    """The text of an SVG file. The same picture gives the same text."""
    return _Drawing(picture).text()


def text_width(text: str, size: float) -> float:
    """About how wide a text is, rather too much than too little."""
    ems = (
        1.1 if unicodedata.east_asian_width(one) in "WF" else _WIDTHS.get(one, 0.66 if one < "\x7f" else 1.0)
        for one in text
        if not unicodedata.combining(one)
    )
    return size * sum(ems)


class _Drawing:
    """One picture on its way to a drawing: sizes, places, and then the text."""

    def __init__(self, picture: Picture) -> None:
        self.picture = picture
        numbers = {node.state: nth for nth, node in enumerate(picture.nodes)}
        self.labels = {
            (numbers[arrow.from_state], numbers[arrow.to_state]): arrow.label for arrow in picture.arrows
        }
        first = next((nth for nth, node in enumerate(picture.nodes) if node.initial), None)
        self.initial = first
        self.sizes = [self._size(nth, node) for nth, node in enumerate(picture.nodes)]
        cells = [(width, height + self._above(nth)) for nth, (width, height) in enumerate(self.sizes)]
        rooms = {edge: (text_width(label, 11) + 8, 2 * LABEL) for edge, label in self.labels.items() if label}
        self.layout: Layout = laid_out(cells, list(self.labels), rooms, first)
        self.left = MARGIN + BEGIN
        self.ports = self._ports(0), self._ports(1)
        self.legend = list(_legend(picture))
        least = max(BOLD * text_width(picture.title, 16), sum(width for _, _, width in self.legend))
        self.width = ceil(max(self.left + self.layout.width, MARGIN + least) + MARGIN)
        self.height = ceil(MARGIN + TITLE + self.layout.height + LEGEND + MARGIN)

    def _size(self, nth: int, node: Node) -> tuple[float, float]:
        lines = [text_width(short(node.state), 14), text_width(_told(node), 12)]
        ends = sum((one == nth) + (other == nth) for one, other in self.labels)
        if loop := self.labels.get((nth, nth)):
            lines.append(text_width(loop, 11))
        return max(72.0, max(lines) + 28), max(46.0, min(240.0, 7.0 * ends + 10))

    def _above(self, nth: int) -> float:
        """Room above a box, for the transition to itself."""
        return 0.0 if (nth, nth) not in self.labels else LOOP + LABEL * bool(self.labels[nth, nth])

    def box(self, cell: Cell) -> Box:
        """Where a state's box lies on the canvas."""
        assert cell.node is not None
        (width, _), above = self.sizes[cell.node], self._above(cell.node)
        x, y = self.left + cell.x, MARGIN + TITLE + cell.y
        return Box(x - width / 2, y - cell.height / 2 + above, x + width / 2, y + cell.height / 2)

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        size = f'width="{self.width}" height="{self.height}"'
        view = f'viewBox="0 0 {self.width} {self.height}"'
        title = printable(self.picture.title)
        yield f'<svg xmlns="http://www.w3.org/2000/svg" class="machine" {size} {view} role="img">'
        yield f"<title>{escape(title)}</title>"
        yield f"<style>\n{_style(LIGHT)}\n@media (prefers-color-scheme: dark) {{"
        yield f"{_style(DARK)}\n}}\n</style>"
        yield '<rect class="ground" width="100%" height="100%"/>'
        yield f'<text class="title" x="{MARGIN:.1f}" y="{MARGIN + 14:.1f}">{escape(title)}</text>'
        for edge, route in self.layout.routes.items():
            yield from self._arrow(edge, route)
        for cell, node in zip(self.layout.boxes, self.picture.nodes, strict=True):
            yield from self._state(self.box(cell), node)
            if (cell.node, cell.node) in self.labels:
                yield from self._loop(self.box(cell), self.labels[cell.node, cell.node])  # type: ignore[index]
        yield from self._legend()
        yield "</svg>"

    def _state(self, box: Box, node: Node) -> Iterator[str]:
        told = _told(node)
        x, y = box.middle
        kinds = "state" if node.declared else "state gone"
        yield f"<g><title>{escape(_tooltip(self.picture, node))}</title>"
        yield _rect(f"{kinds} share{self.picture.step(node)}", box, 9)
        if node.terminal:
            yield _rect("inner", Box(box.left + 3, box.top + 3, box.right - 3, box.bottom - 3), 6)
        yield _text("name", x, y - 2 if told else y + 5, short(node.state))
        if told:
            yield _text("many", x, y + 15, told)
        yield "</g>"
        if node.initial:
            yield f'<circle class="head" cx="{box.left - 24:.1f}" cy="{y:.1f}" r="6"/>'
            yield f'<path class="line" d="M{box.left - 18:.1f} {y:.1f}H{box.left - HEAD:.1f}"/>'
            yield _head(box.left, y, 1)

    def _arrow(self, edge: Edge, route: Route) -> Iterator[str]:
        """A line through the cells of a route: level within a column, and bent between two."""
        first, last = (self.box(cell) for cell in (route.cells[0], route.cells[-1]))
        start, end = self.ports[0][edge], self.ports[1][edge]
        x = first.right + HEAD * route.turned
        right, left = last.left - HEAD * (not route.turned), self._edge(route.cells[-1], -1)
        levels = [(x, start, max(x, self._edge(route.cells[0], 1)))]
        levels += [
            (self._edge(cell, -1), self._y(cell), self._edge(cell, 1))
            for cell in route.cells[1:-1]
            if cell.column  # in a column of lines only there is nothing to pass by
        ]
        levels += [(min(left, right), end, right)]
        yield f'<path class="line" d="{_path(levels)}"/>'
        yield _head(first.right, start, -1) if route.turned else _head(last.left, end, 1)
        if label := self.labels[edge]:
            yield _text("label", self.left + route.label.x, self._y(route.label) - 4, label)

    def _loop(self, box: Box, label: str) -> Iterator[str]:
        x, top, high = box.middle[0], box.top, box.top - LOOP
        ends = f"{x - 30:.1f} {high:.1f} {x - 16:.1f} {top - HEAD:.1f}"
        yield f'<path class="line" d="M{x + 16:.1f} {top:.1f}C{x + 30:.1f} {high:.1f} {ends}"/>'
        yield f'<path class="head" d="M{x - 16:.1f} {top:.1f}l-4 -{HEAD:.0f}h8z"/>'
        if label:
            yield _text("label", x, high + 3, label)

    def _ports(self, side: int) -> dict[Edge, float]:
        """At which height each edge meets the box at its left end (0) or its right end (1): the edges of one
        side of a box share it in the order of where they go."""
        ends: dict[Cell, list[tuple[float, Edge]]] = defaultdict(list)
        for edge, route in self.layout.routes.items():
            ends[route.cells[-side]].append((route.cells[-2 if side else 1].y, edge))
        found: dict[Edge, float] = {}
        for cell, its in ends.items():
            box = self.box(cell)
            step = min(14.0, (box.bottom - box.top - 16) / max(1, len(its) - 1))
            for nth, (_, edge) in enumerate(sorted(its)):
                found[edge] = box.middle[1] + (nth - (len(its) - 1) / 2) * step
        return found

    def _edge(self, cell: Cell, side: int) -> float:
        """Where the column of a cell ends, at its left or its right."""
        return self.left + cell.x + side * cell.column / 2

    def _y(self, cell: Cell) -> float:
        return MARGIN + TITLE + cell.y

    def _legend(self) -> Iterator[str]:
        x, y = MARGIN, self.height - MARGIN
        for kind, told, width in self.legend:
            box = Box(x, y - 13, x + 20, y + 1)
            if kind == "begin":
                yield f'<circle class="head" cx="{x + 14:.1f}" cy="{y - 6:.1f}" r="6"/>'
            elif kind:
                yield _rect(f"state {kind}".replace(" inner", ""), box, 4)
            if kind.endswith("inner"):
                yield _rect("inner", Box(box.left + 3, box.top + 3, box.right - 3, box.bottom - 3), 2)
            yield f'<text class="key" x="{x + (26 if kind else 0):.1f}" y="{y - 2:.1f}">{escape(told)}</text>'
            x += width


def _legend(picture: Picture) -> Iterator[tuple[str, str, float]]:
    """What the legend says: the class of a sign, its meaning, and the room of both."""
    says = [("", "share of the objects:")] * picture.counted
    says += [(f"share{step}", told) for step, told in enumerate(STEPS)] if picture.counted else []
    says += [("begin", "initial")] * any(node.initial for node in picture.nodes)
    says += [("share0 inner", "terminal")] * any(node.terminal for node in picture.nodes)
    says += [("gone share0", "not declared")] * any(not node.declared for node in picture.nodes)
    for kind, told in says:
        yield kind, told, text_width(told, 11) + (26 if kind else 0) + 14


def _style(scheme: Scheme) -> str:
    fills = "\n".join(f".machine .share{step} {{ fill: {fill} }}" for step, fill in enumerate(scheme.fills))
    return f""".machine text {{ font: 11px Helvetica, Arial, "DejaVu Sans", sans-serif; fill: {scheme.text} }}
.machine .title {{ font-size: 16px; font-weight: bold }}
.machine .name {{ font-size: 14px; text-anchor: middle }}
.machine .many {{ font-size: 12px; text-anchor: middle }}
.machine .label {{ text-anchor: middle; fill: {scheme.quiet} }}
.machine .key {{ fill: {scheme.quiet} }}
.machine .ground {{ fill: {scheme.ground} }}
.machine .state {{ stroke: {scheme.line}; stroke-width: 1.2 }}
.machine .gone {{ stroke: {UNDECLARED}; stroke-dasharray: 4 3 }}
.machine .inner, .machine .line {{ fill: none; stroke: {scheme.line} }}
.machine .line {{ stroke-width: 1.3 }}
.machine .head {{ fill: {scheme.line} }}
{fills}"""


def _rect(kind: str, box: Box, round_: float) -> str:
    place = f'x="{box.left:.1f}" y="{box.top:.1f}" rx="{round_}"'
    size = f'width="{box.right - box.left:.1f}" height="{box.bottom - box.top:.1f}"'
    return f"<rect class={quoteattr(kind)} {place} {size}/>"


def _text(kind: str, x: float, y: float, text: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _path(levels: Sequence[tuple[float, float, float]]) -> str:
    """A line along levels (from x, at y, to x), bent from each to the next."""
    x, y, out = levels[0]
    parts = [f"M{x:.1f} {y:.1f}H{out:.1f}"]
    for into, level, beyond in levels[1:]:
        bend = (out + into) / 2
        parts.append(f"C{bend:.1f} {y:.1f} {bend:.1f} {level:.1f} {into:.1f} {level:.1f}H{beyond:.1f}")
        y, out = level, beyond
    return "".join(parts)


def _head(x: float, y: float, way: int) -> str:
    """The head of an arrow whose tip is at a place; way: 1 to the right, -1 to the left."""
    return f'<path class="head" d="M{x:.1f} {y:.1f}l{-way * HEAD:.0f} -4v8z"/>'


def short(state: str) -> str:
    """A state's name as it is drawn."""
    text = printable(state)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 13]}…{text[-12:]}"


def _told(node: Node) -> str:
    return "" if node.objects is None else f"{node.objects:,}"


def _tooltip(picture: Picture, node: Node) -> str:
    """The whole name, and in words how many objects are in it."""
    if node.objects is None:
        return printable(node.state)
    share = node.objects / (picture.objects or 1)
    return f"{printable(node.state)}: {amount(node.objects, 'object')}, {share:.1%}"
