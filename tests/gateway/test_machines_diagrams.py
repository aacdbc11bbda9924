"""`pledger machines diagram`: Mermaid, DOT and SVG of machines of every shape; no two boxes overlap."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.cli.errors import Code
from gateway.cli.machines.diagram import FORMATS, drawn
from gateway.cli.machines.layout import laid_out
from gateway.cli.machines.picture import DARK, LIGHT, Node, Picture
from gateway.cli.machines.svg import LONGEST, Flow, short, svg
from ledger import Ledger
from tests.gateway.conftest import Ended, environment
from tests.gateway.drawings import ODD, SHAPES, SPACE, boxes, check, numbered, picture
from tests.machines.payments import Payment

Pledger = Callable[..., Ended]


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_no_two_boxes_overlap_and_nothing_leaves_the_canvas(shape: str) -> None:
    one = SHAPES[shape]
    text = svg(one)
    check(text, one)
    for down in (False, True):
        check(svg(one, Flow(down)), one)
    lines = ET.fromstring(text).findall(f"{SPACE}path[@class='line']")
    assert len(lines) == len(one.arrows) + 1, "one for each transition, and that to the initial state"


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 12), st.randoms(use_true_random=False), st.booleans())
def test_of_any_shape(count: int, chance: random.Random, counted: bool) -> None:
    arrows = [(chance.randrange(count), chance.randrange(count)) for _ in range(chance.randrange(2 * count))]
    names = [f"{chance.choice(ODD)[:20]} {nth}" for nth in range(count)]
    one = picture(names, arrows, [chance.randrange(10**6) for _ in names] if counted else [])
    for down in (False, True):
        check(svg(one, Flow(down)), one)
    for kind in FORMATS:
        assert drawn(one, kind) == drawn(one, kind)


def test_every_process_draws_the_same_bytes() -> None:
    ours = [SHAPES["every"], SHAPES["odd"]]
    code = (
        "import hashlib\nfrom gateway.cli.machines.picture import *\n"
        "from gateway.cli.machines.diagram import *\n"
        f"texts = [drawn(one, kind) for one in {ours!r} for kind in FORMATS]\n"
        "print(hashlib.sha256(''.join(texts).encode()).hexdigest())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(PYTHONHASHSEED="5"), capture_output=True, text=True,
        check=True, timeout=60,
    )  # fmt: skip
    texts = [drawn(one, kind) for one in ours for kind in FORMATS]
    assert done.stdout.strip() == sha256("".join(texts).encode()).hexdigest()


def test_sixty_states_by_chance() -> None:
    chance = random.Random(60)
    one = picture(numbered(60), [(chance.randrange(60), chance.randrange(60)) for _ in range(110)], [1] * 60)
    check(svg(one), one)


def test_a_drawing_that_would_be_too_wide_flows_down() -> None:
    """37 states in a row were 11,000 pixels wide; now one scrolls down."""
    chance = random.Random(37)
    arrows = [(nth, nth + 1) for nth in range(36)]
    arrows += [(chance.randrange(37), chance.randrange(37)) for _ in range(12)]
    for count, is_down in ((4, False), (37, True)):
        inside = [arrow for arrow in arrows if max(arrow) < count]
        one = picture(numbered(count), [*inside, (count - 1, count - 1)], [1] * count)
        text = svg(one)
        check(text, one)
        places = boxes(ET.fromstring(text))
        width, height = (int(found) for found in re.findall(r'viewBox="0 0 (\d+) (\d+)"', text)[0])
        assert width < 1_600
        assert (height > width) is is_down
        assert (places[0].top < places[1].top) is is_down
        assert ("direction TB" in drawn(one, "mermaid"), "rankdir=TB" in drawn(one, "dot")) == (is_down,) * 2


def test_what_stands_side_by_side_stays_so() -> None:
    """A star is wider if it flows down than to the right, so it flows to the right, however wide."""
    one = SHAPES["star"]
    text = svg(one)
    check(text, one)
    places = boxes(ET.fromstring(text))
    assert places[0].left < places[1].left


def test_most_arrows_point_right_and_the_first_stands_left() -> None:
    layout = laid_out([(80, 40)] * 5, [(3, 0), (0, 1), (1, 2), (2, 0), (2, 4), (4, 2)], {}, first=3)
    assert [cell.x for cell in layout.boxes][3] == min(cell.x for cell in layout.boxes)
    assert {edge for edge, route in layout.routes.items() if route.turned} == {(2, 0), (4, 2)}
    unreached = laid_out([(80, 40)] * 2, [(1, 0)], {}, first=0)
    assert unreached.boxes[0].x < unreached.boxes[1].x


def test_a_graph_that_can_be_drawn_without_crossings_is() -> None:
    edges = [(0, 1), (0, 2), (1, 3), (2, 4), (1, 5), (2, 6)]
    layout = laid_out([(80, 40)] * 7, edges, {}, first=0)
    order = sorted((3, 4, 5, 6), key=lambda nth: layout.boxes[nth].y)
    assert set(order[:2]) in ({3, 5}, {4, 6})


def test_fills_are_read_in_light_and_in_dark() -> None:
    for scheme in (LIGHT, DARK):
        for fill in (*scheme.fills, scheme.ground):
            assert contrast(scheme.text, fill) >= 4.5, (scheme.text, fill)
        assert contrast(scheme.quiet, scheme.ground) >= 4.5
        assert contrast(scheme.line, scheme.ground) >= 3
        lights = [luminance(fill) for fill in scheme.fills]
        assert lights in (sorted(lights), sorted(lights, reverse=True)), "more is darker, or lighter"


def luminance(color: str) -> float:
    channels = (int(color[nth : nth + 2], 16) / 255 for nth in (1, 3, 5))
    linear = [one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_fill_says_the_share() -> None:
    one = picture(numbered(6), [(0, 1)], [0, 1, 15, 40, 144, 0])
    assert [one.step(node) for node in one.nodes] == [0, 1, 2, 2, 4, 0]
    assert [picture(["a", "b"], [], [1, 1]).step(node) for node in one.nodes[:1]] == [0]
    text = svg(one)
    steps = re.findall(r'<g><title>(.*?)</title>\n<rect class="state share(\d)"', text)
    assert steps[1] == ("state_01: 1 object, 0.5%", "1")
    assert steps[4] == ("state_04: 144 objects, 72.0%", "4")
    assert "@media (prefers-color-scheme: dark)" in text


def test_initial_terminal_and_what_is_not_declared_are_marked() -> None:
    made = picture(["new", "done"], [(0, 1)], [0, 2])
    one = Picture("m", 1, (*made.nodes, Node("gone", declared=False, objects=3)), made.arrows)
    root = ET.fromstring(svg(one))
    groups = root.findall(f"{SPACE}g")
    kinds = [[rect.attrib["class"] for rect in group.findall(f"{SPACE}rect")] for group in groups]
    assert kinds == [["state share0"], ["state share3", "inner"], ["state gone share4"]]
    assert len(root.findall(f"{SPACE}circle")) == 2, "one at the initial state, one in the legend"
    keys = [text.text for text in root.findall(f"{SPACE}text[@class='key']")]
    assert keys[-3:] == ["initial", "terminal", "not declared"]
    plain = [text.text for text in ET.fromstring(svg(picture(["a", "b"], [(0, 1), (1, 0)]))).iter()]
    assert "initial" in plain
    assert not {"terminal", "share of the objects:"} & set(plain)


def test_long_names_are_shortened_and_whole_in_the_tooltip() -> None:
    assert short("a" * LONGEST) == "a" * LONGEST
    name = "begin" + "x" * 100 + "the_end"
    assert (len(short(name)), short(name)[:5], short(name)[-7:]) == (LONGEST, "begin", "the_end")
    assert f"<title>{name}</title>" in svg(picture([name], []))


def test_mermaid_says_the_machine() -> None:
    made = picture(["new", "done"], [(0, 1)], [0, 1200])
    one = Picture("m", 1, (*made.nodes, Node("gone", declared=False, objects=3)), made.arrows)
    assert drawn(one, "mermaid").splitlines() == [
        "---",
        'title: "m, definition 1, 1,203 objects"',
        "---",
        "stateDiagram-v2",
        "    direction LR",
        '    state "new #40;0#41;" as s0',
        '    state "done #40;1,200#41;" as s1',
        '    state "gone #40;3#41;" as s2',
        "    [*] --> s0",
        "    s0 --> s1 : after 1 h",
        "    s1 --> [*]",
        f"    classDef share0 fill:{LIGHT.fills[0]},stroke:{LIGHT.line},color:{LIGHT.text}",
        "    class s0 share0",
        f"    classDef share1 fill:{LIGHT.fills[1]},stroke:{LIGHT.line},color:{LIGHT.text}",
        "    class s2 share1",
        f"    classDef share4 fill:{LIGHT.fills[4]},stroke:{LIGHT.line},color:{LIGHT.text}",
        "    class s1 share4",
        "    classDef gone stroke:#b4472f,stroke-dasharray:4 3",
        "    class s2 gone",
    ]


def test_dot_says_the_machine() -> None:
    made = picture(["new", "done"], [(0, 1)], [0, 1200])
    text = drawn(Picture("m", 1, (*made.nodes, Node("gone", declared=False, objects=3)), made.arrows), "dot")
    lines = [line.strip() for line in text.splitlines()]
    assert (lines[0], lines[-1]) == ('digraph "m" {', "}")
    assert f's1 [label="done\\n1,200", fillcolor="{LIGHT.fills[4]}", peripheries=2];' in lines
    assert 's0 -> s1 [label="after 1 h"];' in lines
    assert "begin -> s0;" in lines
    assert any("dashed" in line and line.startswith("s2 [") for line in lines)


def test_odd_names_are_escaped() -> None:
    one = SHAPES["odd"]
    mermaid_, dot_ = drawn(one, "mermaid"), drawn(one, "dot")
    assert 'state "a#34;b#60;c#62;#38;d #40;1,000,000,000,000#41;" as s0' in mermaid_
    labels = re.findall(r'^    state "(.*)" as s\d+$', mermaid_, re.MULTILINE)
    assert len(labels) == len(ODD)
    assert not any(re.search(r'["<>&:{}\[\]\\]', label) for label in labels)
    assert r'label="back\\slash; # : %\n0"' in dot_
    assert r'label="a\"b<c>&amp;d\n' in dot_
    acting = Picture("m", 1, (Node("a\u202eb\x1b", declared=False, objects=1),), ())
    for kind in FORMATS:
        assert not re.search("[\u202e\x1b]", drawn(acting, kind))


# The command


@pytest.fixture
def payments(log: Ledger) -> Ledger:
    for key in ("PM1", "PM2"):
        Payment(log, key).move("submitted", submission_id=key)
    Payment(log, "PM2").move("paid")
    return log


def test_it_is_mermaid_unless_something_else_is_said(payments: Ledger, pledger: Pledger) -> None:
    ended = pledger("machines", "diagram", "payment", "--quiet")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[1] == 'title: "payment, definition 1, 2 objects"'
    assert '    state "submitted #40;1#41;" as s1\n' in ended.out
    assert pledger("machines", "diagram", "payment").out == ended.out
    assert pledger("machines", "diagram", "payment", "--format", "dot").out.startswith('digraph "payment" {')
    root = ET.fromstring(pledger("machines", "diagram", "payment", "--format", "svg").out)
    assert len(boxes(root)) == 4


def test_without_counts_nothing_is_counted(payments: Ledger, pledger: Pledger) -> None:
    ended = pledger("machines", "diagram", "payment", "--no-counts")
    assert ended.err == ""
    assert ended.out.splitlines()[1] == 'title: "payment, definition 1"'
    assert '    state "submitted" as s1\n' in ended.out
    (one,) = pledger("machines", "diagram", "payment", "--no-counts", "--json").objects
    assert (one["objects"], one["diagram"]) == (None, ended.out)


@pytest.mark.parametrize(
    ("file", "begins"), [("p.svg", "<svg "), ("p.gv", "digraph "), ("p.dot", "digraph "), ("p.MMD", "---\n")]
)
def test_a_file_says_its_format(
    payments: Ledger, pledger: Pledger, tmp_path: Path, file: str, begins: str
) -> None:
    ended = pledger("machines", "diagram", "payment", "--output", str(tmp_path / file))
    assert (ended.code, ended.out) == (0, "")
    assert f"payment, definition 1, 2 objects: drawn in {tmp_path / file}\n" in ended.err
    text = (tmp_path / file).read_text(encoding="utf-8")
    assert (text[: len(begins)], text[-1]) == (begins, "\n")
    ended = pledger("machines", "diagram", "payment", "--output", str(tmp_path / file), "--json")
    assert json.loads(ended.out) == {
        "machine": "payment", "definition": 1, "format": json.loads(ended.out)["format"], "objects": 2,
        "output": str(tmp_path / file),
    }  # fmt: skip


def test_formats_and_files_that_cannot_be(payments: Ledger, pledger: Pledger, tmp_path: Path) -> None:
    ended = pledger("machines", "diagram", "payment", "--format", "png")
    assert (ended.code, "'png' must be mermaid, dot or svg" in ended.err) == (Code.MISUSE, True)
    for file in ("p.txt", "p"):
        ended = pledger("machines", "diagram", "payment", "--output", str(tmp_path / file))
        assert (
            ended.code,
            ", or a file name that ends in .mmd, .mermaid, .dot, .gv, .svg" in ended.err,
        ) == (
            Code.MISUSE,
            True,
        )
    for more in ((), ("--format", "svg")):
        ended = pledger("machines", "diagram", "payment", "--output", str(tmp_path / "p.PNG"), *more)
        assert ended.code == Code.MISUSE
        assert "write .svg, .mmd or .dot; Graphviz converts the last: pledger machines diagram" in ended.err
        assert f"payment --format dot | dot -Tpng > {tmp_path / 'p.PNG'}\n" in ended.err
        assert not (tmp_path / "p.PNG").exists()
    ended = pledger("machines", "diagram", "payment", "--output", str(tmp_path / "no" / "p.svg"))
    assert ended.code == Code.REFUSED
    assert f"the output {tmp_path}/no/p.svg cannot be written: No such file" in ended.err
