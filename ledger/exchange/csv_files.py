"""CSV in both directions: our own columns, which hold every part of an event, or those of the user."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Final
from uuid import UUID

from ..domain import canonical_json
from ..domain.topics import TopicStatus
from ..errors import BadFile, BadInput
from ..log.recorded import Recorded
from .envelopes import Envelopes, base64, envelope, parsed_meta
from .json_lines import LONGEST, JsonLines
from .source import Arrival, Faults, Source

COLUMNS: Final = (
    "ledger", "position", "stream", "version", "topic", "schema", "recorded_at",
    "actor", "claimed_at", "meta", "data", "raw",
)  # fmt: skip
"""The exported columns. `meta` is authoritative; actor and claimed_at repeat two of its fields."""
DELIMITERS: Final = ",;\t|"
_GUARDED: Final = ("=", "+", "-", "@", "\t", "\r", "'")
"""The first characters of cells that spreadsheets read as formulas, and the apostrophe that prevents it."""
_BOMS: Final = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


def rows(events: Iterable[Recorded], ledger: UUID) -> Iterator[str]:
    """The lines of the file, beginning with the title line."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for event in events:
        fields = canonical_json.parsed(event.meta_data or "{}")
        shown = fields if isinstance(fields, dict) else {}
        again = (*_texts(shown, "actor", "claimed_at"), event.meta_data, event.data)
        raw = None if event.raw is None else base64(event.raw)
        writer.writerow([_unlike_formula(cell) for cell in (ledger, *envelope(event).values(), *again, raw)])
        if out.tell() > 1 << 16:
            yield out.getvalue()
            out.seek(0)
            out.truncate()
    yield out.getvalue()


def _texts(fields: Mapping[str, Any], *names: str) -> list[str | None]:
    """The texts among the fields; None for other values, which only a forged event has."""
    return [value if isinstance(value := fields.get(name), str) else None for name in names]


def _unlike_formula(cell: Any) -> Any:
    """The cell, with an apostrophe in front if a spreadsheet would read it as a formula.

    Whoever may append chooses names and bodies, and another person opens the file. The import removes it.
    """
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_GUARDED) else cell


def _as_it_was(cell: str) -> str:
    """A cell without the apostrophe that an export added."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_GUARDED) else cell


class _Lines:
    """The lines of a text; no line, and no row of lines, may be longer than LONGEST."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text, self._size = text, 0

    def __iter__(self) -> Iterator[str]:
        while line := self._text.readline(LONGEST + 1):
            self._size += len(line)
            if self._size > LONGEST:
                raise BadInput(f"the row has more than {LONGEST} characters")
            yield line

    def row_ends(self) -> None:
        """The next line begins a row."""
        self._size = 0


def _title(text: io.TextIOWrapper) -> str:
    """The first line. Raises BadInput if it is too long."""
    title = text.readline(LONGEST + 1)
    if len(title) > LONGEST:
        raise BadInput(f"the title line has more than {LONGEST} characters")
    return title


def _rows(text: io.TextIOWrapper, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The rows after the title line, each with the number of its last line."""
    lines = _Lines(text)
    reader = csv.reader(iter(lines), delimiter=delimiter, strict=True)
    for row in reader:
        lines.row_ends()
        yield reader.line_num + 1, row


@dataclass(frozen=True, slots=True)
class Dialect:
    """The format of a file. delimiter, encoding: None detects it from the title line and the first bytes."""

    delimiter: str | None = None
    encoding: str | None = None

    def records(self, source: Source) -> Iterator[tuple[int, dict[str, str]]]:
        """Line number and values of each row, by the names in the title line. Raises BadFile."""
        encoding = self.encoding or _encoding(source.unpacked.peek(3)[:3])
        line = 1
        try:
            text = io.TextIOWrapper(source.unpacked, encoding, newline="")
            csv.field_size_limit(2 * canonical_json.MAX_BYTES)
            title = _title(text)
            delimiter = self.delimiter or max(DELIMITERS, key=title.count)
            names = _names(next(csv.reader([title], delimiter=delimiter, strict=True), []))
            for number, row in _rows(text, delimiter):
                line = number
                if len(row) == len(names):
                    yield line, dict(zip(names, row, strict=True))
                elif row:
                    raise BadInput(f"it has {len(row)} values, and the title line names {len(names)} columns")
        except UnicodeDecodeError as error:
            wrong = f"the rest is not {encoding} ({error.reason}): give the encoding (--encoding latin-1)"
            raise BadFile(source.name, f"line {line}", wrong) from error
        except LookupError as error:
            raise BadInput(f"{error}: name one that Python knows, such as utf-8 or latin-1") from None
        except csv.Error as error:
            raise BadFile(source.name, f"after line {line}", f"it is not CSV ({error})") from error
        except BadInput as error:
            raise BadFile(source.name, f"line {line}", str(error)) from error


class EnvelopeCsv:
    """Reads CSV with the columns of the export; required are only stream, topic, and data or raw."""

    insists = False

    def __init__(
        self, dialect: Dialect, known: Mapping[str, TopicStatus] | None = None, here: UUID | None = None,
        zone: tzinfo | None = None, *, renumber: bool = False,
    ) -> None:  # fmt: skip
        self.faults = Faults(strict=True)
        self.statuses: dict[str, TopicStatus] = {}
        self._dialect = dialect
        self._bodies = JsonLines()
        self._envelopes = Envelopes(known or {}, here, zone, renumber=renumber)

    def arrivals(self, source: Source) -> Iterator[Arrival]:
        """The events of the file, in file order."""
        for line, row in self._dialect.records(source):
            try:
                yield self._arrival(line, row)
            except BadInput as error:
                raise BadFile(source.name, f"line {line}", str(error)) from error

    def _arrival(self, line: int, row: Mapping[str, str]) -> Arrival:
        if unknown := row.keys() - set(COLUMNS):
            raise BadInput(
                f"the column {min(unknown)!r} is none of an export: say what the columns mean "
                "(--key-column and --category, or --stream-column; --topic-column, --time-column and so on)"
            )
        parts: dict[str, Any] = {name: _as_it_was(value) for name, value in row.items() if value}
        for name in ("version", "schema", "position"):
            if name in parts:
                parts[name] = _whole(name, parts[name])
        if "meta" in parts:
            parts["meta"] = parsed_meta(parts["meta"])
            parts.pop("actor", None)
        elif "claimed_at" in parts:
            parts["meta"] = {"claimed_at": parts["claimed_at"]}
        text, value = parts.pop("data", None), None
        if text is not None:
            text, value = self._bodies.body(text)
        elif "raw" in row:
            parts["raw"] = {"base64": _as_it_was(row["raw"])}
        return self._envelopes.arrival(("line", line), parts, text, value)


def _encoding(start: bytes) -> str:
    return next((name for mark, name in _BOMS if start.startswith(mark)), "utf-8")


def _names(names: list[str]) -> list[str]:
    """The names of the title line. Raises BadInput if two columns share one."""
    if not names:
        raise BadInput("it is empty: the first line of a CSV file names the columns")
    if twice := [name for nth, name in enumerate(names) if name in names[:nth]]:
        raise BadInput(f"two columns are named {twice[0]!r}")
    return names


def _whole(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise BadInput(f"{name} {text[:60]!r} must be a whole number")
    return int(text)
