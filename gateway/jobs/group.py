"""The groups of commands: `pledger jobs`, `worker`, `reaper`, `dead`, `queues`, `operations`, `schedules`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import typer

from . import (
    dead,
    deciding,
    events,
    listing,
    queues,
    reaping,
    schedules,
    showing,
    submitting,
    waiting,
    working,
)  # fmt: skip

Adding = Callable[[typer.Typer], None]
GROUPS: Final[tuple[tuple[str, str, tuple[Adding, ...]], ...]] = (
    ("jobs", "Jobs: submit, look, wait, cancel, retry.",
     (submitting.add_to, listing.add_to, showing.add_to, events.add_to, waiting.add_to, deciding.add_to)),
    ("worker", "Workers: run operations, and who is there.", (working.add_to,)),
    ("reaper", "The rescue of what was left behind.", (reaping.add_to,)),
    ("dead", "What failed: why, and offering it anew or putting it aside.", (dead.add_to,)),
    ("queues", "Queues: what waits where, and pausing it.", (queues.add_to_queues,)),
    ("operations", "Limits of operations over all workers.", (queues.add_to_operations,)),
    ("schedules", "Jobs that are submitted again and again.", (schedules.add_to,)),
)  # fmt: skip
"""Name, help and commands of each."""


def add_to(app: typer.Typer) -> None:
    """Add the groups."""
    for name, told, commands in GROUPS:
        group = typer.Typer(help=told, rich_markup_mode=None)
        for add in commands:
            add(group)
        app.add_typer(group, name=name)
