"""A transitions table of another system: its columns, its faults, its rows in order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from ..errors import BadInput, shown
from ..log.connection import opened
from ..log.server_errors import ledger_errors
from ..log.sql import Statements

SQL = Statements(__package__, "transitions_table")
Connection = psycopg.Connection[Any]
ROLES: Final = ("to_state", "sort_key", "most_recent", "created_at", "metadata", "from_state")
"""The roles that a column may have. A table must have all but the last two, unless they are set to None."""
NEEDED: Final = ("to_state", "sort_key")
OPTIONAL: Final = ("metadata", "from_state")
PASSED_OVER: Final = frozenset({"id", "updated_at"})
"""Columns of that layout that do not describe a move."""
PAGE: Final = 2000
"""Rows that are fetched at once."""
NAMED: Final = 20
"""Maximum number of faults that are named; further ones are only counted."""
_WHOLE = frozenset({"smallint", "integer", "bigint"})
_NUMBERS = frozenset({"numeric", "real", "double precision"})
_TIMES = frozenset({"timestamp with time zone", "timestamp without time zone", "date"})
_KEPT = {"first": sql.Literal("0001-01-02 00:00+00"), "last": sql.Literal("9999-12-30 00:00+00")}


class Row(NamedTuple):
    """One transition. key: of the object. at: created_at. metadata: with the further columns."""

    key: tuple[str | int, ...]
    to_state: str
    sort_key: str
    at: datetime | None
    from_state: str | None
    metadata: Mapping[str, Any]


class TableFault(NamedTuple):
    """A row that cannot become a move, or that contradicts others. parent: its parent columns."""

    parent: Mapping[str, str | None]
    sort_key: str | None
    wrong: str

    def __str__(self) -> str:
        place = ", ".join(f"{name} {value}" for name, value in self.parent.items())
        return f"{place}, sort_key {self.sort_key}: {self.wrong}"


@dataclass(frozen=True, slots=True)
class TransitionsTable:
    """A table as it was found. roles: the column of each role. further: the other columns."""

    name: str
    relation: sql.Identifier
    types: Mapping[str, str]
    parents: tuple[str, ...]
    roles: Mapping[str, str]
    further: tuple[str, ...]
    zone: str

    def size(self, connection: Connection) -> int:
        """The number of rows."""
        return int(_run(connection, "size", {"table": self.relation})[0][0])

    def faults(
        self, connection: Connection, states: Sequence[str] | None = None
    ) -> tuple[int, list[TableFault]]:
        """The number of faults, and the first of them. states: the states of the machine."""
        given = {"timed": "created_at" in self.roles, "states": states and [*states], "limit": NAMED}
        rows = _run(connection, "faults", self._parts(), given)
        found = [
            TableFault(dict(zip(self.parents, key, strict=True)), place, wrong)
            for key, place, wrong, _ in rows
        ]
        return (rows[0][3] if rows else 0), found

    def rows(self, connection: Connection) -> Iterator[Row]:
        """The rows, object by object in the order of sort_key, read by a server-side cursor.

        Rows without a parent, a state or a sort_key are left out. A time out of range is None.
        """
        with connection.cursor("transitions", row_factory=tuple_row) as cursor:
            cursor.itersize = PAGE
            cursor.execute(SQL.rows.named(**self._parts()))
            for to_state, at, from_state, metadata, further, sort_key, *key in cursor:
                every = {**_metadata(metadata), **_further(further)}
                yield Row(
                    tuple(key), to_state, sort_key, at and at.astimezone(UTC), from_state or None, every
                )

    def _parts(self) -> dict[str, sql.Composable]:
        """The values for the braces of the statements."""
        parents = [_column(name) for name in self.parents]
        keys = [
            _part("as_it_is" if self.types[name] in _WHOLE else "as_text", column=_column(name))
            for name in self.parents
        ]
        comma = sql.SQL(", ")
        return {
            "table": self.relation,
            "parents": comma.join(parents),
            "keys": comma.join(keys),
            "texts": comma.join(_part("as_text", column=one) for one in parents),
            "sort_key": _column(self.roles["sort_key"]),
            "to_state": _column(self.roles["to_state"]),
            "from_state": self._role("from_state", "not_empty", "no_text"),
            "recent": self._role("most_recent", "as_flag", "no_flag"),
            "metadata": self._role("metadata", "as_text", "no_text"),
            "at": self._time(),
            "further": self._further(),
            **_KEPT,
        }

    def _role(self, role: str, there: str, missing: str) -> sql.Composable:
        if role not in self.roles:
            return _part(missing)
        return _part(there, column=_column(self.roles[role]))

    def _time(self) -> sql.Composable:
        name = self.roles.get("created_at")
        if name is None:
            return _part("no_time")
        if self.types[name] == "timestamp with time zone":
            return _part("as_time", column=_column(name))
        return _part("as_time_in", column=_column(name), zone=sql.Literal(self.zone))

    def _further(self) -> sql.Composable:
        if not self.further:
            return _part("no_text")
        columns = [
            _part(
                "as_named_text" if self.types[name] == "numeric" else "as_it_is",
                column=_column(name),
                name=sql.Identifier(name),
            )
            for name in self.further
        ]
        return _part("as_object", columns=sql.SQL(", ").join(columns))


@contextmanager
def table_snapshot(conninfo: str) -> Iterator[Connection]:
    """A connection in a read-only transaction that sees one snapshot of the table."""
    with ledger_errors():
        connection = opened(
            conninfo, application_name="pledger adopt", autocommit=False, prepare_threshold=None
        )
    with connection, ledger_errors():
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        _run(connection, "session", {})
        yield connection


def find_table(
    connection: Connection,
    table: str,
    parent: str | Sequence[str],
    columns: Mapping[str, str | None],
    zone: str,
) -> TransitionsTable:
    """The table of this name. columns: the column of each role with another name; None or "" if it has none.

    Raises BadInput if the table or a column is missing, or of the wrong type.
    """
    parents = (parent,) if isinstance(parent, str) else tuple(parent)
    relation, types = _catalog(connection, table)
    roles = _roles(table, types, columns)
    if not parents:
        raise BadInput(
            f"name the column of {table} that identifies the object that moves, such as --parent payment_id"
        )
    for name in parents:
        _check_column(table, name, types)
    taken = {*roles.values(), *parents} | (PASSED_OVER - set(columns.values()))
    further = tuple(name for name in types if name not in taken)
    return TransitionsTable(table, relation, types, parents, roles, further, zone)


def _catalog(connection: Connection, table: str) -> tuple[sql.Identifier, dict[str, str]]:
    """The table's identifier, and the types of its columns."""
    try:
        rows = _run(connection, "relation", {}, {"table": table})
    except (psycopg.errors.InvalidName, psycopg.errors.SyntaxError, psycopg.errors.FeatureNotSupported):
        rows = []
    if not rows:
        raise BadInput(
            f"this database has no table {shown(table)} in its search_path: "
            'write the name as in SQL, such as billing.payment_transitions or "PaymentTransitions"'
        )
    return sql.Identifier(*rows[0]), dict(_run(connection, "columns", {}, {"table": table}))


