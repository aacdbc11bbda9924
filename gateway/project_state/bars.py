"""Bars of states: readable without colours too, because each state is drawn with a character of its own."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.text import Text

STATES: Final = {"completed": "green", "running": "yellow", "failed": "red", "pending": "dim"}
"""The states in the order of columns and bars, and their styles."""
FILL: Final = {"completed": "█", "running": "▓", "failed": "×", "pending": "░"}
BAR: Final = 10
"""Cells of a bar in a row."""


def bar(states: Counter[str], total: int, cells: int = BAR) -> Text:
    """So many cells, shared among the states; each state that occurs has at least one."""
    from rich.text import Text

    drawn = Text(no_wrap=True)
    for state, style in STATES.items():
        if states[state]:
            drawn.append(FILL[state] * max(1, round(cells * states[state] / total)), style)
    drawn.truncate(cells, pad=True)
    return drawn
