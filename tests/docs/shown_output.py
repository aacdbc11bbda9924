"""Shown output against real output: `…` stands for anything, spaces between words do not count."""

from __future__ import annotations

import re
from collections.abc import Sequence

ANYTHING = "…"


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