def _roles(table: str, types: Mapping[str, str], columns: Mapping[str, str | None]) -> dict[str, str]:
    """The column of each role that the table has. Raises BadInput."""
    for role in columns:
        if role not in ROLES:
            raise BadInput(f"{shown(role)} is not the role of a column: the roles are {', '.join(ROLES)}")
    roles = {}
    for role in ROLES:
        name = columns.get(role, role)
        if not name and role in NEEDED:
            raise BadInput(f"a history needs a {role}: name its column")
        if not name or (role in OPTIONAL and role not in columns and role not in types):
            continue
        _check_column(table, name, types, role)
        roles[role] = name
    _check_type(table, "created_at", roles.get("created_at"), types, _TIMES, "a time")
    _check_type(table, "sort_key", roles["sort_key"], types, _WHOLE | _NUMBERS, "a number")
    return roles


def _check_type(
    table: str, role: str, name: str | None, types: Mapping[str, str], right: frozenset[str], what: str
) -> None:
    if name is not None and types[name] not in right:
        raise BadInput(f"column {shown(name)} of {table} is a {types[name]}; {role} must be {what}")


def _check_column(table: str, name: str, types: Mapping[str, str], role: str = "") -> None:
    if name in types:
        return
    near = get_close_matches(name, [*types], n=3, cutoff=0.6)
    meant = f" (did you mean {' or '.join(near)}?)" if near else ""
    way = f"; name the one that says {role}: --columns {role}=COLUMN" if role else ""
    raise BadInput(f"{table} has no column {shown(name)}{meant}; it has {', '.join(types)}{way}")


def _run(
    connection: Connection,
    name: str,
    parts: Mapping[str, sql.Composable],
    given: Mapping[str, Any] | None = None,
) -> list[tuple[Any, ...]]:
    cursor = psycopg.Cursor(connection, row_factory=tuple_row)
    return cursor.execute(SQL[name].named(**parts), given).fetchall()


def _column(name: str) -> sql.Identifier:
    """A column, qualified so that no selected name can hide it."""
    return sql.Identifier("t", name)


def _part(name: str, /, **parts: sql.Composable) -> sql.Composable:
    return SQL[name].named(**parts)


def _number(text: str) -> float | str:
    """A float; the text if no float holds the number."""
    made = float(text)
    return made + 0.0 if Decimal(text) == Decimal(repr(made)) else text


_read = json.JSONDecoder(parse_float=_number).decode


def _metadata(text: str | None) -> dict[str, Any]:
    """The JSON object in a metadata column; any other value under `metadata`."""
    if text is None:
        return {}
    try:
        value = _read(text)
    except ValueError:
        value = text
    return value if isinstance(value, dict) else {} if value in (None, "") else {"metadata": value}


def _further(text: str | None) -> dict[str, Any]:
    """The values of the further columns without NULLs."""
    if text is None:
        return {}
    return {name: value for name, value in _read(text).items() if value is not None}
