"""The group of commands `pledger machines`."""

from __future__ import annotations

from collections.abc import Callable

import typer

from . import adopting, checking, diagrams, expiring, listing

COMMANDS: tuple[Callable[[typer.Typer], None], ...] = (
    listing.add_to, diagrams.add_to, checking.add_to, adopting.add_to, expiring.add_to,
)  # fmt: skip


def add_to(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(help="State machines: definitions, diagrams, checks.", rich_markup_mode=None)
    for add in COMMANDS:
        add(group)
    if COMMANDS:
        app.add_typer(group, name="machines")
