"""The pages of the documentation: which there are, and the blocks of code in each.

A block is run unless `<!-- not run: REASON -->` stands directly above it. `<!-- file: NAME -->` directly
above a block saves it under that name in the page's folder instead. A ```text block after a
```python block is what that prints.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUNNABLE = ("python", "console", "sql", "text")
_FENCE = re.compile(r"^(?P<fence>```+)(?P<kind>\w*)\n(?P<text>.*?)^(?P=fence)$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- (?P<what>not run|file): (?P<value>.+) -->$")
_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block. line: that of its first line of code. mark: `not run` or `file`, with its value."""

    kind: str
    text: str
    line: int
    mark: str = ""
    value: str = ""


def pages() -> list[Path]:
    """README.md and every page under docs, by name."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(page: Path) -> str:
    """A page's name as links from the project's folder spell it."""
    return page.relative_to(ROOT).as_posix() if page.is_relative_to(ROOT) else page.name


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    for found in _FENCE.finditer(text):
        before = text[: found.start()]
        above = _MARK.match(before.rstrip("\n").rpartition("\n")[2])
        mark, value = (above["what"], above["value"]) if above else ("", "")
        yield Block(found["kind"], found["text"], before.count("\n") + 2, mark, value)


def runnable(page: Path) -> list[Block]:
    """The blocks of a page that a reader would run, and what they print."""
    every = blocks(page.read_text(encoding="utf-8"))
    found = [block for block in every if block.kind in RUNNABLE or block.mark == "file"]
    return found if any(block.kind != "text" for block in found) else []


def links(text: str) -> Iterator[str]:
    """The targets of a page's links, those in code left out."""
    prose = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", text))
    return (found["target"] for found in _LINK.finditer(prose))


def anchors(text: str) -> set[str]:
    """The names under which a page's headings can be linked."""
    titles = re.findall(r"^#+ (.+)$", _FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
