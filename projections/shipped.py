"""The views that are shipped."""

from __future__ import annotations

import importlib
from typing import Final

SHIPPED: Final = ("in_state", "progress", "items", "activity", "work", "jobs")
"""Their names; each is declared by the module of this package that has its name."""


def load() -> None:
    """Declare all of them in this process, so that projectors and rebuilds know them."""
    for name in SHIPPED:
        importlib.import_module(f"{__package__}.{name}")
