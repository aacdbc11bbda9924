"""The group of commands `pledger machines`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import typer

from . import adopt, check, diagram, show, timeouts

COMMANDS: Final[Mapping[str, Callable[..., Any]]] = {
    "list": show.list_, "show": show.show, "diagram": diagram.diagram, "check": check.check,
    "adopt": adopt.adopt, "timeouts": timeouts.timeouts,
}  # fmt: skip


def add_to(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(help="State machines: definitions, diagrams, checks.", rich_markup_mode=None)
    for word, command in COMMANDS.items():
        group.command(word)(command)
    app.add_typer(group, name="machines")
