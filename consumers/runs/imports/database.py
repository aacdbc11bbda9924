"""A database of Prefect's server, read only: a SQLite file by the standard library, or PostgreSQL."""

from __future__ import annotations

import json
import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeAlias

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from ledger import BadFile, ServerUnavailable
from ledger.log.sql import Statements

SQL: Final = Statements(__package__, "prefect_database")
NEEDED: Final = ("flow", "flow_run", "flow_run_state", "task_run", "task_run_state")
"""Tables without which a database is none of Prefect's."""
_URL: Final = re.compile(r"postgres(?:ql)?(?:\+\w+)?://")
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*\Z")
_FIRST: Final = "00000000-0000-0000-0000-000000000000"

Row: TypeAlias = "dict[str, Any]"
"""A row by column: ids and times as text, JSON columns as values, truth values as such."""


class PrefectDatabase(ABC):
    """A database of Prefect's server. name: for messages, without a password."""

    name: str

    @abstractmethod
    def tables(self) -> set[str]:
        """The names of its tables."""

    @abstractmethod
    def count(self, table: str) -> int:
        """How many rows a table has; 0 if there is no such table."""

    @abstractmethod
    def page(self, table: str, after: str, limit: int) -> list[Row]:
        """The next rows in the order of their ids."""

    @abstractmethod
    def rows_with(self, table: str, column: str, values: Sequence[str], order: str = "id") -> list[Row]:
        """The rows with one of these values in a column, in the order of another column."""

    @abstractmethod
    def ids_by_age(self, table: str) -> list[str]:
        """The ids of all rows of a table, that of the oldest first."""

    def pages(self, table: str, size: int = 200, *, by_age: bool = False) -> Iterator[list[Row]]:
        """All rows of a table, in pages; none if there is no such table. by_age: the oldest first."""
        if table not in self.tables():
            return
        if by_age:
            ids = self.ids_by_age(table)
            yield from (
                self.rows_with(table, "id", ids[at : at + size], "created") for at in range(0, len(ids), size)
            )
            return
        after = _FIRST
        while rows := self.page(table, after, size):
            yield rows
            after = rows[-1]["id"]

    def check(self) -> None:
        """Raise BadFile if this is no database of Prefect's."""
        if missing := [name for name in NEEDED if name not in self.tables()]:
            raise BadFile(self.name, "", f"is no database of Prefect 3: it has no table {missing[0]}")


@contextmanager
def prefect_database(place: str) -> Iterator[PrefectDatabase]:
    """Open the database of a Prefect server: the path of a SQLite file, or a URL of PostgreSQL.

    Raises BadFile for what is no database of Prefect's, ServerUnavailable.
    """
    if _URL.match(place):
        try:
            with psycopg.connect(_URL.sub("postgresql://", place, count=1)) as connection:
                connection.read_only = True
                opened: PrefectDatabase = PostgresDatabase(connection)
                opened.check()
                yield opened
        except psycopg.OperationalError as error:
            raise ServerUnavailable(f"the database of Prefect cannot be read: {error}") from error
        return
    path = Path(place.removeprefix("sqlite+aiosqlite:///").removeprefix("sqlite:///")).expanduser()
    if not path.is_file():
        raise BadFile(str(path), "", "does not exist")
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
        file.row_factory = sqlite3.Row
        try:
            opened = SqliteDatabase(file, str(path))
            opened.check()
            yield opened
        except sqlite3.DatabaseError as error:
            raise BadFile(str(path), "", f"cannot be read as a SQLite database: {error}") from error


