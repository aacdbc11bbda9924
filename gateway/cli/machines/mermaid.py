"""A machine as a Mermaid state diagram, which GitHub, GitLab and many wikis draw."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from .picture import LIGHT, UNDECLARED, Node, Picture, printable

# Characters that Mermaid, or its HTML, would interpret are written by number: `#35;` is `#`.
_MARKS = re.compile(r"[\"#;<>&:\\`%{}\[\]()*_~|]")


def mermaid(picture: Picture) -> str:
    """The text of a `stateDiagram-v2`. The same picture gives the same text."""
    return "".join(f"{line}\n" for line in _lines(picture))


def _lines(picture: Picture) -> Iterator[str]:
    names = {node.state: f"s{nth}" for nth, node in enumerate(picture.nodes)}
    yield from ("---", f"title: {json.dumps(printable(picture.title), ensure_ascii=False)}", "---")
    yield from ("stateDiagram-v2", f"    direction {'TB' if picture.flows_down else 'LR'}")
    for node in picture.nodes:
        yield f'    state "{_text(_label(node))}" as {names[node.state]}'
    for node in picture.nodes:
        if node.initial:
            yield f"    [*] --> {names[node.state]}"
    for arrow in picture.arrows:
        label = f" : {_text(arrow.label)}" if arrow.label else ""
        yield f"    {names[arrow.from_state]} --> {names[arrow.to_state]}{label}"
    for node in picture.nodes:
        if node.terminal:
            yield f"    {names[node.state]} --> [*]"
    yield from _colors(picture, names)


def _colors(picture: Picture, names: dict[str, str]) -> Iterator[str]:
    """A class for each step of colour that is used, and one for states that are not declared."""
    steps = {node.state: picture.step(node) for node in picture.nodes}
    for step in sorted(set(steps.values())):
        fill = f"fill:{LIGHT.fills[step]},stroke:{LIGHT.line},color:{LIGHT.text}"
        members = ",".join(names[state] for state, its in steps.items() if its == step)
        yield f"    classDef share{step} {fill}"
        yield f"    class {members} share{step}"
    if gone := ",".join(names[node.state] for node in picture.nodes if not node.declared):
        yield f"    classDef gone stroke:{UNDECLARED},stroke-dasharray:4 3"
        yield f"    class {gone} gone"


def _label(node: Node) -> str:
    return node.state if node.objects is None else f"{node.state} ({node.objects:,})"


def _text(text: str) -> str:
    return _MARKS.sub(lambda found: f"#{ord(found[0])};", printable(text))
