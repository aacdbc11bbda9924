"""`pledger runs rotate-keys`: encrypt the secrets of blocks with another key."""

from __future__ import annotations

import typer

from ..session import AsJson


def rotate_keys(context: typer.Context, as_json: AsJson = False) -> None:
    """x"""
