"""
Recorders of the `eventsourcing` library on a ledger: any application of that library can use them unchanged.

Each application has a ledger of its own (see factory.py), so that its notifications are that ledger's log,
and a notification's id is its position. Bodies are bytes and stay bytes. No heads are kept. Every method
raises the library's errors (library_errors.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import UUID

from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    IntegrityError,
    Notification,
    ProcessRecorder,
    StoredEvent,
    Tracking,
    TrackingRecorder,
)

from ..errors import StreamConflict
from ..log.append import Append, Appended
from ..log.appender import send
from ..log.cursor import Checkpoint
from ..log.pool import Connection
from ..log.read import SQL as READ
from ..log.sql import Statements, run
from .library_errors import library_errors
from .originators import FROM_ZERO, Originators, arranged, body_of, could_be_renumbered
from .subscription import LedgerSubscription

if TYPE_CHECKING:
    from ..log.ledger import Ledger

SQL = Statements(__package__, "recorders")

HIGHEST = 2**62
"""Greater than any version or position."""

REMEMBERED = 10_000
"""How many streams numbered from 0 a recorder remembers; forgetting one costs a round trip."""


class LedgerRecorder:
    """The base of all recorders: an application's ledger, and the names of its originators."""

    def __init__(self, ledger: Ledger, originators: Originators | None = None) -> None:
        self.ledger = ledger
        self.originators = originators or Originators()

    def create_table(self) -> None:
        """Called when the recorder is made, unless CREATE_TABLE says no; a view makes its tables here."""

    def _rows(self, name: str, **parameters: Any) -> list[tuple[Any, ...]]:
        with library_errors(), self.ledger.reader() as connection:
            return self._query(connection, name, **parameters)

    def _query(self, connection: Connection, name: str, **parameters: Any) -> list[tuple[Any, ...]]:
        return run(connection, self.ledger.schema, SQL[name], **parameters)

    def _events(self, name: str, originator_id: UUID | str, **parameters: Any) -> list[StoredEvent]:
        with library_errors():
            stream = self.originators.stream(originator_id)
        originator = self.originators.originator(stream)
        return [StoredEvent(originator, *row) for row in self._rows(name, stream=stream, **parameters)]


