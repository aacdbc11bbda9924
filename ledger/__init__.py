"""
The pipeline ledger: every change of a pipeline's state is an immutable event, decided under optimistic
versioning and kept in PostgreSQL.

    import ledger

    with ledger.connect() as log:
        with log.open(Strip, "project", 1, 0, 2) as strip:
            strip.mark_completed()
"""

from typing import TYPE_CHECKING

from .domain.claimant import Claimant, claiming_for
from .domain.domain import Domain
from .domain.moves import Moves
from .domain.names import split_name, stream_name
from .domain.sets import Total, UnitSet
from .domain.stream import Stream
from .domain.topics import TopicStatus, Unknown
from .errors import (
    AlreadyOpen,
    AppendUncertain,
    BadBody,
    BadDefinition,
    BadFile,
    BadInput,
    BadMetadata,
    BadName,
    BadPayload,
    BadTable,
    BeingBuilt,
    ChainBroken,
    ClaimLost,
    CommandReused,
    CursorMismatch,
    DamagedLedger,
    DatabaseFullError,
    DefinitionChanged,
    DuplicateJob,
    EffectFailed,
    EventsMissing,
    FedFromElsewhere,
    GroupRuns,
    GuardFailed,
    GuardRefused,
    InvalidAstHashKeyError,
    InvalidCallback,
    InvalidState,
    InvalidTransition,
    JobUnsuccessful,
    KafkaFailed,
    KafkaUnavailable,
    LedgerBusy,
    LedgerError,
    LockLost,
    LockTimeout,
    MoveNotAllowed,
    NoPermission,
    PathTooLongError,
    ReactionFailed,
    ReadOnly,
    Refused,
    SchemaMismatch,
    ServerUnavailable,
    StageAlreadyRunningError,
    StateConstantConflict,
    StateDBClosed,
    StateDBError,
    StateDBReadonly,
    StorageFull,
    StreamConflict,
    StreamNotFound,
    TablesMissing,
    TokenExists,
    TokenNotFound,
    TopicMismatch,
    TransitionConflict,
    TransitionFailed,
    Undecodable,
    UnknownFlag,
    UnknownMachine,
    UnknownOperation,
    UnknownView,
    UnreadableEvent,
    ViewFailed,
    ViewsDiffer,
    WorkStopped,
    WrongIdent,
)
from .lazy import lazily
from .log.announce import announce_statuses
from .log.append import ANY, EXISTS, NEW, Append, Appended, Body, Exact, Expected, Guard
from .log.append_from import Choices, Chosen
from .log.cursor import Cursor
from .log.ledger import Ledger, connect
from .log.recorded import Meta, Recorded, acting
from .log.retry import retry_conflicts
from .log.scope_locks import NO_LOCKS, AdvisoryLocks, HeldLock, Locks

if TYPE_CHECKING:
    from .domain.event import Event
    from .jobs.leases import Leases
    from .log.readers import Positions
else:  # pydantic, of which a look at the log needs nothing
    __getattr__ = lazily(
        __name__, {"domain.event": "Event", "jobs.leases": "Leases", "log.readers": "Positions"}
    )

__all__ = [
    "ANY",
    "AdvisoryLocks",
    "AlreadyOpen",
    "Append",
    "AppendUncertain",
    "Appended",
    "BadBody",
    "BadDefinition",
    "BadFile",
    "BadInput",
    "BadMetadata",
    "BadName",
    "BadPayload",
    "BadTable",
    "BeingBuilt",
    "Body",
    "ChainBroken",
    "Choices",
    "Chosen",
    "ClaimLost",
    "Claimant",
    "CommandReused",
    "Cursor",
    "CursorMismatch",
    "DamagedLedger",
    "DatabaseFullError",
    "DefinitionChanged",
    "Domain",
    "DuplicateJob",
    "EXISTS",
    "EffectFailed",
    "Event",
    "EventsMissing",
    "Exact",
    "Expected",
    "FedFromElsewhere",
    "GroupRuns",
    "Guard",
    "GuardFailed",
    "GuardRefused",
    "HeldLock",
    "InvalidAstHashKeyError",
    "InvalidCallback",
    "InvalidState",
    "InvalidTransition",
    "JobUnsuccessful",
    "KafkaFailed",
    "KafkaUnavailable",
    "Leases",
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
    "PathTooLongError",
    "Positions",
    "ReactionFailed",
    "ReadOnly",
    "Recorded",
    "Refused",
    "SchemaMismatch",
    "ServerUnavailable",
    "StageAlreadyRunningError",
    "StateConstantConflict",
    "StateDBClosed",
    "StateDBError",
    "StateDBReadonly",
    "StorageFull",
    "Stream",
    "StreamConflict",
    "StreamNotFound",
    "TablesMissing",
    "TokenExists",
    "TokenNotFound",
    "TopicMismatch",
    "TopicStatus",
    "Total",
    "TransitionConflict",
    "TransitionFailed",
    "Undecodable",
    "UnitSet",
    "Unknown",
    "UnknownFlag",
    "UnknownMachine",
    "UnknownOperation",
    "UnknownView",
    "UnreadableEvent",
    "ViewFailed",
    "ViewsDiffer",
    "WorkStopped",
    "WrongIdent",
    "acting",
    "announce_statuses",
    "claiming_for",
    "connect",
    "retry_conflicts",
    "split_name",
    "stream_name",
]
