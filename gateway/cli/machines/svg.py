"""A machine as an SVG drawing, made without another program; it follows the reader's light or dark mode."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final, NamedTuple
from xml.sax.saxutils import escape, quoteattr

from .layout import Cell, Edge, Layout, Route, laid_out
from .picture import DARK, LIGHT, STEPS, UNDECLARED, Node, Picture, Scheme, amount, printable

MARGIN: Final = 24.0
TITLE: Final = 34.0
"""Height of the line with the title."""
LEGEND: Final = 44.0
"""Height of the legend with the space above it."""
BEGIN: Final = 34.0
"""Space for the dot before the initial state, and its arrow."""
LOOP: Final = 30.0
"""Space of a transition from a state to itself, above its box or beside it; a label adds to it."""
LABEL: Final = 14.0
WIDE: Final = 1600.0
"""Width above which a drawing flows down, because pages scroll down, and seldom to the right."""
LONGEST: Final = 36
"""Maximum characters of a drawn name; a longer one is cut in the middle, and complete in its tooltip."""


def svg(picture: Picture, flow: Flow | None = None) -> str:
    """The text of an SVG file. The same picture gives the same text. flow: by default the one that fits."""
    drawing = _Drawing(picture, flow or Flow())
    if flow is None and drawing.width > WIDE:
        drawing = min(drawing, _Drawing(picture, Flow(down=True)), key=lambda one: one.width)
    return drawing.text()


class _Drawing:
    """One drawing: sizes, places, and the elements of the SVG."""

    def __init__(self, picture: Picture, flow: Flow) -> None:
        self.picture, self.flow = picture, flow
        numbers = {node.state: nth for nth, node in enumerate(picture.nodes)}
        self.labels = {
            (numbers[arrow.from_state], numbers[arrow.to_state]): arrow.label for arrow in picture.arrows
        }
        first = next((nth for nth, node in enumerate(picture.nodes) if node.initial), None)
        self.initial = first
        self.sizes = [self._size(nth, node) for nth, node in enumerate(picture.nodes)]
        self.layout: Layout = laid_out(
            [self._room(nth) for nth in range(len(self.sizes))], list(self.labels), self._rooms(), first,
            44.0 if flow.down else 80.0,
        )  # fmt: skip
        self.start, self.side = MARGIN + BEGIN, MARGIN + TITLE
        if flow.down:
            self.start, self.side = MARGIN + TITLE + BEGIN, MARGIN
        self.ports = self._ports(0), self._ports(1)
        self.legend = list(_legend(picture))
        least = max(BOLD * text_width(picture.title, 16), sum(width for _, _, width in self.legend))
        ends = self.start + self.layout.width, self.side + self.layout.height
        right, bottom = ends[::-1] if flow.down else ends
        self.width = ceil(max(right, MARGIN + least) + MARGIN)
        self.height = ceil(bottom + LEGEND + MARGIN)

    def _room(self, nth: int) -> tuple[float, float]:
        """The space of a box along the flow and across it, with the transition to itself."""
        width, height = self.sizes[nth]
        beside = self._beside(nth)
        return (height, width + beside) if self.flow.down else (width, height + beside)

    def _rooms(self) -> dict[Edge, tuple[float, float]]:
        """The space of each label: beside a line that runs to the right, or on one that runs down."""
        wide = {edge: text_width(label, 11) + 8 for edge, label in self.labels.items() if label}
        return {edge: (LABEL + 6, one) if self.flow.down else (one, 2 * LABEL) for edge, one in wide.items()}

    def _size(self, nth: int, node: Node) -> tuple[float, float]:
        lines = [text_width(short(node.state), 14), text_width(_count(node), 12)]
        ends = sum((one == nth) + (other == nth) for one, other in self.labels)
        if self.flow.down:
            return max(72.0, max(lines) + 28, min(240.0, 7.0 * ends + 10)), 46.0
        if loop := self.labels.get((nth, nth)):
            lines.append(text_width(loop, 11))
        return max(72.0, max(lines) + 28), max(46.0, min(240.0, 7.0 * ends + 10))

    def _beside(self, nth: int) -> float:
        """Space above a box, or at its right, for the transition to itself."""
        label = self.labels.get((nth, nth))
        if label is None:
            return 0.0
        return LOOP + (text_width(label, 11) if self.flow.down else LABEL) * bool(label)

    def box(self, cell: Cell) -> Box:
        """The place of a state's box on the canvas."""
        assert cell.node is not None
        (width, height), beside = self.sizes[cell.node], self._beside(cell.node)
        along, across = self.start + cell.x, self._across(cell)
        if self.flow.down:
            left, top = across - cell.height / 2, along - height / 2
        else:
            left, top = along - width / 2, across - cell.height / 2 + beside
        return Box(left, top, left + width, top + height)

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        size = f'width="{self.width}" height="{self.height}"'
        view = f'viewBox="0 0 {self.width} {self.height}"'
        title = printable(self.picture.title)
        yield f'<svg xmlns="http://www.w3.org/2000/svg" class="machine" {size} {view} role="img">'
        yield f"<title>{escape(title)}</title>"
        yield f"<style>\n{style(LIGHT)}\n@media (prefers-color-scheme: dark) {{"
        yield f"{style(DARK)}\n}}\n</style>"
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
        told = _count(node)
        x, y = box.middle
        kinds = "state" if node.declared else "state gone"
        yield f"<g><title>{escape(_tooltip(self.picture, node))}</title>"
        yield rect(f"{kinds} share{self.picture.step(node)}", box, 9)
        if node.terminal:
            yield rect("inner", Box(box.left + 3, box.top + 3, box.right - 3, box.bottom - 3), 6)
        yield text_at("name", x, y - 2 if told else y + 5, short(node.state))
        if told:
            yield text_at("many", x, y + 15, told)
        yield "</g>"
        if node.initial:
            begin, across = self.flow.span(box)[0], x if self.flow.down else y
            cx, cy = (x, begin - 24) if self.flow.down else (begin - 24, y)
            yield f'<circle class="head" cx="{cx:.1f}" cy="{cy:.1f}" r="6"/>'
            yield f'<path class="line" d="{self.flow.path([(begin - 18, across, begin - HEAD)])}"/>'
            yield self.flow.head(begin, across, 1)

    def _arrow(self, edge: Edge, route: Route) -> Iterator[str]:
        """A line through the cells of a route: level within a column, and curved between two."""
        far = self.flow.span(self.box(route.cells[0]))[1]
        near = self.flow.span(self.box(route.cells[-1]))[0]
        start, end = self.ports[0][edge], self.ports[1][edge]
        at = far + HEAD * route.turned
        to, begin = near - HEAD * (not route.turned), self._edge(route.cells[-1], -1)
        levels = [(at, start, max(at, self._edge(route.cells[0], 1)))]
        levels += [
            (self._edge(cell, -1), self._across(cell), self._edge(cell, 1))
            for cell in route.cells[1:-1]
            if cell.column  # a column of lines only has no boxes to pass
        ]
        levels += [(min(begin, to), end, to)]
        yield f'<path class="line" d="{self.flow.path(levels)}"/>'
        yield self.flow.head(far, start, -1) if route.turned else self.flow.head(near, end, 1)
        if label := self.labels[edge]:
            along, across = self.start + route.label.x, self._across(route.label)
            x, y = (across, along + 4) if self.flow.down else (along, across - 4)
            if self.flow.down:  # the label is on the line, and interrupts it
                half = text_width(label, 11) / 2 + 2
                yield rect("ground", Box(x - half, y - 11, x + half, y + 3), 0)
            yield text_at("label", x, y, label)

    def _loop(self, box: Box, label: str) -> Iterator[str]:
        """A transition from a state to itself: above its box, or at its right if the drawing flows down."""
        if self.flow.down:
            y, right, far = box.middle[1], box.right, box.right + LOOP
            ends = f"{far:.1f} {y + 26:.1f} {right + HEAD:.1f} {y + 12:.1f}"
            yield f'<path class="line" d="M{right:.1f} {y - 12:.1f}C{far:.1f} {y - 26:.1f} {ends}"/>'
            yield Flow().head(right, y + 12, -1)
            place = (far - 4 + text_width(label, 11) / 2, y + 4)
        else:
            x, top, high = box.middle[0], box.top, box.top - LOOP
            ends = f"{x - 30:.1f} {high:.1f} {x - 16:.1f} {top - HEAD:.1f}"
            yield f'<path class="line" d="M{x + 16:.1f} {top:.1f}C{x + 30:.1f} {high:.1f} {ends}"/>'
            yield Flow(down=True).head(top, x - 16, 1)
            place = (x, high + 3)
        if label:
            yield text_at("label", *place, label)

    def _ports(self, side: int) -> dict[Edge, float]:
        """At which place across each edge meets the box at its first end (0) or its last (1): edges of one
        side of a box share it in the order of where they go."""
        ends: dict[Cell, list[tuple[float, Edge]]] = defaultdict(list)
        for edge, route in self.layout.routes.items():
            ends[route.cells[-side]].append((route.cells[-2 if side else 1].y, edge))
        found: dict[Edge, float] = {}
        for cell, its in ends.items():
            begin, end = self.flow.breadth(self.box(cell))
            step = min(14.0, (end - begin - 16) / max(1, len(its) - 1))
            for nth, (_, edge) in enumerate(sorted(its)):
                found[edge] = (begin + end) / 2 + (nth - (len(its) - 1) / 2) * step
        return found

    def _edge(self, cell: Cell, side: int) -> float:
        """Where the column of a cell begins (-1) or ends (1), along the flow."""
        return self.start + cell.x + side * cell.column / 2

    def _across(self, cell: Cell) -> float:
        return self.side + cell.y

    def _legend(self) -> Iterator[str]:
        x, y = MARGIN, self.height - MARGIN
        for kind, told, width in self.legend:
            box = Box(x, y - 13, x + 20, y + 1)
            if kind == "begin":
                yield f'<circle class="head" cx="{x + 14:.1f}" cy="{y - 6:.1f}" r="6"/>'
            elif kind:
                yield rect(f"state {kind}".replace(" inner", ""), box, 4)
            if kind.endswith("inner"):
                yield rect("inner", Box(box.left + 3, box.top + 3, box.right - 3, box.bottom - 3), 2)
            yield f'<text class="key" x="{x + (26 if kind else 0):.1f}" y="{y - 2:.1f}">{escape(told)}</text>'
            x += width


