"""x"""

import typer


def import_(context: typer.Context) -> None:
    """x"""
