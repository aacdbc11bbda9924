"""Shown output against real output: `…` stands for anything, spaces between words do not count.

Real output is what stays on the screen: a bar of progress, which comes where a command takes a second, is
drawn over and erased.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

ANYTHING = "…"


CONTROL = re.compile(r"(\x1b\[\??\d*[A-Za-z]|\r|\n)")
"""What moves the cursor, or erases."""


def on_screen(written: str) -> str:
    """The lines that are left at the end of what was written to a terminal."""
    lines, row, column = [""], 0, 0
    for part in CONTROL.split(written):
        if part == "\n":
            row, column = row + 1, 0
            lines += [""] * (row == len(lines))
        elif part == "\r":
            column = 0
        elif part == "\x1b[2K":
            lines[row] = ""
        elif moved := re.fullmatch(r"\x1b\[(\d*)A", part):
            row = max(0, row - int(moved[1] or 1))
        elif not part.startswith("\x1b["):
            lines[row] = lines[row][:column].ljust(column) + part + lines[row][column + len(part) :]
            column += len(part)
    return "\n".join(lines)


def lines_of(text: str) -> list[str]:
    """The lines that count: without empty ones, and with one space where there are more."""
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


def matches(shown: str, real: str) -> bool:
    """Whether a page shows what really came. A line that is only `…` stands for any number of lines."""
    return _match(lines_of(shown), lines_of(real))


def _match(shown: Sequence[str], real: Sequence[str]) -> bool:
    if not shown:
        return not real
    if shown[0] == ANYTHING:
        return any(_match(shown[1:], real[nth:]) for nth in range(len(real) + 1))
    return bool(real) and _like(shown[0], real[0]) and _match(shown[1:], real[1:])


def _like(shown: str, real: str) -> bool:
    return re.fullmatch(".*?".join(map(re.escape, shown.split(ANYTHING))), real) is not None
