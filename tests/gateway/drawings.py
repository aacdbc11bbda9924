"""Machines of many shapes, and a check of their drawings: nothing overlaps, nothing leaves the canvas."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from gateway.cli.machines.picture import Arrow, Node, Picture
from gateway.cli.machines.svg import text_width

SPACE = "{http://www.w3.org/2000/svg}"
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
SIZES = {"title": 16, "name": 14, "many": 12, "label": 11, "key": 11}
ODD = ('a"b<c>&d', "日本語の状態", "x" * 200, "back\\slash; # : %", "{}", "--> [*]", "]]>", "名 `a` *b* _c_")


def picture(
    states: Sequence[str], arrows: Sequence[tuple[int, int]], objects: Sequence[int | None] = ()
) -> Picture:
    """A machine of these states; every third arrow is due by itself."""
    many = [*objects, *[0] * len(states)] if objects else [None] * len(states)
    left = {one for one, _ in arrows}
    nodes = [Node(state, nth == 0, nth not in left, objects=many[nth]) for nth, state in enumerate(states)]
    made = [
        Arrow(states[one], states[other], 3600.0 * (nth + 1) if nth % 3 == 0 else None)
        for nth, (one, other) in enumerate(dict.fromkeys(arrows))
    ]
    return Picture("made", 3, tuple(nodes), tuple(made))


def numbered(count: int) -> list[str]:
    return [f"state_{nth:02d}" for nth in range(count)]


SHAPES = {
    "one": picture(["alone"], [], [1]),
    "itself": picture(["alone"], [(0, 0)], [1]),
    "chain": picture(numbered(60), [(nth, nth + 1) for nth in range(59)], [*range(60)]),
    "ring": picture(numbered(12), [(nth, (nth + 1) % 12) for nth in range(12)]),
    "star": picture(numbered(60), [*((0, nth) for nth in range(1, 60)), *((nth, 0) for nth in range(1, 30))]),
    "every": picture(numbered(8), [(one, other) for one in range(8) for other in range(8)], [5] * 8),
    "alone": picture(numbered(9), [(0, 1), (5, 1), (1, 0)], [7]),
    "odd": picture(ODD, [(nth, (nth * 3 + 1) % len(ODD)) for nth in range(len(ODD))], [10**12]),
    "two ways": picture(["on", "off"], [(0, 1), (1, 0), (0, 0), (1, 1)], [3, 4]),
}


class Rect(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Rect) -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    def within(self, other: Rect) -> bool:
        return (
            other.left <= self.left
            and self.right <= other.right
            and other.top <= self.top
            and self.bottom <= other.bottom
        )


def rect(element: ET.Element) -> Rect:
    x, y, width, height = (float(element.attrib[name]) for name in ("x", "y", "width", "height"))
    return Rect(x, y, x + width, y + height)


def boxes(root: ET.Element) -> list[Rect]:
    """The boxes of the states: the first rectangle of each group."""
    return [rect(group.findall(f"{SPACE}rect")[0]) for group in root.findall(f"{SPACE}g")]


def texts(root: ET.Element) -> dict[str, list[Rect]]:
    """Where each text stands, by its class."""
    found: dict[str, list[Rect]] = {kind: [] for kind in SIZES}
    for one in root.iter(f"{SPACE}text"):
        kind, x, y = one.attrib["class"], float(one.attrib["x"]), float(one.attrib["y"])
        wide = text_width(one.text or "", SIZES[kind])
        start = x if kind in ("title", "key") else x - wide / 2
        found[kind].append(Rect(start, y - SIZES[kind], start + wide, y + SIZES[kind] * 0.3))
    return found


def points(path: str) -> list[tuple[float, float]]:
    """Points of a line of ours, which has only M, H, V and C with absolute places, nearly where it runs."""
    found: list[tuple[float, float]] = []
    for command, rest in re.findall(r"([MHVC])([^MHVC]*)", path):
        numbers = [float(one) for one in NUMBER.findall(rest)]
        if command == "M":
            found.append((numbers[0], numbers[1]))
        elif command in "HV":
            (x, y), to = found[-1], numbers[0]
            dx, dy = (to - x, 0.0) if command == "H" else (0.0, to - y)
            found += [(x + dx * nth / 8, y + dy * nth / 8) for nth in range(1, 9)]
        else:
            start = found[-1]
            ends = [start, (numbers[0], numbers[1]), (numbers[2], numbers[3]), (numbers[4], numbers[5])]
            found += [_bezier(ends, nth / 12) for nth in range(1, 13)]
    return found


def _bezier(ends: Sequence[tuple[float, float]], t: float) -> tuple[float, float]:
    parts = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
    x, y = (sum(part * end[axis] for part, end in zip(parts, ends, strict=True)) for axis in (0, 1))
    return x, y


def check(text: str, one: Picture) -> None:
    """Nothing overlaps that should not, and all of it is on the canvas."""
    root = ET.fromstring(text)
    canvas = Rect(*(float(number) for number in root.attrib["viewBox"].split()))
    found = boxes(root)
    assert len(found) == len(one.nodes)
    for first, other in combinations(found, 2):
        assert not first.overlaps(other), (first, other)
    written = texts(root)
    for place in [*found, *(place for places in written.values() for place in places)]:
        assert place.within(canvas), place
    for first, other in combinations([*written["label"], *written["key"], *written["title"]], 2):
        assert not first.overlaps(other), (first, other)
    for label in written["label"]:
        assert not any(label.overlaps(box) for box in found), label
    for place, box in zip(written["name"], found, strict=True):
        assert place.within(box), (place, box)
    inside = [Rect(box.left + 1, box.top + 1, box.right - 1, box.bottom - 1) for box in found]
    for line in root.findall(f"{SPACE}path[@class='line']"):
        for x, y in points(line.attrib["d"]):
            point = Rect(x, y, x, y)
            assert point.within(canvas), point
            assert not any(box.overlaps(point) for box in inside), point