def _legend(picture: Picture) -> Iterator[tuple[str, str, float]]:
    """The legend: the class of each sign, its meaning, and the width of both."""
    says = [("", "share of the objects:")] * picture.counted
    says += [(f"share{step}", told) for step, told in enumerate(STEPS)] if picture.counted else []
    says += [("begin", "initial")] * any(node.initial for node in picture.nodes)
    says += [("share0 inner", "terminal")] * any(node.terminal for node in picture.nodes)
    says += [("gone share0", "not declared")] * any(not node.declared for node in picture.nodes)
    for kind, told in says:
        yield kind, told, text_width(told, 11) + (26 if kind else 0) + 14


def short(state: str) -> str:
    """A state's name as it is drawn."""
    text = printable(state)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 13]}…{text[-12:]}"


def _count(node: Node) -> str:
    return "" if node.objects is None else f"{node.objects:,}"


def _tooltip(picture: Picture, node: Node) -> str:
    """The whole name, and the number of objects in words."""
    if node.objects is None:
        return printable(node.state)
    share = node.objects / (picture.objects or 1)
    return f"{printable(node.state)}: {amount(node.objects, 'object')}, {share:.1%}"


HEAD: Final = 8.0
"""Length of an arrow's head."""

# Widths of letters of DejaVu Sans, one of the widest that readers have, in ems; other ASCII is 0.66 at most.
_WIDTHS: Final = {
    **dict.fromkeys("iIjl'|.,:;", 0.36), **dict.fromkeys(" !frt()[]-/\\", 0.42),
    **dict.fromkeys("_\"J`", 0.52), **dict.fromkeys("mwMW@%+=<>~^#", 1.0),
    **dict.fromkeys("ABCDEFGHKLNOPQRSTUVXYZ&", 0.79),
}  # fmt: skip
BOLD: Final = 1.15
"""Factor by which bold text is wider."""


