"""A user's own tables, CSV or JSON Lines, whose columns a mapping describes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, Final

from ..domain import canonical_json
from ..domain.names import checked, checked_topic, stream_name
from ..domain.topics import TopicStatus
from ..errors import BadFile, BadInput
from .csv_files import Dialect
from .envelopes import checked_body
from .json_lines import JsonLines
from .source import Arrival, Faults, Source, aware, claimed

LOOKED_AT: Final = 1000
"""Lines in which each name of a mapping must occur at least once."""


@dataclass(frozen=True, slots=True)
class Mapped:
    """The meaning of the columns of a user's own file; columns that are not named become the body.

    The stream is in one column, or `category/KEY` from the values of several. topic: of all events, if no
    column holds it; by default `CATEGORY.recorded`. id_columns: the id of a row; each row is then recorded
    once, whatever its file and place. JSON Lines: a name with dots, `user.name`, is looked up inside objects.
    """

    category: str | None = None
    stream_column: str | None = None
    key_columns: Sequence[str] = ()
    topic: str | None = None
    topic_column: str | None = None
    time_column: str | None = None
    state_column: str | None = None
    actor_column: str | None = None
    id_columns: Sequence[str] = ()

    def named(self) -> list[str]:
        """Every column that is named."""
        ones = (self.stream_column, self.topic_column, self.time_column, self.state_column, self.actor_column)
        return [name for name in (*ones, *self.key_columns, *self.id_columns) if name is not None]

    def kept(self) -> set[str]:
        """The named columns that stay in the body."""
        return {*self.key_columns, *self.id_columns}


class Rows:
    """Makes arrivals from rows by a mapping. Events go to the end of their streams. Raises BadInput."""

    def __init__(self, mapped: Mapped, zone: tzinfo | None) -> None:
        if (mapped.stream_column is None) == (not mapped.key_columns):
            raise BadInput("give either the column with the stream's name, or the columns of its key")
        if mapped.key_columns and mapped.category is None:
            raise BadInput("key columns need a category (--category incident)")
        topic = mapped.topic or (mapped.category and f"{mapped.category.replace('-', '_')}.recorded")
        if topic is None and mapped.topic_column is None:
            raise BadInput("give the topic of the events: --topic, --topic-column, or a --category")
        self.statuses: dict[str, TopicStatus] = {}
        self.taken = set(mapped.named()) - mapped.kept()
        self._topic = None if topic is None else checked_topic(topic)
        self._mapped, self._zone = mapped, zone

    def arrival(
        self, line: int, row: Mapping[str, str], body: dict[str, Any], texts: dict[str, str] | None = None
    ) -> Arrival:
        """The event of a row. body: the values of the columns that were not taken.

        texts: the same in the file's spelling, if the numbers would get other digits.
        """
        mapped, fields, added = self._mapped, dict[str, Any](), {}
        topic = self._topic_of(row)
        status = row[mapped.state_column] or None if mapped.state_column else None
        if mapped.state_column:
            if "state" in body:
                raise BadInput("the column 'state' conflicts with --state-column: rename it")
            self.statuses[topic] = TopicStatus(field="state")
            added = {"state": status} if status else {}
        if mapped.actor_column and (actor := row[mapped.actor_column]):
            fields["actor"] = actor
        if mapped.time_column and (time := row[mapped.time_column]):
            fields["claimed_at"] = claimed(aware(time, self._zone, mapped.time_column))
        data = checked_body(body | added, None if texts is None else _object(texts | _coded(added)))
        return Arrival(
            ("line", line), self._stream_of(row), None, topic, 1, data, None, fields, status,
            command=self._command_of(row),
        )  # fmt: skip

    def _topic_of(self, row: Mapping[str, str]) -> str:
        named = row[self._mapped.topic_column] if self._mapped.topic_column else ""
        if named:
            return checked_topic(named)
        if self._topic is None:
            raise BadInput("the row has no topic: give --topic for such rows")
        return self._topic

    def _stream_of(self, row: Mapping[str, str]) -> str:
        if self._mapped.stream_column:
            return checked(row[self._mapped.stream_column])
        return stream_name(self._mapped.category or "", *self._values(row, self._mapped.key_columns, "key"))

    def _command_of(self, row: Mapping[str, str]) -> str | None:
        """The command id that the row has by its id; ids count within the category and their columns."""
        names = self._mapped.id_columns
        if not names:
            return None
        scope = (self._mapped.category or "", "+".join(names))
        return stream_name("import", "id", *scope, *self._values(row, names, "id"))

    @staticmethod
    def _values(row: Mapping[str, str], names: Sequence[str], what: str) -> list[str]:
        values = [row[name] for name in names]
        if not all(values):
            wrong = "the stream has no name" if what == "key" else "nothing tells the row from others"
            raise BadInput(f"a column of the {what} is empty, and so {wrong}")
        return values


class MappedCsv:
    """Reads CSV whose columns a mapping describes."""

    insists = True

    def __init__(self, dialect: Dialect, mapped: Mapped, zone: tzinfo | None = None) -> None:
        self._dialect, self._rows = dialect, Rows(mapped, zone)
        self.statuses = self._rows.statuses
        self.faults = Faults(strict=True)

    def arrivals(self, source: Source) -> Iterator[Arrival]:
        """The events of the file, in its order."""
        for line, row in self._dialect.records(source):
            body = {name: value for name, value in row.items() if name not in self._rows.taken}
            try:
                yield self._rows.arrival(line, row, body)
            except KeyError as error:
                names = ", ".join(map(repr, row))
                raise BadFile(
                    source.name, "line 1", f"there is no column {error}; there are {names}"
                ) from error
            except BadInput as error:
                raise BadFile(source.name, f"line {line}", str(error)) from error


class MappedJsonLines(JsonLines):
    """Reads JSON Lines, one object per line, whose names a mapping describes."""

    insists = True

    def __init__(self, mapped: Mapped, zone: tzinfo | None = None) -> None:
        super().__init__()
        self._rows, self._mapped = Rows(mapped, zone), mapped
        self.statuses = self._rows.statuses
        self._needed = {mapped.stream_column, *mapped.key_columns, *mapped.id_columns}
        self._missed: set[str] = set()
        self._names: set[str] = set()

    def arrivals(self, source: Source) -> Iterator[Arrival]:
        """The events of the file, in its order."""
        self._missed, self._names, number = set(self._mapped.named()), set(), 0
        for number, arrival in enumerate(super().arrivals(source), 1):
            if number == LOOKED_AT:
                self._check_names(source, f" of the first {LOOKED_AT}")
            yield arrival
        if 0 < number < LOOKED_AT:
            self._check_names(source, "")

    def _check_names(self, source: Source, where: str) -> None:
        """Refuse a name that no line has: it is a typing error."""
        if self._missed:
            names = ", ".join(map(repr, sorted(self._names)))
            raise BadFile(source.name, "", f"no line{where} has {min(self._missed)!r}; there are {names}")

    def _arrival(self, number: int, line: str) -> Arrival:
        parts = self._object(line)
        if self._missed:
            self._names |= parts.keys()
        row = {name: self._text_in(parts, name) for name in self._mapped.named()}
        body = {name: value for name, value in parts.items() if name not in self._rows.taken}
        texts = None if self._exact else {name: self._slice(line, name) for name in body}
        return self._rows.arrival(number, row, body, texts)

    def _text_in(self, parts: Mapping[str, Any], name: str) -> str:
        """The text of a named value, empty if there is none."""
        value: Any = parts
        for part in (name,) if name in parts else name.split("."):
            if not isinstance(value, dict) or part not in value:
                if name in self._needed:
                    raise BadInput(f"it has no {name!r}; it has {', '.join(map(repr, parts)) or 'nothing'}")
                return ""
            value = value[part]
        self._missed.discard(name)
        if value is None or isinstance(value, str):
            return value or ""
        if isinstance(value, bool) or not isinstance(value, int | float):
            kind = "an object" if isinstance(value, dict) else "a list" if isinstance(value, list) else None
            raise BadInput(f"{name!r} must be text or a number, not {kind or json.dumps(value)}")
        return canonical_json.number(value) if isinstance(value, float) else str(value)


def _coded(values: Mapping[str, str]) -> dict[str, str]:
    return {name: json.dumps(value, ensure_ascii=False) for name, value in values.items()}


def _object(texts: Mapping[str, str]) -> str:
    """A JSON object of values as texts."""
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in texts.items()) + "}"
