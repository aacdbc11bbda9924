"""Translates the ledger's and PostgreSQL's errors into those of the `eventsourcing` library."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from eventsourcing import persistence as library

from ..errors import (
    BadInput,
    CommandReused,
    DamagedLedger,
    LedgerError,
    NoPermission,
    SchemaMismatch,
    ServerUnavailable,
    StreamConflict,
)
from ..log.server_errors import translated

# The first class that fits counts. The library's users try again after an IntegrityError, with what they
# load anew, and after an OperationalError, as it was.
_OF: tuple[tuple[type[Exception], type[library.PersistenceError]], ...] = (
    (StreamConflict, library.IntegrityError),
    (CommandReused, library.IntegrityError),
    (BadInput, library.DataError),
    (NoPermission, library.ProgrammingError),
    (SchemaMismatch, library.ProgrammingError),
    (ServerUnavailable, library.OperationalError),
    (DamagedLedger, library.InternalError),
    (LedgerError, library.DatabaseError),
    (psycopg.IntegrityError, library.IntegrityError),
    (psycopg.DataError, library.DataError),
    (psycopg.OperationalError, library.OperationalError),
    (psycopg.ProgrammingError, library.ProgrammingError),
    (psycopg.NotSupportedError, library.NotSupportedError),
    (psycopg.InternalError, library.InternalError),
    (psycopg.DatabaseError, library.DatabaseError),
    (psycopg.InterfaceError, library.InterfaceError),
    (UnicodeEncodeError, library.DataError),
)


@contextmanager
def library_errors() -> Iterator[None]:
    """Raise the library's errors instead of the ledger's and psycopg's; what caused them is their cause."""
    try:
        yield
    except (LedgerError, psycopg.Error, UnicodeEncodeError) as error:
        ours = (translated(error) or error) if isinstance(error, psycopg.Error) else error
        found = next((theirs for kind, theirs in _OF if isinstance(ours, kind)), library.PersistenceError)
        raise found(str(ours)) from error
