"""How statuses, times and levels look, the same in every command of jobs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from ..plain import iso, local
from ..printing import is_terminal

STATUSES: Final[Mapping[str, str]] = {
    "succeeded": "green", "completed": "green", "running": "yellow", "writing": "yellow", "failed": "red",
    "cancelled": "magenta", "queued": "dim", "computed": "dim", "paused": "red", "open": "green",
}  # fmt: skip
"""Statuses of jobs, batches and queues, and their styles."""
LEVELS: Final[Mapping[str, str]] = {"warning": "yellow", "error": "bold red"}
CELLS: Final = 24
"""Cells of a bar."""


def time(at: datetime | None) -> str:
    """A time: in the local zone at a terminal, else in UTC; nothing for none."""
    if at is None:
        return ""
    return local(at) if is_terminal() else iso(at)


def share(done: int | None, total: int | None) -> str:
    """How much is done, in words: `3 of 12, 25 %`."""
    if total is None:
        return "" if done is None else str(done)
    percent = f", {100 * (done or 0) // total} %" if total > 0 else ""
    return f"{done or 0} of {total}{percent}"


def bar(done: int | None, total: int | None) -> str:
    """A bar of so many cells, for a terminal; nothing where the total is not known."""
    if not total or total < 0:
        return ""
    full = min(CELLS, max(0, CELLS * (done or 0) // total))
    return "█" * full + "░" * (CELLS - full)
