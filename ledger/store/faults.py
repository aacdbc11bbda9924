"""What PostgreSQL says, in the ledger's words: one place turns its errors into ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import psycopg_pool
from psycopg import errors as pg

from ..errors import (
    BadBody,
    DamagedLedger,
    EffectFailed,
    LedgerBusy,
    LedgerError,
    NoPermission,
    ReadOnly,
    Refused,
    SchemaMismatch,
    ServerUnavailable,
    StorageFull,
)

TRANSIENT = (pg.SerializationFailure, pg.DeadlockDetected)
"""The server rolled the transaction back for reasons of order: running it again is safe."""

_OURS = {
    "LG001": lambda e: EffectFailed(e.diag.message_detail or "?", e.diag.message_primary or ""),
    "LG003": lambda e: ReadOnly(e.diag.message_primary or ""),
    "LG005": lambda e: Refused(". ".join(filter(None, (e.diag.message_primary, e.diag.message_hint)))),
}


def translated(error: psycopg.Error) -> LedgerError | None:
    """The ledger's error for one of psycopg's, or None where it means a defect of ours."""
    if error.sqlstate in _OURS:
        return _OURS[error.sqlstate](error)
    said = (error.diag.message_primary or str(error)).strip().split("\n")[0]
    match error:
        case pg.ReadOnlySqlTransaction():
            return ReadOnly(f"the database takes no writes ({said}): connect to the primary, or end read-only mode")
        case pg.DiskFull():
            return StorageFull(f"the server's disk is full ({said}): free space; nothing was stored")
        case pg.InsufficientPrivilege():
            return NoPermission(f"{said}: grant the connecting role membership in the ledger's writer and reader roles")
        case pg.UndefinedTable() | pg.UndefinedFunction() | pg.InvalidSchemaName():
            return SchemaMismatch(f"{said}: run `pledger init` on this database")
        case pg.QueryCanceled() | pg.LockNotAvailable():
            return LedgerBusy(f"{said}: nothing was stored; try again")
        case pg.TooManyConnections() | psycopg_pool.PoolTimeout() | psycopg_pool.TooManyRequests():
            return LedgerBusy(f"no connection is free ({said}): raise the pool's size, or hold connections for shorter")
        case pg.SequenceGeneratorLimitExceeded():
            return DamagedLedger(f"{said}: all positions are used")
        case pg.UntranslatableCharacter() | pg.InvalidTextRepresentation() | pg.ProgramLimitExceeded():
            return BadBody(said)
        case pg.SerializationFailure() | pg.DeadlockDetected():
            return LedgerBusy(f"{said}: other transactions came between; nothing was stored; try again")
        case psycopg.OperationalError() | psycopg.InterfaceError():
            return ServerUnavailable(f"the server cannot be used just now: {said}")
    return None


@contextmanager
def ledger_errors() -> Iterator[None]:
    """Raise the ledger's errors instead of psycopg's."""
    try:
        yield
    except psycopg.Error as error:
        ours = translated(error)
        if ours is None:
            raise
        raise ours from error
