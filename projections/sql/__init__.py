"""The SQL of the projections: named statements, and the definitions of the shipped views."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from ledger.store.sql import filled, named

__all__ = ["query", "statement", "template", "view"]

_HERE = files(__package__)


@cache
def statement(name: str, schema: str) -> sql.Composed:
    """The statement of this name, on the ledger in `schema`; `{views}` is the schema of its views."""
    return filled(_statements()[name], schema)


def template(name: str) -> LiteralString:
    """The statement of this name with all its names still in braces, for a caller who has more of them."""
    return _statements()[name]


def query(
    connection: psycopg.Connection[Any], schema: str, name: str, **parameters: Any
) -> list[tuple[Any, ...]]:
    """The rows of a named statement; none of one that has no rows."""
    cursor = psycopg.Cursor(connection, row_factory=tuple_row)
    cursor.execute(_text(name, schema), parameters or None)
    return cursor.fetchall() if cursor.description else []


@cache
def _text(name: str, schema: str) -> bytes:
    """A statement as bytes: what psycopg would make of it at every call."""
    return statement(name, schema).as_bytes()


@cache
def view(name: str) -> Mapping[str, LiteralString]:
    """The parts of a shipped view, from `views/NAME.sql`: tables, indexes, apply…, forget…, reads."""
    return named(_HERE / "views" / f"{name}.sql")


@cache
def _statements() -> dict[str, LiteralString]:
    return named(*sorted((e for e in _HERE.iterdir() if e.name.endswith(".sql")), key=lambda e: e.name))
