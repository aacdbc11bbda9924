"""Translates PostgreSQL's errors into the ledger's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import psycopg
import psycopg_pool
from psycopg import errors as pg

from ..errors import (
    BadBody,
    BadInput,
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
from .connection import CommitRefused

TRANSIENT = (pg.SerializationFailure, pg.DeadlockDetected)
"""The server rolled the transaction back for reasons of order: running it again is safe."""

# The errors of the ledger's own functions: class, and the parts of the message that it takes.
_OURS: dict[str, Callable[[psycopg.Error], LedgerError]] = {
    "LG001": lambda e: EffectFailed(e.diag.message_detail or "?", e.diag.message_primary or ""),
    "LG003": lambda e: ReadOnly(e.diag.message_primary or ""),
    "LG006": lambda e: DamagedLedger(e.diag.message_primary or ""),
    "LG005": lambda e: Refused(". ".join(filter(None, (e.diag.message_primary, e.diag.message_hint)))),
}

# The message of a full server to a new connection; the driver keeps no code of it.
_CROWDED = ("too many clients", "connection slots are reserved", "too many connections for")

# A name in the views' own schema.
_OF_VIEWS = re.compile(r'_views"?\.')

# What PostgreSQL and its driver raise. The first line that fits is taken: subclasses before their bases.
_THEIRS: tuple[tuple[tuple[type[psycopg.Error], ...], type[LedgerError], str], ...] = (
    (
        (pg.ReadOnlySqlTransaction,),
        ReadOnly,
        "the database accepts no writes ({}): connect to the primary, or end read-only mode",
    ),
    ((pg.DiskFull,), StorageFull, "the server's disk is full ({}): free some space; nothing was stored"),
    (
        (pg.InsufficientPrivilege,),
        NoPermission,
        "{}: grant the connecting role membership in the ledger's writer and reader roles, to keep views "
        "also in its projector role",
    ),
    (
        (pg.UndefinedTable, pg.UndefinedFunction, pg.InvalidSchemaName),
        SchemaMismatch,
        "{}: run `pledger init` on this database",
    ),
    (
        (pg.IdleInTransactionSessionTimeout,),
        LedgerBusy,
        "{}: its statements took too long while others waited; nothing was stored",
    ),
    ((pg.QueryCanceled, pg.LockNotAvailable), LedgerBusy, "{}: nothing was stored; try again"),
    (
        (pg.TooManyConnections, psycopg_pool.PoolTimeout, psycopg_pool.TooManyRequests),
        LedgerBusy,
        "no connection is free ({}): raise max_size, or release connections sooner",
    ),
    ((pg.SequenceGeneratorLimitExceeded,), DamagedLedger, "{}: all positions are used"),
    ((pg.UntranslatableCharacter, pg.InvalidTextRepresentation, pg.ProgramLimitExceeded), BadBody, "{}"),
    (TRANSIENT, LedgerBusy, "{}: other transactions interfered; nothing was stored; try again"),
    (
        (pg.InFailedSqlTransaction,),
        BadInput,
        "{}: an earlier statement of this transaction failed; roll it back, fully or to a savepoint",
    ),
    (
        (pg.CheckViolation, pg.NotNullViolation),
        BadInput,
        "{}: an event needs a topic, and either data or raw",
    ),
    (
        (psycopg.OperationalError, psycopg.InterfaceError),
        ServerUnavailable,
        "the server cannot be used at the moment: {}",
    ),
    (
        (pg.NumericValueOutOfRange, pg.InvalidRowCountInLimitClause, pg.CharacterNotInRepertoire),
        BadInput,
        "{}: nothing was stored",
    ),
)


def translated(error: psycopg.Error) -> LedgerError | None:
    """The ledger's error for one of psycopg's, or None where it means a defect of ours."""
    if error.sqlstate in _OURS:
        return _OURS[error.sqlstate](error)
    if isinstance(error, CommitRefused):
        return EffectFailed(_deferred(error.reason.diag), error.reason.diag.message_primary or "")
    said = (error.diag.message_primary or str(error)).strip().split("\n")[0]
    if error.diag.constraint_name == "events_position":
        return DamagedLedger(
            f"{said}: the sequence of positions is behind the events: stop all appends, and run `pledger "
            "doctor`"
        )
    if error.sqlstate is None and any(words in said for words in _CROWDED):
        return LedgerBusy(f"the server has no free connection ({said}): try again, or raise max_connections")
    if isinstance(error, pg.UndefinedTable | pg.UndefinedFunction) and _OF_VIEWS.search(said):
        return SchemaMismatch(
            f"{said}: it belongs to a view that does not exist yet: run `pledger views follow NAME` with "
            "the view's name, such as in_state, or let appends update it with `pledger views attach NAME`"
        )
    for kinds, ours, sentence in _THEIRS:
        if isinstance(error, kinds):
            return ours(sentence.format(said))
    if error.sqlstate is None and isinstance(error, psycopg.ProgrammingError | psycopg.DataError):
        return BadInput(said)  # the driver has no way to send such a value
    return None


def _deferred(found: psycopg.errors.Diagnostic) -> str:
    """What refused a commit: a constraint, or a constraint trigger, that was deferred to it."""
    if found.constraint_name and found.table_name:
        return f"constraint {found.constraint_name} of {found.table_name}"
    return "a deferred constraint trigger"


def raise_ours(error: psycopg.Error | UnicodeEncodeError) -> NoReturn:
    """Raise the ledger's error for one of the driver's; that error itself where it means a defect of ours."""
    if isinstance(error, UnicodeEncodeError):
        raise BadInput(f"text that PostgreSQL cannot store: {error.reason}") from error
    ours = translated(error)
    if ours is None:
        raise error
    raise ours from error


@contextmanager
def ledger_errors() -> Iterator[None]:
    """Raise the ledger's errors instead of psycopg's."""
    try:
        yield
    except (psycopg.Error, UnicodeEncodeError) as error:
        raise_ours(error)
