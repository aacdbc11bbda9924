"""The colours of diagrams, for light and for dark: a state's fill says its share of all objects."""

from __future__ import annotations

from typing import Final, NamedTuple


class Scheme(NamedTuple):
    """Colours that go together. fills: of the steps of `Picture.step`; each can be read under `text`."""

    ground: str
    text: str
    line: str
    quiet: str
    fills: tuple[str, str, str, str, str]


LIGHT: Final = Scheme(
    "#ffffff", "#1b2733", "#4a5b6c", "#566675", ("#f4f6f8", "#dcebf7", "#b3d4ee", "#83b7e2", "#569ad2")
)
DARK: Final = Scheme(
    "#12181f", "#eef3f8", "#9db0c2", "#a3b3c2", ("#1d262f", "#1c3a54", "#1d4f7a", "#1f62a0", "#2a72b5")
)
UNDECLARED: Final = "#b4472f"
"""The border of states that hold objects and are not declared any more."""
STEPS: Final = ("none", "up to 5 %", "up to 20 %", "up to 50 %", "more")
"""What the fills mean, in the legend."""
