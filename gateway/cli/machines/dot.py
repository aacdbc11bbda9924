"""A machine in the language of Graphviz: `pledger machines diagram NAME --format dot | dot -Tpdf`."""

from __future__ import annotations

from collections.abc import Iterator

from .picture import LIGHT, UNDECLARED, Node, Picture, printable


def dot(picture: Picture) -> str:
    """The text of a `digraph`. The same picture gives the same text."""
    return "".join(f"{line}\n" for line in _lines(picture))


def _lines(picture: Picture) -> Iterator[str]:
    names = {node.state: f"s{nth}" for nth, node in enumerate(picture.nodes)}
    line, text = f'color="{LIGHT.line}"', f'fontcolor="{LIGHT.text}"'
    yield f"digraph {_quoted(picture.machine)} {{"
    way = "TB" if picture.flows_down else "LR"
    yield f'  graph [rankdir={way}, label={_quoted(picture.title)}, labelloc=t, fontname="Helvetica"];'
    yield f'  node [shape=box, style="rounded,filled", fontname="Helvetica", {line}, {text}];'
    yield f'  edge [fontname="Helvetica", fontsize=11, {line}, {text}];'
    for node in picture.nodes:
        yield f"  {names[node.state]} [{', '.join(_attributes(picture, node))}];"
    for node in picture.nodes:
        if node.initial:
            yield f'  begin [shape=circle, style=filled, fillcolor="{LIGHT.line}", label="", width=0.15];'
            yield f"  begin -> {names[node.state]};"
    for arrow in picture.arrows:
        label = f" [label={_quoted(arrow.label)}]" if arrow.label else ""
        yield f"  {names[arrow.from_state]} -> {names[arrow.to_state]}{label};"
    yield "}"


def _attributes(picture: Picture, node: Node) -> Iterator[str]:
    yield f"label={_quoted(node.state, *([] if node.objects is None else [f'{node.objects:,}']))}"
    yield f'fillcolor="{LIGHT.fills[picture.step(node)]}"'
    if node.terminal:
        yield "peripheries=2"
    if not node.declared:
        yield f'style="rounded,filled,dashed", color="{UNDECLARED}"'


def _quoted(*lines: str) -> str:
    r"""A quoted string of one line or more: `\` would begin an escape, and `&` an entity of HTML."""
    escaped = (
        printable(line).replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"') for line in lines
    )
    return '"' + "\\n".join(escaped) + '"'
