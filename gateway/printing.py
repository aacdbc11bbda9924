"""Results on stdout: tables that fit a terminal, tab-separated lines for a pipe, JSON for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .codes import ReaderGone
from .plain import clean

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text


GAP = 2
"""Spaces between two columns of a terminal's table."""
NARROWEST = 8
"""Cells below which folding a value is of no use."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a terminal's table; it keeps the width of its widest value unless it is flexible.

    number: aligned right. keep: flexible, folded and never cut. rest: flexible, cut where the line ends, even
    to nothing. style: rich's, by name.
    """

    title: str
    number: bool = False
    keep: bool = False
    rest: bool = False
    style: str = ""


def write(text: str) -> None:
    """Write to stdout. Raises ReaderGone where nobody reads it any more."""
    try:
        sys.stdout.write(text)
    except BrokenPipeError:
        raise ReaderGone from None
    except UnicodeEncodeError:
        encoding = sys.stdout.encoding or "ascii"
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))


def flush() -> None:
    """Hand over what was written. Raises ReaderGone."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise ReaderGone from None


def is_terminal() -> bool:
    """Whether a person reads the result."""
    return sys.stdout.isatty()


def json_line(value: Any, *, indent: int | None = None) -> None:
    """One JSON object on a line of its own."""
    write(json.dumps(value, ensure_ascii=False, indent=indent) + "\n")


def table(
    columns: Sequence[Column],
    rows: Iterable[Sequence[str | Text]],
    *,
    color: bool,
    styles: Mapping[str, str] | None = None,
) -> None:
    """A table on a terminal; elsewhere a line a row, its values whole and separated by tabs, without titles.

    styles: rich's styles for whole values, such as statuses.
    """
    if not is_terminal():
        for row in rows:
            write("\t".join(clean(str(value)) for value in row) + "\n")
        return
    from rich.text import Text

    known = styles or {}
    texts = [[Text(clean(v), known.get(v, "")) if isinstance(v, str) else v for v in row] for row in rows]
    widths = _widths(columns, texts, terminal(color=color).width)
    if widths is not None:
        render(_grid(columns, texts, widths), color=color)
    else:  # too narrow for a table: each row as a block of its own
        for row in texts:
            blocks = [[Text(column.title, "bold"), value] for column, value in zip(columns, row, strict=True)]
            render(
                _grid([Column(""), Column("")], [*blocks, [Text(""), Text("")]], [None, None]), color=color
            )


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[Text]], room: int) -> list[int | None] | None:
    """The width of each column: flexible ones share what the others leave. None where that is too little."""
    from rich.cells import cell_len

    natural = [
        max([cell_len(column.title), *(row[nth].cell_len for row in rows)])
        for nth, column in enumerate(columns)
    ]
    flexible = [nth for nth, column in enumerate(columns) if column.keep or column.rest]
    left = room - GAP * (len(columns) - 1) - sum(natural) + sum(natural[nth] for nth in flexible)
    share = left // max(1, len(flexible))
    needed = [0 if columns[nth].rest else min(NARROWEST, natural[nth]) for nth in flexible]
    if left < 0 or any(share < least for least in needed):
        return None
    return [min(width, share) if nth in flexible else width for nth, width in enumerate(natural)]


def _grid(columns: Sequence[Column], rows: Sequence[Sequence[Text]], widths: Sequence[int | None]) -> Table:
    from rich.table import Table

    titled = any(column.title for column in columns)
    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0), show_header=titled)
    shown = [nth for nth, width in enumerate(widths) if width != 0 or not columns[nth].rest]
    for column, width in ((columns[nth], widths[nth]) for nth in shown):
        grid.add_column(
            column.title,
            justify="right" if column.number else "left",
            overflow="ellipsis" if column.rest else "fold",
            no_wrap=column.rest,
            style=column.style,
            width=width,
        )
    for row in rows:
        grid.add_row(*(row[nth] for nth in shown))
    return grid


def fields(pairs: Iterable[tuple[str, str]], *, color: bool) -> None:
    """Names and values, one pair a line."""
    table([Column("", style="bold"), Column("", keep=True)], pairs, color=color)


def render(what: RenderableType, *, color: bool) -> None:
    """Anything that rich can draw, at the width of the terminal."""
    console = terminal(color=color)
    with console.capture() as drawn:
        console.print(what)
    write("\n".join(line.rstrip() for line in drawn.get().splitlines()) + "\n")


def terminal(*, color: bool) -> Console:
    """rich's view of our stdout."""
    from rich.console import Console

    system: Any = "auto" if color else None
    return Console(file=sys.stdout, color_system=system, highlight=False, markup=False, emoji=False)


def forget_stdout() -> None:
    """Let the interpreter's own last flush go nowhere, after the reader went away."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
