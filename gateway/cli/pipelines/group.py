"""The group of commands of each pipeline: `pledger lsm`, `pledger psoct`, and those of users."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING

import typer

from ledger.pipelines import PIPELINES

from ..commands import PIPELINES as SHIPPED
from .mark import mark
from .options import bound
from .plan import plan
from .report import report
from .reset import reset
from .show import show

if TYPE_CHECKING:
    from collections.abc import Callable

    from ledger.pipelines import Pipeline


def group_of(name: str) -> typer.Typer:
    """The commands of a shipped pipeline, or of one that this process has imported."""
    if name in SHIPPED:
        import_module(f"ledger.pipelines.{name}")
    pipeline = PIPELINES[name]
    group = typer.Typer(help=pipeline.help, rich_markup_mode=None)
    for command in _commands(pipeline):
        group.command()(bound(pipeline, command))
    return group


def _commands(pipeline: Pipeline) -> Iterator[Callable[..., None]]:
    """The commands that apply to a pipeline: one with only a project has nothing to mark or report."""
    yield show
    if pipeline.below:
        yield from (reset, mark)
    if pipeline.totals:
        yield plan
    if pipeline.below:
        yield report