class SqliteDatabase(PrefectDatabase):
    """A SQLite file, opened for reading; a server may go on writing to it."""

    def __init__(self, file: sqlite3.Connection, name: str) -> None:
        self.name, self._file = name, file
        self._kinds: dict[str, dict[str, str]] = {}
        self._tables: set[str] | None = None

    def tables(self) -> set[str]:
        if self._tables is None:
            self._tables = {row[0] for row in self._file.execute(_filled("sqlite_tables"))}
        return self._tables

    def count(self, table: str) -> int:
        if table not in self.tables():
            return 0
        ((many,),) = self._file.execute(_filled("sqlite_count", table=table))
        return int(many)

    def page(self, table: str, after: str, limit: int) -> list[Row]:
        statement = _filled("sqlite_page", table=table)
        return self._read(table, statement, {"after": after, "limit": limit})

    def ids_by_age(self, table: str) -> list[str]:
        return [id for (id,) in self._file.execute(_filled("sqlite_ids", table=table))]

    def rows_with(self, table: str, column: str, values: Sequence[str], order: str = "id") -> list[Row]:
        if table not in self.tables() or not values:
            return []
        statement = _filled("sqlite_with", table=table, column=column, order=order)
        return self._read(table, statement, {"values": json.dumps(list(values))})

    def _read(self, table: str, statement: str, given: Mapping[str, Any]) -> list[Row]:
        kinds = self._kinds.get(table)
        if kinds is None:
            found = self._file.execute(_filled("sqlite_columns", table=table))
            kinds = self._kinds[table] = {name: kind.upper() for name, kind in found}
        return [
            {name: _read_value(row[name], kinds.get(name, "")) for name in row.keys()}  # noqa: SIM118
            for row in self._file.execute(statement, dict(given))
        ]


def _read_value(value: Any, kind: str) -> Any:
    """A value of a column with this declared type."""
    if value is None:
        return None
    match kind:
        case "JSON":
            return json.loads(value) if isinstance(value, str | bytes) else value
        case "BOOLEAN":
            return bool(value)
        case "DATETIME" | "TIMESTAMP":
            return f"{value}+00:00"
    return value


def _filled(name: str, **names: str) -> str:
    """A statement for SQLite with names in it, all of which are this module's own."""
    assert all(_NAME.match(one) for one in names.values())
    return SQL[name].template.format(**{key: f'"{value}"' for key, value in names.items()})


class PostgresDatabase(PrefectDatabase):
    """A PostgreSQL database; one snapshot of it, whatever its server goes on writing."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        info = connection.info
        self.name, self._connection = f"{info.host}/{info.dbname}", connection
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("SET TimeZone = 'UTC'")
        self._tables: set[str] | None = None

    def tables(self) -> set[str]:
        if self._tables is None:
            self._tables = {name for (name,) in self._rows("postgres_tables", {})}
        return self._tables

    def count(self, table: str) -> int:
        if table not in self.tables():
            return 0
        ((many,),) = self._rows("postgres_count", {}, table=table)
        return int(many)

    def page(self, table: str, after: str, limit: int) -> list[Row]:
        given = {"after": after, "limit": limit}
        return [row for (row,) in self._rows("postgres_page", given, table=table)]

    def ids_by_age(self, table: str) -> list[str]:
        return [id for (id,) in self._rows("postgres_ids", {}, table=table)]

    def rows_with(self, table: str, column: str, values: Sequence[str], order: str = "id") -> list[Row]:
        if table not in self.tables() or not values:
            return []
        # A literal takes the type of the column, so that the index of the column is used.
        given = {"values": "{" + ",".join(map(json.dumps, values)) + "}"}
        return [row for (row,) in self._rows("postgres_with", given, table=table, column=column, order=order)]

    def _rows(self, name: str, given: Mapping[str, Any], **names: str) -> list[tuple[Any, ...]]:
        statement = SQL[name].named(**{key: sql.Identifier(value) for key, value in names.items()})
        with self._connection.cursor(row_factory=tuple_row) as cursor:
            return cursor.execute(statement, given).fetchall()


def time_of(value: str | None) -> datetime | None:
    """A time of a row, aware, UTC."""
    return None if value is None else datetime.fromisoformat(value).astimezone(UTC)


def seconds_of(span: Any) -> float:
    """A span of a row in seconds: SQLite has it as a time after 1970, PostgreSQL as an interval."""
    if isinstance(span, int | float):
        return float(span)
    found = _SPAN.match(span or "")
    if found is None:
        return 0.0 if not span else datetime.fromisoformat(span).timestamp()
    days, sign, hours, minutes, seconds = found.groups()
    clock = int(hours) * 3600 + int(minutes) * 60 + float(seconds)
    return int(days or 0) * 86400 + (-clock if sign else clock)


_SPAN: Final = re.compile(r"(?:(-?\d+) days? ?)?(-)?(\d+):(\d\d):(\d\d(?:\.\d+)?)\Z")
