"""Where the local copy of a build project lies."""

from __future__ import annotations

from pathlib import Path
from typing import Final

FOLDER: Final = ".pledger/builds"
"""The folder of a project's copy, below the root of its files."""
STORE: Final = "state.lmdb"
"""The environment in that folder (spec S4-01)."""


def copy_near(place: Path) -> Path | None:
    """The folder of the local copy below this place, or below the nearest one above it; None without one."""
    for root in (place, *place.parents):
        if (root / FOLDER / STORE).is_dir():
            return root / FOLDER
    return None
