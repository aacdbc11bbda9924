"""
Results on stdout: tables that fit a terminal, tab-separated lines for a pipe, JSON for programs.

Everything printed is escaped first: no recorded name or text can act on a terminal.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from .errors import ReaderGone, Unwritable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

    from ledger import Recorded

# Control characters, and those that change the text direction: a name must not act on a terminal.
_ACTS_IN_JSON = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_ACTS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def clean(text: str) -> str:
    """The text on one line, with every character that would act on a terminal written as an escape."""
    return _ACTS.sub(lambda m: f"\\x{ord(m[0]):02x}" if m[0] < "\u0100" else f"\\u{ord(m[0]):04x}", text)


def unacting(text: str) -> str:
    """JSON text with characters that would act on a terminal escaped; it stays the same JSON."""
    return _ACTS_IN_JSON.sub(lambda m: f"\\u{ord(m[0]):04x}", text)


def plain(value: Any) -> Any:
    """The value as dicts, lists and JSON values; times as ISO with their offset, keys as text."""
    match value:
        case None | bool() | int() | float():
            return value
        case Enum():
            return plain(value.value)
        case str():
            return str(value)
        case datetime():
            return iso(value)
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case tuple() if hasattr(value, "_asdict"):
            return plain(value._asdict())
        case list() | tuple():
            return [plain(item) for item in value]
        case set() | frozenset():
            return sorted((plain(item) for item in value), key=repr)
        case _ if dataclasses.is_dataclass(value):
            return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        case _ if hasattr(value, "model_dump"):
            return plain(value.model_dump())
        case _:
            return str(value)


def iso(at: datetime) -> str:
    """A time in UTC, to the microsecond, always of one width."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def local(at: datetime) -> str:
    """A time for a person at a terminal: in the local zone, with its offset."""
    return at.astimezone().isoformat(sep=" ", timespec="seconds")


def time(at: datetime | None) -> str:
    """A time in the local zone at a terminal, else in UTC; empty if there is none."""
    if at is None:
        return ""
    return local(at) if is_terminal() else iso(at)


def cell(value: Any) -> str | Text:
    """A value in a table: a text or a drawing as it is, a time as `time`, a list with commas, None empty."""
    match value:
        case None:
            return ""
        case datetime():
            return time(value)
        case list() | tuple():
            return ", ".join(map(str, value))
        case _ if hasattr(value, "cell_len"):  # rich's Text
            return cast("Text", value)
        case _:
            return str(value)


def event_json(event: Recorded) -> str:
    """One recorded event as a JSON object on one line; the body exactly as it is stored, no number re-read.

    Keys: position, stream, version, topic, schema, recorded_at, actor, data (null for another application's
    bytes), raw (those bytes in hexadecimal, else null), meta.
    """
    head = {
        "position": event.position,
        "stream": event.stream,
        "version": event.version,
        "topic": event.topic,
        "schema": event.schema,
        "recorded_at": iso(event.recorded_at),
        "actor": event.meta.actor,
    }
    raw = "null" if event.raw is None else f'"{event.raw.hex()}"'
    start = json.dumps(head, ensure_ascii=False)[:-1]
    line = f'{start}, "data": {event.data or "null"}, "raw": {raw}, "meta": {event.meta_data or "{}"}}}'
    return unacting(line)


def body(event: Recorded) -> str:
    """The body of an event for a person: its JSON text, or how many bytes another application recorded."""
    if event.raw is not None:
        return f"<{len(event.raw)} bytes>"
    return "" if event.data in (None, "{}") else clean(event.data or "")


def brief(event: Recorded) -> str:
    """The same for a terminal: for a machine's move first its two states, then its metadata."""
    if event.data is None or '"to_state"' not in event.data or '"from_state"' not in event.data:
        return body(event)
    from ledger.domain import canonical_json  # late: it costs more time than the parser

    told: Any = canonical_json.parsed(event.data)
    if not isinstance(told, dict) or not {"to_state", "from_state"} <= told.keys():
        return body(event)
    said = json.dumps(told["metadata"], ensure_ascii=False) if told.get("metadata") else ""
    return clean(f"{told['from_state'] or 'nothing'} -> {told['to_state']}  {said}".rstrip())


