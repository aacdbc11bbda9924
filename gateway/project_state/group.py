"""The groups of commands: `pledger lsm` and `pledger psoct`."""

from __future__ import annotations

import typer

from . import marking, planning, reporting, resetting, showing
from .declaration import PIPELINES


def add_to(app: typer.Typer) -> None:
    """Add the commands of every pipeline."""
    for pipeline in PIPELINES:
        group = typer.Typer(help=pipeline.help, rich_markup_mode=None)
        for commands in (showing, resetting, marking, planning, reporting):
            commands.add_to(group, pipeline)
        app.add_typer(group, name=pipeline.name)
