"""Rows of an operation, written in the transaction that ends it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from ledger import BadInput, Ledger
from ledger.store import sql
from ledger.store.dsn import resolve
from ledger.store.faults import ledger_errors

Connection = psycopg.Connection[Any]
Place = str | Connection | None
"""Where rows are written: a DSN, a connection of the user's, or None for the ledger's own database."""


class Writing:
    """An open transaction. result: kept in the fact of the end; progress: its progress_current, …_total."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.result: dict[str, Any] = {}
        self.progress: dict[str, int | None] = {}

    def execute(self, statement: Any, parameters: Any = None) -> psycopg.Cursor[Any]:
        """Execute a statement in the transaction."""
        return self.connection.execute(statement, parameters)


@contextmanager
def connected(ledger: Ledger, place: Place) -> Iterator[Connection]:
    """The connection on which rows are written; one of ours is closed afterwards.

    Raises BadInput where it is not of the ledger's database: two databases cannot commit together.
    """
    if isinstance(place, psycopg.Connection):
        _check(ledger, place)
        yield place
        return
    with ledger_errors():
        own = psycopg.connect(
            ledger.target.conninfo if place is None else resolve(place).conninfo, autocommit=True
        )
    try:
        if place is not None:
            _check(ledger, own)
        yield own
    finally:
        own.close()


def _check(ledger: Ledger, connection: Connection) -> None:
    if connection.info.transaction_status != TransactionStatus.IDLE:
        return  # that is refused, where the transaction is to begin
    try:
        statement = sql.statement("identity", ledger.schema)
        row = psycopg.Cursor(connection, row_factory=tuple_row).execute(statement).fetchone()
    except (
        psycopg.errors.UndefinedTable,
        psycopg.errors.UndefinedFunction,
        psycopg.errors.InvalidSchemaName,
    ):
        row = None
    finally:
        if not connection.autocommit:
            connection.rollback()
    if row is None or row[0] != ledger.identity.ledger:
        raise BadInput(
            "the connection is to another database than the ledger's: rows and events commit together in one "
            "database only; give a connection to the ledger's"
        )
