"""For tests that lay down who does what when: appends on given connections, the owner at work."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, LiteralString

import psycopg

from ledger import Appended, Ledger, Recorded
from tests.faults.readers import bound_then_rows
from tests.lamp import LampRead

Connection = psycopg.Connection[Any]


def put(log: Ledger, connection: Connection, stream: str = "lamp/a", count: int = 1) -> Appended:
    """Append in the transaction of a connection, which stays open unless the connection is in autocommit."""
    own = connection.transaction() if connection.autocommit else nullcontext()
    with own, log.join(connection) as joined:
        joined.append(stream, *[LampRead()] * count)
    assert joined.appended is not None
    return joined.appended


def as_owner(
    connection: Connection, statement: LiteralString, *parameters: Any, schema: str = "ledger"
) -> None:
    """Run a statement as the ledger's owner, in the ledger's schema."""
    with connection.transaction():
        connection.execute(f"SET LOCAL ROLE {schema}_owner")
        connection.execute(f"SET LOCAL search_path = {schema}")
        connection.execute(statement, parameters)


def look(log: Ledger, cursor: int = 0) -> list[int]:
    """The positions that the right way of reading delivers now."""
    return [row.position for row in bound_then_rows(log, cursor, lambda: None, 1000)]


def positions(rows: list[Recorded]) -> list[int]:
    return [row.position for row in rows]


def advisory_locks(connection: Connection, database: str) -> list[Any]:
    """Every advisory lock of the database: marks, the moment's lock, commands; held or waited for."""
    query = (
        "SELECT l.pid, l.classid::bigint, l.objid::bigint, l.granted FROM pg_locks l"
        " JOIN pg_database d ON d.oid = l.database WHERE l.locktype = 'advisory' AND d.datname = %s"
    )
    return connection.execute(query, [database]).fetchall()


def deadlocks(connection: Connection, database: str) -> int:
    """How often the server had to break a deadlock in the database."""
    row = connection.execute(
        "SELECT deadlocks FROM pg_stat_database WHERE datname = %s", [database]
    ).fetchone()
    assert row is not None
    return int(row[0])
