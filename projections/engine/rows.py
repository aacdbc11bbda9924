"""The rows of a view's tables, page by page in the order of their positions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from psycopg import Cursor, sql
from psycopg.rows import tuple_row

from ledger import BadInput, Ledger, TablesMissing
from ledger.errors import shown
from ledger.log.install import views_schema
from ledger.log.sql import Statements

from .projector import views_named

SQL = Statements(__package__, "rows")
MAX_ROWS: Final = 1000
"""Rows of a page, at most; more only where rows have one position."""


class Row(NamedTuple):
    """A row: its position, for the next page, and all its columns as JSON text."""

    position: int
    text: str


def rows(
    ledger: Ledger,
    view: str,
    table: str | None = None,
    *,
    where: Mapping[str, str] | None = None,
    after: int = 0,
    limit: int = 100,
) -> list[Row]:
    """The rows of one of a view's tables (by default the first) after a position, as fresh as the view.

    where: values that columns must have, as text. limit: 1 to 1,000. Raises UnknownView, BadInput for another
    table or one without positions, TablesMissing.
    """
    if type(limit) is not int or not 1 <= limit <= MAX_ROWS:
        raise BadInput(f"limit {shown(limit)} must be from 1 to {MAX_ROWS}")
    name = _table(view, table)
    place = sql.Identifier(views_schema(ledger.schema), name)
    conditions = [SQL.after_where.named()]
    for column, value in (where or {}).items():
        conditions.append(SQL.equal_where.named(column=sql.Identifier(column), value=sql.Literal(value)))
    text = SQL.page.named(table=place, conditions=sql.SQL(" AND ").join(conditions))
    with ledger.reader() as connection:
        cursor = Cursor(connection, row_factory=tuple_row)
        _check(cursor, view, name, place.as_string(connection), where or {})
        found = cursor.execute(text, {"after": after, "limit": limit}).fetchall()
    return [Row(*row) for row in found]


def _table(view: str, table: str | None) -> str:
    """The table that is meant. Raises UnknownView, BadInput."""
    (known,) = views_named([view])
    names = known.table_names
    if table not in (None, *names):
        raise BadInput(f"view {view} has no table {shown(table)}; its tables: {', '.join(names)}")
    return table or names[0]


def _check(cursor: Cursor[tuple[Any, ...]], view: str, table: str, place: str, where: Iterable[str]) -> None:
    """Raise TablesMissing, or BadInput for a table whose rows have no position, or no such column."""
    columns = [name for (name,) in cursor.execute(SQL.columns.named(), {"table": place}).fetchall()]
    if not columns:
        raise TablesMissing(view, [table])
    if "position" not in columns:
        raise BadInput(f"the rows of {table} have no position, so they cannot be paged: read them by SQL")
    for column in where:
        if column not in columns:
            raise BadInput(f"{table} has no column {shown(column)}; its columns: {', '.join(columns)}")
