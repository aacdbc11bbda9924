"""For administrators: make a ledger, and find out quickly why one cannot be used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from ..embedded import Embedded
from ..errors import SchemaMismatch
from . import install
from . import sql as statements
from .connection import opened
from .dsn import EMBEDDED, Address, chosen, printable, resolve
from .install import Identity
from .ledger import Ledger, connect
from .server_errors import ledger_errors


@dataclass(frozen=True, slots=True)
class Initialised:
    """What `initialise` found and made. before: the schema number that was there, None for a new ledger."""

    identity: Identity
    printable: str
    source: str
    schema: str
    before: int | None


def initialise(dsn: str | None = None, schema: str = "ledger") -> Initialised:
    """Make the ledger in the database that `dsn` (else the environment) names, or upgrade it to this code.

    Repeating it changes nothing. Raises SchemaMismatch, NoPermission, ServerUnavailable, BadName.
    """
    install.checked_schema(schema)
    address = resolve(dsn)
    with single_connection(address) as connection:
        before = schema_number(connection, schema)
        identity = install.init(connection, schema)
    return Initialised(identity, address.printable, address.source, schema, before)


def attach(
    dsn: str | None, schema: str, actor: str | None = None, *, max_size: int = 4, timeout: float = 30.0
) -> Ledger:
    """A ledger for one command: made nowhere, and refused at once, with the reason, where it cannot be used.

    max_size, timeout: as of `connect`.
    A pool would try a server that is not there for all its timeout; a single connection says why not.
    Raises SchemaMismatch where the database holds no ledger, ServerUnavailable, DamagedLedger.
    """
    install.checked_schema(schema)
    address = existing(dsn)
    with single_connection(address) as connection:
        if not install.is_there(connection, schema):
            raise SchemaMismatch(
                f"{address.printable} has no ledger in schema {schema!r}: run `pledger init`"
            )
    return connect(dsn, schema=schema, actor=actor, create=False, max_size=max_size, timeout=timeout)


def existing(dsn: str | None) -> Address:
    """The database, but no embedded server is made for the sake of looking at it."""
    named, _ = chosen(dsn)
    home = embedded_home(named)
    if home is not None and not Embedded(home).is_made():
        raise SchemaMismatch(f"{printable(named)} has no server and no ledger: run `pledger init`")
    return resolve(dsn)


def embedded_home(dsn: str) -> Path | None:
    """The folder of the server that an `embedded:` DSN names, None for another DSN."""
    if not dsn.startswith(EMBEDDED):
        return None
    path = dsn.removeprefix(EMBEDDED)
    return Embedded(Path(path) if path else None).home


@contextmanager
def single_connection(address: Address) -> Iterator[psycopg.Connection[Any]]:
    """One connection in autocommit, outside any pool, so that the server's own reason is heard."""
    with ledger_errors():
        connection = opened(address.conninfo, application_name="pledger", prepare_threshold=None)
    with connection, ledger_errors():
        yield connection


def schema_number(connection: psycopg.Connection[Any], schema: str) -> int | None:
    """The schema number of the ledger that is there, None where there is none."""
    if not install.is_there(connection, schema):
        return None
    row = connection.execute(statements.statement("known_schema_number", schema)).fetchone()
    return None if row is None else int(row[0])