class LedgerAggregateRecorder(LedgerRecorder, AggregateRecorder):
    """Events of aggregates, in the order of their versions."""

    def __init__(self, ledger: Ledger, originators: Originators | None = None) -> None:
        super().__init__(ledger, originators)
        self._from_zero: set[str] = set()

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """Record events, all or none. Raises IntegrityError where another writer came first."""
        self._insert(stored_events, **kwargs)
        return None

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        """Events of one originator with versions in (gt, lte]."""
        name = "recorder_events_backwards" if desc else "recorder_events"
        return self._events(name, originator_id, **_range(gt, lte), limit=limit)

    def _insert(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> list[int] | None:
        if not stored_events:
            return None
        with library_errors():
            while True:
                appends, order = arranged(stored_events, self.originators, self._from_zero)
                try:
                    appended = self._deliver(appends, order, **kwargs)
                except StreamConflict as conflict:
                    if not self._learns_from(conflict, appends):
                        raise
                else:
                    self.ledger.wakeup.appended()
                    return list(range(appended.first_position, appended.last_position + 1))

    def _deliver(self, appends: Sequence[Append], order: Sequence[int], **_: Any) -> Appended:
        if len(appends) == 1:
            return self.ledger.committer.append(appends[0], self.ledger.meta())
        return self.ledger.appender.append(appends, self.ledger.meta(), order)

    def _learns_from(self, conflict: StreamConflict, appends: Sequence[Append]) -> bool:
        """Whether the conflict came only from this recorder's wrong assumption on the numbering."""
        (append,) = (append for append in appends if append.stream == conflict.stream)
        if not could_be_renumbered(append, conflict.found):
            return False
        from_zero = bool(self._rows("recorder_from_zero", stream=append.stream))
        if from_zero == (append.events[0].schema == FROM_ZERO):
            return False
        if len(self._from_zero) >= REMEMBERED:
            self._from_zero.clear()
        (self._from_zero.add if from_zero else self._from_zero.discard)(append.stream)
        return True


class LedgerSnapshotRecorder(LedgerRecorder, AggregateRecorder):
    """Snapshots that an application keeps beside its log, by purpose. Versions may have gaps."""

    def __init__(
        self, ledger: Ledger, originators: Originators | None = None, purpose: str = "snapshots"
    ) -> None:
        super().__init__(ledger, originators)
        self.purpose = purpose

    def insert_events(self, stored_events: Sequence[StoredEvent], **_: Any) -> Sequence[int] | None:
        """Keep snapshots, all or none. Raises IntegrityError where there is one of that version."""
        if stored_events:
            with library_errors():
                streams = [self.originators.stream(event.originator_id) for event in stored_events]
            self._rows(
                "recorder_keep",
                purpose=self.purpose,
                streams=streams,
                versions=[event.originator_version for event in stored_events],
                topics=[event.topic for event in stored_events],
                raws=[body_of(event) for event in stored_events],
            )
        return None

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        """Snapshots of one originator with versions in (gt, lte]."""
        name = "recorder_kept_backwards" if desc else "recorder_kept"
        return self._events(name, originator_id, purpose=self.purpose, **_range(gt, lte), limit=limit)


class LedgerApplicationRecorder(LedgerAggregateRecorder, ApplicationRecorder):
    """Events of aggregates, and the notifications of all of them in one order that readers can follow."""

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """Record events, all or none; their notification ids, contiguous and in the order given."""
        return self._insert(stored_events, **kwargs)

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        """Notifications from `start` to `stop`, up to where no open transaction can add one before."""
        after = 0 if start is None else start - 1 if inclusive_of_start else start
        with library_errors(), self.ledger.reader() as connection:
            ((bound,),) = run(connection, self.ledger.schema, READ.bound, known=-1)
            return self._page(connection, after, min(bound, HIGHEST if stop is None else stop), topics, limit)

    def max_notification_id(self) -> int | None:
        """The id of the last notification, None where there is none."""
        with library_errors(), self.ledger.reader() as connection:
            ((bound,),) = run(connection, self.ledger.schema, READ.bound, known=-1)
            ((last,),) = self._query(connection, "recorder_last", bound=bound)
        return None if last is None else int(last)

    def subscribe(self, gt: int | None = None, topics: Sequence[str] = ()) -> LedgerSubscription:
        """Notifications after `gt`, as they come."""
        return LedgerSubscription(self, gt, topics)

    def follow(self, checkpoint: Checkpoint, topics: Sequence[str], limit: int) -> list[Notification]:
        """Up to `limit` notifications after a checkpoint, which moves to the last event that was looked at.

        A reader must not continue from the bound: after a crash the sequence can fall back behind it.
        """
        with library_errors(), self.ledger.reader() as connection:
            ((bound,),) = run(connection, self.ledger.schema, READ.bound, known=-1)
            if not checkpoint.settle(connection, self.ledger.schema, bound) or bound == checkpoint.position:
                return []
            after = checkpoint.position
            ((last,),) = self._query(connection, "recorder_last", bound=bound)
            if last == after:
                return []
            page = self._page(connection, after, last or 0, topics, limit)
            upto = page[-1].id if len(page) == limit else max(last or 0, after)
            checkpoint.confirm(connection, self.ledger.schema, upto)
        return page

    def _page(
        self, connection: Connection, after: int, bound: int, topics: Sequence[str], limit: int
    ) -> list[Notification]:
        wanted = list(topics) or None
        rows = self._query(
            connection, "recorder_notifications", after=after, bound=bound, topics=wanted, limit=limit
        )
        return [
            Notification(self.originators.originator(stream), version, topic, raw, position)
            for position, stream, version, topic, raw in rows
        ]


class LedgerTrackingRecorder(LedgerRecorder, TrackingRecorder):
    """The last processed notifications of other applications. Views subclass it; see `processing`."""

    def insert_tracking(self, tracking: Tracking) -> None:
        """Move on to a notification. Raises IntegrityError where its id is not greater than the last one."""
        with self.processing(tracking):
            pass

    def max_tracking_id(self, application_name: str) -> int | None:
        """The notification of the application that processing has come to."""
        rows = self._rows("recorder_tracked", application=application_name)
        return rows[0][0] if rows else None

    @contextmanager
    def processing(self, tracking: Tracking) -> Iterator[Connection]:
        """A connection in a transaction that moves on to `tracking` and commits with what the block does.

        Doing it again raises IntegrityError before the block, so that each notification counts exactly once.
        """
        with library_errors(), self.ledger.reader() as connection, connection.transaction():
            application, notification_id = tracking.application_name, tracking.notification_id
            if not self._query(
                connection, "recorder_track", application=application, notification_id=notification_id
            ):
                raise IntegrityError(
                    f"notification {notification_id} of {application!r} was processed already, or a later "
                    "one was"
                )
            yield connection


class LedgerProcessRecorder(LedgerTrackingRecorder, LedgerApplicationRecorder, ProcessRecorder):
    """Events together with the notification whose processing caused them: both are recorded, or neither."""

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """Record events, and `tracking` where it is given. Raises IntegrityError."""
        tracking: Tracking | None = kwargs.get("tracking")
        if tracking is not None and not stored_events:
            self.insert_tracking(tracking)
        return self._insert(stored_events, **kwargs)

    def _deliver(
        self, appends: Sequence[Append], order: Sequence[int], tracking: Tracking | None = None, **_: Any
    ) -> Appended:
        if tracking is None:
            return super()._deliver(appends, order)
        meta = self.ledger.meta()
        with self.processing(tracking) as connection:
            return send(connection, self.ledger.schema, appends, meta.body(), meta.command, order)


def _range(gt: int | None, lte: int | None) -> dict[str, int]:
    return {"gt": -1 if gt is None else gt, "lte": HIGHEST if lte is None else lte}
