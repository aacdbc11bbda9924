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
    BadInput,
    BadName,
    CommandReused,
    CursorMismatch,
    DamagedLedger,
    EffectFailed,
    GuardFailed,
    LedgerBusy,
    LedgerError,
    MoveNotAllowed,
    NoPermission,
    ReadOnly,
    Refused,
    SchemaMismatch,
    ServerUnavailable,
    StorageFull,
    StreamConflict,
    StreamNotFound,
    UnknownTopic,
)
from .event import Event, Unknown
from .expected import ANY, EXISTS, NEW, Exact, Expected, Guard
from .moves import Moves
from .names import split_name, stream_name
from .recorded import Meta, Recorded, acting
from .store.cursor import Cursor
from .store.ledger import Ledger, connect
from .stream import Stream

__all__ = [
    "ANY",
    "AlreadyOpen",
    "Append",
    "AppendUncertain",
    "Appended",
    "BadBody",
    "BadInput",
    "BadName",
    "Body",
    "CommandReused",
    "Cursor",
    "CursorMismatch",
    "DamagedLedger",
    "EXISTS",
    "EffectFailed",
    "Event",
    "Exact",
    "Expected",
    "Guard",
    "GuardFailed",
    "Ledger",
    "LedgerBusy",
    "LedgerError",
    "Meta",
    "MoveNotAllowed",
    "Moves",
    "NEW",
    "NoPermission",
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
    "UnknownTopic",
    "acting",
    "connect",
    "split_name",
    "stream_name",
]
