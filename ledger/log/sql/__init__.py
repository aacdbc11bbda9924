"""
SQL in files: named statements beside the code that runs them, and the scripts that install a ledger.

    SQL = Statements(__package__, "claim")                  # claim.sql beside this module
    rows = ledger.query(SQL.take_leases, limit=5)           # on a connection of the ledger's pool
    rows = ledger.query(SQL.take_leases, on=connection, limit=5)
    rows = run(connection, schema, SQL.take_leases, limit=5)  # with a connection and a schema only

In a file each statement begins with a line `-- name: take_leases` and a comment with its purpose. It names
the ledger's schema as `{schema}`, the schema of its views as `{views}`, parameters as `%(limit)s`.
"""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, LiteralString, NamedTuple, cast

import psycopg
from psycopg import pq, sql
from psycopg.rows import tuple_row

from ..connection import may_prepare

__all__ = [
    "Script",
    "Statement",
    "Statements",
    "filled",
    "functions",
    "grants",
    "migrations",
    "named",
    "run",
    "statement",
]

_HERE = files(__package__)
_OLDEST = re.compile(r"^-- oldest code: (\d+)$", re.MULTILINE)
_BLOCK = re.compile(r"^-- name: (\w+)\n((?:--.*\n)+)", re.MULTILINE)


class Script(NamedTuple):
    """One SQL file: its number (0 where it has none), its name and its text."""

    number: int
    name: str
    text: LiteralString

    @property
    def oldest_code(self) -> int | None:
        """Of a migration that adds only: N of its line `-- oldest code: N`, else None.

        Code that knows schema N or more works on a ledger to which this migration was applied. The line is a
        promise about the functions of the same release, too: none that such code calls is gone or changed.
        """
        found = _OLDEST.search(self.text)
        return int(found[1]) if found else None


class Statement:
    """A named statement of an SQL file."""

    __slots__ = ("_prepared", "_texts", "name", "template")

    def __init__(self, name: str, template: LiteralString) -> None:
        self.name, self.template = name, template
        self._texts: dict[str, bytes] = {}
        self._prepared: dict[str, tuple[bytes, bytes]] = {}

    def __repr__(self) -> str:
        return f"<Statement {self.name}>"

    def filled(self, schema: str) -> sql.Composed:
        """The statement on the ledger in `schema`, to compose with other SQL."""
        return filled(self.template, schema)

    def named(self, **names: sql.Composable) -> sql.Composed:
        """The statement with these names in it, and no others."""
        return sql.SQL(self.template).format(**names)

    def text(self, schema: str) -> bytes:
        """The same as bytes; made once for each schema."""
        text = self._texts.get(schema)
        if text is None:
            text = self._texts[schema] = self.filled(schema).as_bytes()
        return text

    def prepared(self, schema: str) -> tuple[bytes, bytes]:
        """The name under which a server's session keeps the statement, and its text with $1, $2, … in it.

        A proxy can lead clients of other ledgers, and of other versions of this code, to one session: so the
        name begins with a digest of the text, in which the schema stands. PostgreSQL tells names apart by 63
        bytes.
        """
        prepared = self._prepared.get(schema)
        if prepared is None:
            parts = re.split(rb"%[sb]", self.text(schema))
            text = b"".join(part + b"$%d" % i for i, part in enumerate(parts[:-1], 1)) + parts[-1]
            name = f"{sha256(text).hexdigest()[:16]}_{self.name}_{schema}".encode()[:63]
            prepared = self._prepared[schema] = name, text
        return prepared


class Statements:
    """The statements in SQL files beside a package's modules, as attributes; read when first wanted."""

    def __init__(self, package: str | None, *files: str) -> None:
        """package: `__package__`; files: their names without `.sql`."""
        self._package, self._files = package, files
        self._all: dict[str, Statement] | None = None

    def __getattr__(self, name: str) -> Statement:
        if name.startswith("__"):
            raise AttributeError(name)
        statement = self[name]
        setattr(self, name, statement)
        return statement

    def __getitem__(self, name: str) -> Statement:
        """The statement of a name that is computed. Raises AttributeError where there is none."""
        if self._all is None:
            here = files(self._package or "")
            found = named(*(here / f"{file}.sql" for file in self._files))
            self._all = {name: Statement(name, template) for name, template in found.items()}
        try:
            return self._all[name]
        except KeyError:
            raise AttributeError(f"no statement {name} in {', '.join(self._files)}.sql") from None


def run(
    connection: psycopg.Connection[Any], schema: str, statement: Statement, /, **parameters: Any
) -> list[tuple[Any, ...]]:
    """The rows of a statement, as tuples whatever the connection is set to; none of one that returns none.

    It is one command, and prepared on its first use where no proxy forbids it. Several commands in one
    statement: `connection.execute(statement.text(schema))`.
    """
    cursor = psycopg.Cursor(connection, row_factory=tuple_row)
    cursor.execute(statement.text(schema), parameters or None, prepare=may_prepare(connection), binary=True)
    result = cursor.pgresult  # `SELECT FROM …` has rows without columns
    return cursor.fetchall() if result is not None and result.status == pq.ExecStatus.TUPLES_OK else []


@cache
def statement(name: str, schema: str, role: str = "") -> sql.Composed:
    """The statement of this name in install.sql or admin.sql, on the ledger in `schema`."""
    return filled(_statements()[name], schema, role)


def filled(template: LiteralString, schema: str, role: str = "") -> sql.Composed:
    """A statement with a ledger's names in it: `{schema}`, `{views}` (the schema of its views), its roles."""
    sequence = sql.Literal(sql.Identifier(schema, "positions").as_string())
    return sql.SQL(template).format(
        schema=sql.Identifier(schema), sequence=sequence, role=sql.Identifier(f"{schema}_{role}"),
        views=sql.Identifier(f"{schema}_views"), effects=sql.Identifier(f"{schema}_effects"),
        reader=sql.Identifier(f"{schema}_reader"),
        owner=sql.Identifier(f"{schema}_owner"), projector=sql.Identifier(f"{schema}_projector"),
    )  # fmt: skip


def migrations() -> list[Script]:
    """The numbered migrations, in order."""
    return [script for script in _scripts("migrations") if script.number]


def functions() -> list[Script]:
    """The scripts of functions, triggers and grants, replaced at every installation, in order."""
    return _scripts("functions")


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
    files = ("install", "admin")
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