class Box(NamedTuple):
    """A state's box: its corners, and the y of its transition to itself, which is above it."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def middle(self) -> tuple[float, float]:
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2


def text_width(text: str, size: float) -> float:
    """The approximate width of a text, rather too large than too small."""
    ems = (
        1.1 if unicodedata.east_asian_width(one) in "WF" else _WIDTHS.get(one, 0.66 if one < "\x7f" else 1.0)
        for one in text
        if not unicodedata.combining(one)
    )
    return size * sum(ems)


@dataclass(frozen=True, slots=True)
class Flow:
    """The direction of a drawing's arrows."""

    down: bool = False

    def span(self, box: Box) -> tuple[float, float]:
        """Where a box begins and ends along the flow."""
        return (box.top, box.bottom) if self.down else (box.left, box.right)

    def breadth(self, box: Box) -> tuple[float, float]:
        """Where it begins and ends across the flow."""
        return (box.left, box.right) if self.down else (box.top, box.bottom)

    def path(self, levels: Sequence[tuple[float, float, float]]) -> str:
        """A line along levels (from, place across, to), curved from each to the next."""
        along, across, out = levels[0]
        parts = [f"M{self._place(along, across)}{self._level(out)}"]
        for into, level, beyond in levels[1:]:
            bend = (out + into) / 2
            ends = (self._place(bend, across), self._place(bend, level), self._place(into, level))
            parts.append(f"C{' '.join(ends)}{self._level(beyond)}")
            across, out = level, beyond
        return "".join(parts)

    def head(self, along: float, across: float, way: int) -> str:
        """The head of an arrow with its tip at a place; way: 1 with the flow, -1 against it."""
        back = f"{-way * HEAD:.0f}"
        sides = f"l-4 {back}h8z" if self.down else f"l{back} -4v8z"
        return f'<path class="head" d="M{self._place(along, across)}{sides}"/>'

    def _place(self, along: float, across: float) -> str:
        return f"{across:.1f} {along:.1f}" if self.down else f"{along:.1f} {across:.1f}"

    def _level(self, along: float) -> str:
        return f"{'V' if self.down else 'H'}{along:.1f}"


def rect(kind: str, box: Box, round_: float) -> str:
    """A rectangle, with corners of this radius."""
    place = f'x="{box.left:.1f}" y="{box.top:.1f}" rx="{round_}"'
    size = f'width="{box.right - box.left:.1f}" height="{box.bottom - box.top:.1f}"'
    return f"<rect class={quoteattr(kind)} {place} {size}/>"


def text_at(kind: str, x: float, y: float, text: str) -> str:
    """A text; its class determines its alignment at the place."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def style(scheme: Scheme) -> str:
    """The style of a drawing in light or dark mode."""
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