T = TypeVar("T")
GAP = 2
"""Spaces between two columns of a terminal's table."""
NARROWEST = 8
"""Minimum width, in cells, at which a value is folded."""


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


def titled(*titles: str, number: bool = False, keep: bool = False) -> list[Column]:
    """Columns of one kind."""
    return [Column(title, number=number, keep=keep) for title in titles]


def write(text: str) -> None:
    """Write to stdout. Raises ReaderGone where nobody reads it any more, Unwritable."""
    with _to_stdout():
        try:
            sys.stdout.write(text)
        except UnicodeEncodeError:
            encoding = sys.stdout.encoding or "ascii"
            sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))


def flush() -> None:
    """Flush stdout. Raises ReaderGone, Unwritable."""
    with _to_stdout():
        sys.stdout.flush()


@contextmanager
def _to_stdout() -> Iterator[None]:
    """Convert errors of stdout, so that they differ from those of other files."""
    try:
        yield
    except BrokenPipeError:
        raise ReaderGone from None
    except OSError as error:
        raise Unwritable(f"the output cannot be written: {error.strerror or error}") from error


def is_terminal() -> bool:
    """Whether a person reads the result."""
    return sys.stdout.isatty()


def most(limit: int | None, at_terminal: int) -> int | None:
    """How many rows a list shows: the given limit, else `at_terminal` at a terminal, and all elsewhere.

    Output to a pipe is never cut unless a limit is given: a program does not see that there is more.
    """
    if limit is not None:
        return limit
    return at_terminal if is_terminal() else None


class Page(Generic[T]):
    """The first rows of many, and whether there are more; `last` is the last row shown."""

    def __init__(self, rows: Iterable[T], limit: int | None) -> None:
        self._rows, self._limit = iter(rows), limit
        self.last: T | None = None
        self.more = False

    def __iter__(self) -> Iterator[T]:
        for row in islice(self._rows, self._limit):
            self.last = row
            yield row
        self.more = next(self._rows, None) is not None


def json_line(value: Any, *, indent: int | None = None) -> None:
    """Print one JSON object on a line of its own."""
    write(unacting(json.dumps(value, ensure_ascii=False, indent=indent)) + "\n")


def table(
    columns: Sequence[Column],
    rows: Iterable[Sequence[Any]],
    *,
    color: bool,
    styles: Mapping[str, str] | None = None,
) -> None:
    """Print a table on a terminal; elsewhere a line a row, whole values separated by tabs, without titles.

    rows: the values of each row, printed as `cell` has them.

    styles: rich's styles for whole values, such as statuses.
    """
    if not is_terminal():
        for row in rows:
            write("\t".join(clean(str(cell(value))) for value in row) + "\n")
        return
    from rich.text import Text

    known = styles or {}
    cells = (map(cell, row) for row in rows)
    texts = [[Text(clean(v), known.get(v, "")) if isinstance(v, str) else v for v in row] for row in cells]
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
    """The width of each column: flexible ones share what the others leave. None if that is too little."""
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


def fields(pairs: Iterable[tuple[str, Any]], *, color: bool) -> None:
    """Print names and values, one pair a line."""
    table([Column("", style="bold"), Column("", keep=True)], pairs, color=color)


def render(what: RenderableType, *, color: bool) -> None:
    """Print anything that rich can draw, at the width of the terminal."""
    console = terminal(color=color)
    with console.capture() as drawn:
        console.print(what)
    write("\n".join(line.rstrip() for line in drawn.get().splitlines()) + "\n")


def terminal(*, color: bool) -> Console:
    """rich's console for stdout."""
    from rich.console import Console

    system: Any = "auto" if color else None
    return Console(file=sys.stdout, color_system=system, highlight=False, markup=False, emoji=False)


def forget_stdout() -> None:
    """Discard the interpreter's last flush of stdout, after the reader has gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
