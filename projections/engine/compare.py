"""Comparing two copies of a view, row by row, in the server and in one snapshot."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from psycopg import sql

from ledger.log.install import views_schema
from ledger.log.sql import Statements, run

from .copies import Connection
from .view import View

SQL = Statements(__package__, "compare", "copies")


SHOWN: Final = 10
"""Rows of each kind that a comparison returns."""


@dataclass(frozen=True, slots=True)
class Difference:
    """How one table differs between two copies: the rows that only one of them has, counted, and some of
    them.

    A row that changed is in both. columns: those that only one of the copies has; they are not compared.
    """

    table: str
    only_old: int
    only_new: int
    old: tuple[dict[str, Any], ...] = ()
    new: tuple[dict[str, Any], ...] = ()
    columns: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """How many rows differ; one that changed counts once."""
        return max(self.only_old, self.only_new)


def differences(
    connection: Connection, schema: str, view: View, old: int, new: int, shown: int = SHOWN
) -> list[Difference]:
    """How copies `old` and `new` differ, table by table; empty where they are equal.

    shown: how many rows of each kind are returned. The caller ensures that both copies are at one position,
    in a transaction with one snapshot.
    """
    found = [_difference(connection, schema, table, old, new, shown) for table in view.table_names]
    return [difference for difference in found if difference.rows or difference.columns]


def _difference(
    connection: Connection, schema: str, table: str, old: int, new: int, shown: int
) -> Difference:
    first, second = (_columns(connection, schema, f"{table}_{number}") for number in (old, new))
    common = [name for name in second if first.get(name) == second[name]]
    other = sorted({*first, *second} - set(common))
    gone, come = (
        _only(connection, schema, common, table, here, there, shown)
        for here, there in ((old, new), (new, old))
    )
    return Difference(table, gone[0], come[0], gone[1], come[1], tuple(other))


def _only(
    connection: Connection, schema: str, columns: list[str], table: str, here: int, there: int, shown: int
) -> tuple[int, tuple[dict[str, Any], ...]]:
    """How many rows only the copy `here` has, and some of them."""
    if not columns:
        return 0, ()
    place = views_schema(schema)
    parts = {
        "columns": sql.SQL(", ").join(map(sql.Identifier, columns)),
        "here": sql.Identifier(place, f"{table}_{here}"),
        "there": sql.Identifier(place, f"{table}_{there}"),
    }
    rows = connection.execute(SQL.only_one_has.named(**parts), {"shown": shown}).fetchall()
    return (int(rows[0][1]) if rows else 0), tuple(json.loads(row) for row, _ in rows)


def _columns(connection: Connection, schema: str, table: str) -> dict[str, str]:
    name = sql.Identifier(views_schema(schema), table).as_string()
    rows = run(connection, schema, SQL.columns, table=name)
    return {column: kind for column, kind, _ in rows if column != "copy"}
