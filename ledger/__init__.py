"""
The pipeline ledger: every change of a pipeline's state is an immutable event, decided under optimistic
versioning and kept in PostgreSQL.

    import ledger

    with ledger.connect() as log:
        with log.open(Strip, "project", 1, 0, 2) as strip:
            strip.mark_completed()
"""

from .append import Append, Appended, Body
from .errors import (
    AlreadyOpen,
    AppendUncertain,
    BadBody,
    BadFile,
    BadInput,
    BadName,
    BeingBuilt,
    ClaimLost,
    CommandReused,
    CursorMismatch,
    DamagedLedger,
    DefinitionChanged,
    EffectFailed,
    EventsMissing,
    GuardFailed,
    LedgerBusy,
    LedgerError,
    LockLost,
    LockTimeout,
    MoveNotAllowed,
    NoPermission,
    ReactionFailed,
    ReadOnly,
    Refused,
    SchemaMismatch,
    ServerUnavailable,
    StorageFull,
    StreamConflict,
    StreamNotFound,
    UnknownFlag,
    UnknownTopic,
    UnknownView,
    ViewFailed,
    ViewsDiffer,
    WrongIdent,
)
from .event import Event, Unknown
from .expected import ANY, EXISTS, NEW, Exact, Expected, Guard
from .moves import Moves
from .names import split_name, stream_name
from .recorded import Meta, Recorded, acting
from .store.cursor import Cursor
from .store.ledger import Ledger, connect
from .store.locks import NO_LOCKS, AdvisoryLocks, Held, Locks
from .stream import Stream

__all__ = [
    "ANY",
    "AdvisoryLocks",
    "AlreadyOpen",
    "Append",
    "AppendUncertain",
    "Appended",
    "BadBody",
    "BadFile",
    "BadInput",
    "BadName",
    "BeingBuilt",
    "Body",
    "ClaimLost",
    "CommandReused",
    "Cursor",
    "CursorMismatch",
    "DamagedLedger",
    "DefinitionChanged",
    "EXISTS",
    "EffectFailed",
    "Event",
    "EventsMissing",
    "Exact",
    "Expected",
    "Guard",
    "GuardFailed",
    "Held",
    "Ledger",
    "LedgerBusy",
    "LedgerError",
    "LockLost",
    "LockTimeout",
    "Locks",
    "Meta",
    "MoveNotAllowed",
    "Moves",
    "NEW",
    "NO_LOCKS",
    "NoPermission",
    "ReactionFailed",
    "ReadOnly",
    "Recorded",
    "Refused",
    "SchemaMismatch",
    "ServerUnavailable",
    "StorageFull",
    "Stream",
    "StreamConflict",
    "StreamNotFound",
    "Unknown",
    "UnknownFlag",
    "UnknownTopic",
    "UnknownView",
    "ViewFailed",
    "ViewsDiffer",
    "WrongIdent",
    "acting",
    "connect",
    "split_name",
    "stream_name",
]
