"""CSV in both directions: our own columns, which hold every part of an event, or those of the user."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Final
from uuid import UUID

from .. import canon
from ..errors import BadFile, BadInput
from ..names import checked, checked_topic, stream_name
from ..recorded import Recorded
from ..store.declaring import Move
from .arriving import Arrival, Source, aware, claimed
from .envelopes import Envelopes, base64, envelope, parsed_meta
from .json_lines import JsonLines

COLUMNS: Final = (
    "ledger", "position", "stream", "version", "topic", "schema", "recorded_at",
    "actor", "claimed_at", "meta", "data", "raw",
)  # fmt: skip
"""What is exported. `meta` is the truth; actor and claimed_at say two parts of it again, to be looked at."""
DELIMITERS: Final = ",;\t|"
_BOMS: Final = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


def rows(events: Iterable[Recorded], ledger: UUID) -> Iterator[str]:
    """The lines of the file, its title first."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for event in events:
        fields = json.loads(event.meta_data or "{}")
        again = (fields.get("actor"), fields.get("claimed_at"), event.meta_data, event.data)
        raw = None if event.raw is None else base64(event.raw)
        writer.writerow((ledger, *envelope(event).values(), *again, raw))
        if out.tell() > 1 << 16:
            yield out.getvalue()
            out.seek(0)
            out.truncate()
    yield out.getvalue()


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a file is written. delimiter, encoding: None finds out, from the title line and the first bytes."""

    delimiter: str | None = None
    encoding: str | None = None

    def records(self, source: Source) -> Iterator[tuple[int, dict[str, str]]]:
        """Line number and values of each row, by the names in the title line. Raises BadFile."""
        encoding = self.encoding or _encoding(source.unpacked.peek(3)[:3])
        line = 1
        try:
            text = io.TextIOWrapper(source.unpacked, encoding, newline="")
            csv.field_size_limit(2 * canon.MAX_BYTES)
            title = text.readline(canon.MAX_BYTES)
            delimiter = self.delimiter or max(DELIMITERS, key=title.count)
            names = _names(next(csv.reader([title], delimiter=delimiter, strict=True), []))
            reader = csv.reader(text, delimiter=delimiter, strict=True)
            for row in reader:
                line = reader.line_num + 1
                if len(row) == len(names):
                    yield line, dict(zip(names, row, strict=True))
                elif row:
                    raise BadInput(f"it has {len(row)} values, and the title line names {len(names)} columns")
        except UnicodeDecodeError as error:
            wrong = f"what follows is not {encoding} ({error.reason}): name its encoding (--encoding latin-1)"
            raise BadFile(source.name, f"line {line}", wrong) from error
        except LookupError as error:
            raise BadInput(f"{error}: name one that Python knows, such as utf-8 or latin-1") from None
        except csv.Error as error:
            raise BadFile(source.name, f"after line {line}", f"it is not CSV ({error})") from error
        except BadInput as error:
            raise BadFile(source.name, f"line {line}", str(error)) from error


class EnvelopeCsv:
    """Reads CSV with the columns of the export; needed is only stream, topic, and data or raw."""

    insists = False

    def __init__(
        self, dialect: Dialect, known: Mapping[str, Move] | None = None, here: UUID | None = None,
        zone: tzinfo | None = None, *, renumber: bool = False,
    ) -> None:  # fmt: skip
        self.options: tuple[str, ...] = ("csv", str(zone), "renumber" if renumber else "")
        self.moves: dict[str, Move] = {}
        self._dialect = dialect
        self._bodies = JsonLines()
        self._envelopes = Envelopes(known or {}, here, zone, renumber=renumber)

    def arrivals(self, source: Source) -> Iterator[Arrival]:
        """The events of the file, in its order."""
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
        parts: dict[str, Any] = {name: value for name, value in row.items() if value}
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
            parts["raw"] = {"base64": row["raw"]}
        return self._envelopes.arrival(("line", line), parts, text, value)


@dataclass(frozen=True, slots=True)
class Mapped:
    """What the columns of a user's own file mean; those that are not named become the body, as text.

    The stream is in one column, or `category/KEY` of the values of some. topic: of all events, where no
    column says it; by default `CATEGORY.recorded`.
    """

    category: str | None = None
    stream_column: str | None = None
    key_columns: Sequence[str] = ()
    topic: str | None = None
    topic_column: str | None = None
    time_column: str | None = None
    state_column: str | None = None
    actor_column: str | None = None

    def named(self) -> list[str]:
        """Every column that is named."""
        ones = (self.stream_column, self.topic_column, self.time_column, self.state_column, self.actor_column)
        return [name for name in (*ones, *self.key_columns) if name is not None]


class MappedCsv:
    """Reads CSV whose columns a mapping explains. Events go behind what their stream has."""

    insists = True

    def __init__(self, dialect: Dialect, mapped: Mapped, zone: tzinfo | None = None) -> None:
        if (mapped.stream_column is None) == (not mapped.key_columns):
            raise BadInput("name either the column that holds the stream's name, or those that make its key")
        if mapped.key_columns and mapped.category is None:
            raise BadInput("streams that are made of key columns need a category (--category incident)")
        topic = mapped.topic or (mapped.category and f"{mapped.category.replace('-', '_')}.recorded")
        if topic is None and mapped.topic_column is None:
            raise BadInput("say the topic of the events: --topic, --topic-column, or a --category")
        self._topic = None if topic is None else checked_topic(topic)
        self.options: tuple[str, ...] = ("csv", topic or "", repr(mapped), str(zone))
        self.moves: dict[str, Move] = {}
        self._dialect, self._mapped, self._zone = dialect, mapped, zone
        self._taken = set(mapped.named()) - set(mapped.key_columns)

    def arrivals(self, source: Source) -> Iterator[Arrival]:
        """The events of the file, in its order."""
        for line, row in self._dialect.records(source):
            try:
                yield self._arrival(line, row)
            except KeyError as error:
                names = ", ".join(map(repr, row))
                raise BadFile(
                    source.name, "line 1", f"there is no column {error}; there are {names}"
                ) from error
            except BadInput as error:
                raise BadFile(source.name, f"line {line}", str(error)) from error

    def _arrival(self, line: int, row: Mapping[str, str]) -> Arrival:
        mapped, fields = self._mapped, {}
        body: dict[str, str] = {name: value for name, value in row.items() if name not in self._taken}
        status = row[mapped.state_column] or None if mapped.state_column else None
        topic = self._topic_of(row)
        if mapped.state_column:
            if "state" in body:
                raise BadInput("the column 'state' would hide what --state-column says: rename it")
            self.moves[topic] = Move(field="state")
            body |= {"state": status} if status else {}
        if mapped.actor_column and (actor := row[mapped.actor_column]):
            fields["actor"] = actor
        if mapped.time_column and (time := row[mapped.time_column]):
            fields["claimed_at"] = claimed(aware(time, self._zone, mapped.time_column))
        stream, data = self._stream_of(row), canon.body(body)
        return Arrival(("line", line), stream, None, topic, 1, data, None, fields, status)

    def _topic_of(self, row: Mapping[str, str]) -> str:
        named = row[self._mapped.topic_column] if self._mapped.topic_column else ""
        if named:
            return checked_topic(named)
        if self._topic is None:
            raise BadInput("the row names no topic: say --topic for such rows")
        return self._topic

    def _stream_of(self, row: Mapping[str, str]) -> str:
        if self._mapped.stream_column:
            return checked(row[self._mapped.stream_column])
        parts = [row[name] for name in self._mapped.key_columns]
        if not all(parts):
            raise BadInput("a column of the key is empty, and so the stream has no name")
        return stream_name(self._mapped.category or "", *parts)


def _encoding(start: bytes) -> str:
    return next((name for mark, name in _BOMS if start.startswith(mark)), "utf-8")


def _names(names: list[str]) -> list[str]:
    """The names of the title line. Raises BadInput where two columns share one."""
    if not names:
        raise BadInput("it is empty: the first line of a CSV file names the columns")
    if twice := [name for nth, name in enumerate(names) if name in names[:nth]]:
        raise BadInput(f"two columns are named {twice[0]!r}")
    return names


def _whole(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise BadInput(f"{name} {text[:60]!r} must be a whole number")
    return int(text)
