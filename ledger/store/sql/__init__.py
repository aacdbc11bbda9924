"""SQL has a home: named statements for the code, the schema, its migrations and functions for installing."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import LiteralString, NamedTuple, cast

from psycopg import sql

__all__ = [
    "Script",
    "filled",
    "functions",
    "grants",
    "migrations",
    "named",
    "numbered",
    "schema",
    "statement",
    "text",
]

_HERE = files(__package__)
_BLOCK = re.compile(r"^-- name: (\w+)\n((?:--.*\n)+)", re.MULTILINE)


class Script(NamedTuple):
    """One SQL file: its number (0 where it has none), its name and its text."""

    number: int
    name: str
    text: LiteralString


@cache
def statement(name: str, schema: str, role: str = "") -> sql.Composed:
    """The statement of this name in queries.sql or its neighbours, on the ledger in `schema`."""
    return filled(_statements()[name], schema, role)


def filled(template: LiteralString, schema: str, role: str = "") -> sql.Composed:
    """A statement with a ledger's names in it: `{schema}`, `{views}` (the schema of its views), its roles."""
    sequence = sql.Literal(sql.Identifier(schema, "positions").as_string())
    return sql.SQL(template).format(
        schema=sql.Identifier(schema), sequence=sequence, role=sql.Identifier(f"{schema}_{role}"),
        views=sql.Identifier(f"{schema}_views"), reader=sql.Identifier(f"{schema}_reader"),
        owner=sql.Identifier(f"{schema}_owner"), projector=sql.Identifier(f"{schema}_projector"),
    )  # fmt: skip


@cache
def text(name: str, schema: str) -> bytes:
    """The same as bytes: what psycopg would make of it at every call."""
    return statement(name, schema).as_bytes()


@cache
def numbered(name: str, schema: str) -> bytes:
    """The same with $1, $2, … for its parameters in order, as libpq wants it."""
    parts = re.split(rb"%[sb]", text(name, schema))
    return b"".join(part + b"$%d" % i for i, part in enumerate(parts[:-1], 1)) + parts[-1]


def migrations() -> list[Script]:
    """The numbered migrations, in order."""
    return [script for script in _scripts("migrations") if script.number]


def functions() -> list[Script]:
    """The scripts of functions, triggers and grants, replaced at every installation, in order."""
    return _scripts("functions")


def schema() -> LiteralString:
    """The tables of a new ledger."""
    return _read(_HERE / "schema.sql")


def grants() -> sql.SQL:
    """Who may do what; wants the ledger's schema and roles."""
    return sql.SQL(_read(_HERE / "grants.sql"))


def named(*files: Traversable) -> dict[str, LiteralString]:
    """The statements in SQL files, by name. Raises ValueError where two have one name."""
    found: dict[str, LiteralString] = {}
    for file in files:
        parts = _BLOCK.split(_read(file))[1:]
        for name, body in zip(parts[::3], parts[2::3], strict=True):
            if name in found:
                raise ValueError(f"two statements are named {name}")
            found[name] = cast("LiteralString", body.strip().rstrip(";"))
    return found


@cache
def _statements() -> dict[str, LiteralString]:
    files = ("queries", "scopes", "leases", "batches", "declaring", "install", "admin", "recorders")
    return named(*(_HERE / f"{file}.sql" for file in files))


def _scripts(folder: str) -> list[Script]:
    found = [
        Script(int(re.match(r"\d*", entry.name)[0] or 0), entry.name.removesuffix(".sql"), _read(entry))  # type: ignore[index]
        for entry in (_HERE / folder).iterdir()
        if entry.name.endswith(".sql")
    ]
    return sorted(found)


def _read(entry: object) -> LiteralString:
    # The files ship with this package; this is the one place that vouches for them.
    return cast("LiteralString", entry.read_text(encoding="utf-8"))  # type: ignore[attr-defined]
