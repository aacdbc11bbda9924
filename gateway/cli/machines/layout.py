"""A layered layout of a small directed graph: columns from left to right, so that most arrows point right.

Ranks by the longest path, back edges reversed, order in the columns by barycenters, heights by least squares.
The same graph gives the same places. Lengths are in pixels, y grows downwards.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

SWEEPS: Final = 16
"""How often the order in the columns is improved; less often for graphs with very many arrows."""
WORK: Final = 60_000
"""About how many cells are ordered in all sweeps together, at most."""
ROUNDS: Final = 12
"""How often heights are moved towards those of the neighbours."""
GAP: Final = 12.0
"""Gap between two boxes of a column."""

Edge = tuple[int, int]


@dataclass(slots=True, eq=False)
class Cell:
    """A place in a column: the box of a node, or where an edge passes. x, y: of its centre."""

    rank: int
    width: float
    height: float
    node: int | None = None
    x: float = 0.0
    y: float = 0.0
    column: float = 0.0
    before: list[Cell] = field(default_factory=list)
    after: list[Cell] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Route:
    """The cells that an edge passes, from left to right. turned: it runs from right to left."""

    cells: tuple[Cell, ...]
    turned: bool

    @property
    def label(self) -> Cell:
        """The cell of its label: the one in the middle."""
        return self.cells[len(self.cells) // 2]


@dataclass(frozen=True)
class Layout:
    """The places of all cells. routes: of each edge except loops to the same node."""

    boxes: Sequence[Cell]
    routes: Mapping[Edge, Route]
    width: float
    height: float


def laid_out(
    boxes: Sequence[tuple[float, float]],
    edges: Sequence[Edge],
    labels: Mapping[Edge, tuple[float, float]],
    first: int | None = None,
    most: float = 80.0,
) -> Layout:
    """Places for boxes of given width and height. labels: the size of each edge's label.

    first: the leftmost node, from which the others are ranked. most: the largest gap between two columns.
    """
    straight = sorted({edge for edge in edges if edge[0] != edge[1]})
    turned = _turned(len(boxes), straight, first)
    ranks = _ranks(len(boxes), [edge[::-1] if edge in turned else edge for edge in straight], first)
    # Between two ranks of nodes is a rank of edges only, so that each edge has a cell of its own to pass.
    cells = [
        Cell(2 * rank, *size, node=nth) for nth, (rank, size) in enumerate(zip(ranks, boxes, strict=True))
    ]
    routes = {edge: _route(cells, edge, edge in turned, labels.get(edge)) for edge in straight}
    columns = _ordered(cells, list(routes.values()))
    for rounds in range(min(ROUNDS, max(2, WORK // sum(map(len, columns))))):
        _settle(columns if rounds % 2 == 0 else columns[::-1], forwards=rounds % 2 == 0)
    _settle(columns, forwards=None)
    width, height = _placed(columns, most)
    return Layout(cells, routes, width, height)


# Ranks


def _turned(count: int, edges: Sequence[Edge], first: int | None) -> set[Edge]:
    """The edges to reverse so that the graph has no cycles; all that lead to `first`."""
    following: dict[int, list[int]] = defaultdict(list)
    for one, other in edges:
        following[one].append(other)
    turned = {edge for edge in edges if edge[1] == first}
    done: set[int] = set()
    for start in ([] if first is None else [first]) + list(range(count)):
        if start in done:
            continue
        path, open_ = [(start, iter(following[start]))], {start}
        while path:
            node, rest = path[-1]
            further = next(rest, None)
            if further is None:
                path.pop()
                open_.discard(node)
                done.add(node)
            elif further in open_:
                turned.add((node, further))
            elif further not in done:
                path.append((further, iter(following[further])))
                open_.add(further)
    return turned


def _ranks(count: int, edges: Sequence[Edge], first: int | None) -> list[int]:
    """The longest path to each node; a node without one, except `first`, ranks just before the next."""
    before: dict[int, list[int]] = defaultdict(list)
    after: dict[int, list[int]] = defaultdict(list)
    for one, other in edges:
        before[other].append(one)
        after[one].append(other)
    ranks, waiting = [0] * count, [len(before[node]) for node in range(count)]
    ready = [node for node in range(count) if not waiting[node]]
    for node in ready:  # grows meanwhile
        for other in after[node]:
            ranks[other] = max(ranks[other], ranks[node] + 1)
            waiting[other] -= 1
            if not waiting[other]:
                ready.append(other)
    for node in range(count):
        if after[node] and not before[node] and node != first:
            ranks[node] = min(ranks[other] for other in after[node]) - 1
    return ranks


def _route(cells: Sequence[Cell], edge: Edge, turned: bool, label: tuple[float, float] | None) -> Route:
    left, right = (cells[node] for node in (edge[::-1] if turned else edge))
    passed = [left, *(Cell(rank, 0.0, GAP) for rank in range(left.rank + 1, right.rank)), right]
    if label is not None:
        middle = passed[len(passed) // 2]
        middle.width, middle.height = label
    for one, other in pairwise(passed):
        one.after.append(other)
        other.before.append(one)
    return Route(tuple(passed), turned)


# Order in the columns


def _ordered(boxes: Sequence[Cell], routes: Iterable[Route]) -> list[list[Cell]]:
    """The cells by columns, in the order with the fewest crossings that was found."""
    everyone = [*boxes, *(cell for route in routes for cell in route.cells[1:-1])]
    columns: list[list[Cell]] = [[] for _ in range(max((cell.rank for cell in everyone), default=0) + 1)]
    for cell in everyone:
        columns[cell.rank].append(cell)
    best, fewest = [list(column) for column in columns], _crossings(columns)
    for sweep in range(min(SWEEPS, max(2, WORK // len(everyone)))):
        if not fewest:
            break
        _sweep(columns, forwards=sweep % 2 == 0)
        crossings = _crossings(columns)
        if crossings < fewest:
            best, fewest = [list(column) for column in columns], crossings
    return best


def _sweep(columns: Sequence[list[Cell]], *, forwards: bool) -> None:
    """Order each column by the mean place of the neighbours in the column before it."""
    places: dict[Cell, float] = {}
    for column in columns if forwards else reversed(columns):
        now = {cell: float(nth) for nth, cell in enumerate(column)}
        for cell in column:
            near = cell.before if forwards else cell.after
            if near:
                now[cell] = sum(places[other] for other in near) / len(near)
        column.sort(key=now.__getitem__)
        size = max(1, len(column))
        places |= {cell: nth / size * 1000 for nth, cell in enumerate(column)}


def _crossings(columns: Sequence[Sequence[Cell]]) -> int:
    """How many pairs of edges cross."""
    many = 0
    for column in columns[1:]:
        place = {cell: nth for nth, cell in enumerate(column)}
        ends: dict[int, list[int]] = defaultdict(list)
        for cell in column:
            for other in cell.before:
                ends[id(other)].append(place[cell])
        seen: list[int] = []
        for other in columns[column[0].rank - 1] if column else ():
            reached = sorted(ends[id(other)])
            many += sum(len(seen) - bisect_left(seen, end + 1) for end in reached)
            for end in reached:
                insort(seen, end)
    return many


# Places


def _settle(columns: Sequence[Sequence[Cell]], *, forwards: bool | None) -> None:
    """Move each column towards its neighbours on one side, or on both, keeping its order and gaps."""
    for column in columns:
        wanted, weights = [], []
        tied = [cell.y for cell in column if cell.before or cell.after] or [0.0]
        for cell in column:
            near = cell.before * (forwards is not False) + cell.after * (forwards is not True)
            alone = not (cell.before or cell.after)  # has no neighbours
            still = sum(tied) / len(tied) if alone else cell.y
            wanted.append(sum(other.y for other in near) / len(near) if near else still)
            straight = cell.node is None and any(other.node is None for other in near)
            weights.append((4.0 if straight else 1.0) * len(near) if near else 1e-6 if alone else 0.1)
        for cell, y in zip(column, _apart(column, wanted, weights), strict=True):
            cell.y = y


def _apart(column: Sequence[Cell], wanted: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The heights nearest to the wanted ones, by least squares, at which no two cells overlap."""
    offsets, at = [], 0.0
    for nth, cell in enumerate(column):
        at += (column[nth - 1].height + cell.height) / 2 + GAP if nth else 0.0
        offsets.append(at)
    blocks: list[tuple[float, float, int]] = []  # mean, weight, cells: of those that push each other
    for want, offset, weight in zip(wanted, offsets, weights, strict=True):
        mean, many = want - offset, 1
        while blocks and blocks[-1][0] >= mean:
            other, its, cells = blocks.pop()
            mean = (mean * weight + other * its) / (weight + its)
            weight, many = weight + its, many + cells
        blocks.append((mean, weight, many))
    means = (mean for mean, _, cells in blocks for _ in range(cells))
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]


def _placed(columns: Sequence[Sequence[Cell]], most: float) -> tuple[float, float]:
    """Set the x of every cell, and let y begin at 0. Returns the width and the height of the layout."""
    cells = [cell for column in columns for cell in column]
    top = min((cell.y - cell.height / 2 for cell in cells), default=0.0)
    x = 0.0
    for column in columns:
        width = max((cell.width for cell in column), default=0.0)
        steep = max((abs(cell.y - other.y) for cell in column for other in cell.before), default=0.0)
        x += min(most, max(26.0, steep / 5)) if x else 0.0
        for cell in column:
            cell.x, cell.column, cell.y = x + width / 2, width, cell.y - top
        x += width
    return x, max((cell.y + cell.height / 2 for cell in cells), default=0.0)
