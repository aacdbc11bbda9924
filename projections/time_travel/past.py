"""A past: the schema that holds the ledger as of a position, and its description."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from psycopg import sql

from ledger.log.sql import Statement, Statements, run

from ..engine.copies import Connection

SQL = Statements(__package__, "past")


@dataclass(frozen=True, slots=True)
class Past:
    """The ledger as of a position, in a schema of its own.

    time: the requested time. views: the names of its views. parked: streams that a view leaves out. unfolded:
    streams whose state could not be folded, because an event cannot be read. whole: False if its maker was
    killed; then the numbers are 0. new: this call made it. beyond: the log ends before the requested moment.
    """

    schema: str
    position: int
    time: datetime | None = None
    made_at: datetime | None = None
    events: int = 0
    streams: int = 0
    views: tuple[str, ...] = ()
    parked: int = 0
    unfolded: int = 0
    whole: bool = False
    new: bool = False
    beyond: bool = False


def found(
    connection: Connection, schema: str, position: int | None = None
) -> Iterator[tuple[Past, tuple[int, dict[str, str]]]]:
    """Pasts by position, each with its last declaration and the definitions of its views."""
    owner = f"{schema}_owner"
    for name, at, whole in run(connection, schema, SQL.pasts, owner=owner, log=schema, position=position):
        if not whole:
            yield Past(name, at), (-1, {})
            continue
        row = connection.execute(text_of(SQL.past_row, schema, at)).fetchone()
        if row is not None:
            _, asked, made_at, events, streams, unfolded, declared, definitions, parked = row
            asked = None if asked is None else asked.astimezone(UTC)
            past = Past(name, at, asked, made_at.astimezone(UTC), events, streams, tuple(sorted(definitions)),
                        parked, unfolded, whole=True)  # fmt: skip
            yield past, (declared, definitions)


def dropped(connection: Connection, schema: str, position: int) -> bool:
    ((was,),) = run(connection, schema, SQL.drop_past, position=position)
    return bool(was)


def text_of(statement: Statement, schema: str, position: int, **more: sql.Composable) -> sql.Composed:
    return statement.named(
        schema=sql.Identifier(schema), past=sql.Identifier(f"{schema}_as_of_{position}"),
        reader=sql.Identifier(f"{schema}_reader"), position=sql.Literal(position), **more,
    )  # fmt: skip
