"""Pieces of Markdown that the generated pages are made of."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

COMMAND = "python -m tests.docs.reference"
MADE = f"Made by `{COMMAND}` from the code; change it there.\n"


def first_line(documented: Any) -> str:
    """The first sentence of a docstring: up to its first empty line, on one line."""
    return " ".join((inspect.getdoc(documented) or "").split("\n\n")[0].split())


def row(*cells: object) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def table(*titles: str, rows: Iterable[str]) -> str:
    return "\n".join([row(*titles), "|" + "---|" * len(titles), *rows, ""])
