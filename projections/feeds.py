"""
Feeds of changes in views, followed like the log: which stream entered which state, and the progress of sets.

    for changes in StateChanges(log, category="lsm.strip", statuses={"failed"}, after=cursor).batches(stop):
        …

A feed is never ahead of what readers of the view see: a reader who gets a change finds it there. Store
`cursor` in the transaction that stores the effects, as with a Follower.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Self

import psycopg

from ledger import BadInput, Cursor, Ledger
from ledger.log import read
from ledger.log.cursor import Checkpoint
from ledger.log.sql import Statements, run

from .engine.follower import LONGEST_PAUSE, BaseFollower

SQL = Statements(__package__, "feeds")


Connection = psycopg.Connection[Any]
PAGE: Final = 1000
"""Events of the log, or sets, that are read at once."""


@dataclass(frozen=True, slots=True)
class StateChange:
    """A stream entered a state: by its event at `version`, from the state `before` (None: it had none)."""

    position: int
    stream: str
    version: int
    topic: str
    before: str | None
    status: str
    at: datetime


@dataclass(frozen=True, slots=True)
class ProgressChange:
    """The progress of a parent's set, and the event that changed it last; total, percent: None if unknown."""

    category: str
    parent: str
    present: int
    running: int
    done: int
    failed: int
    total: int | None
    percent: int | None
    position: int
    at: datetime


class Filling(NamedTuple):
    """The position of a view's live copy, and which filling of which copy that is."""

    position: int
    inline: bool
    copy: int
    refolds: int


def filling_of(ledger: Ledger, view: str) -> Filling | None:
    """The filling that readers of a view see; None if there is none yet."""
    with ledger.reader() as connection:
        return _filling(connection, ledger.schema, view)


def _filling(connection: Connection, schema: str, view: str) -> Filling | None:
    rows = run(connection, schema, SQL.filling, view=view)
    return Filling(*rows[0]) if rows else None


def _seen_upto(connection: Connection, schema: str, filling: Filling) -> int:
    """The position of a filling: if appends keep the view, the bound of the log."""
    if not filling.inline:
        return filling.position
    return int(run(connection, schema, read.SQL.bound, known=-1)[0][0])


class StateChanges(BaseFollower[StateChange]):
    """Each change of a stream's state, exactly once, in the order of the log, and all of them.

    A state that was left at once is delivered too, and so is a move to the same state, which begins it anew.
    category, statuses: only streams of that category, only changes to these states. after: a position
    (exclusive) or a Cursor, also that of a Follower. batch: events of the log that are read at once.

    Changes are read from the log, so a rebuild of the view neither repeats nor loses any. Moves that are
    declared only after their events were read are not delivered. Raises CursorMismatch, as a Follower does.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        category: str | None = None,
        statuses: Collection[str] | None = None,
        after: int | Cursor = 0,
        batch: int = PAGE,
    ) -> None:
        super().__init__(ledger, after, batch, LONGEST_PAUSE)
        if isinstance(statuses, str):
            raise BadInput(f"statuses must be a set of statuses, such as {{{statuses!r}}}")
        self.start = None if category is None else f"{category}/"
        self.statuses = None if statuses is None else sorted(map(str, statuses))

    def poll(self) -> list[StateChange]:
        """The next changes, as far as the view in_state shows them; the position moves behind them."""
        with self.ledger.reader() as connection:
            return self._poll(connection, self.checkpoint)

    def _poll(self, connection: Connection, checkpoint: Checkpoint) -> list[StateChange]:
        schema, upto = self.ledger.schema, self._upto(connection)
        if not checkpoint.settle(connection, schema, upto):
            return []
        if upto < checkpoint.position:  # a crash removed it from the view, or a restore from the log
            checkpoint.confirm(connection, schema)
        while checkpoint.position < upto:
            rows = run(
                connection, schema, SQL.state_changes, after=checkpoint.position, upto=upto,
                limit=self.batch, start=self.start, statuses=self.statuses,
            )  # fmt: skip
            last = rows[0][0]
            checkpoint.confirm(connection, schema, last)
            if last is None:  # nothing but gaps
                break
            if rows[0][1] is not None:
                return [StateChange(*_in_utc(row[1:])) for row in rows]
        return []

    def _upto(self, connection: Connection) -> int:
        """The position up to which readers of the view see: if appends keep it, the bound of the log."""
        filling = _filling(connection, self.ledger.schema, "in_state")
        return 0 if filling is None else _seen_upto(connection, self.ledger.schema, filling)


@dataclass(frozen=True, slots=True)
class ProgressCursor(Cursor):
    """The place of a reader of progress, in one filling of the view: another delivers all sets again."""

    filling: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """The cursor that `str()` wrote. Raises BadInput."""
        place, _, filling = text.rpartition(":")
        found = Cursor.parse(place)
        return cls(found.ledger, found.position, found.mark, filling)

    def __str__(self) -> str:
        return f"{self.ledger}:{self.position}:{self.mark}:{self.filling}"


class ProgressChanges(BaseFollower[ProgressChange]):
    """The sets that changed, by the position of their last change: the latest value of each parent.

    Between two polls a set may change many times and is delivered once, with its present value; its last
    value is never missed. After a rebuild of the view, or of a part of it, all sets are delivered again,
    because values may have changed without an event; so a reader must tolerate the same value twice.
    category: that of the units. after: a position or a cursor; a plain position names no filling, so earlier
    changes by a rebuild are not delivered. Raises CursorMismatch, as a Follower does.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        category: str | None = None,
        after: int | Cursor = 0,
        batch: int = PAGE,
    ) -> None:
        super().__init__(ledger, after, batch, LONGEST_PAUSE)
        self.category = category
        self.filling = after.filling if isinstance(after, ProgressCursor) else ""
        self._seen: Filling | None = None

    @property
    def cursor(self) -> ProgressCursor:
        """The follower's place: the last change that it has read, the filling and the ledger."""
        place = super().cursor
        return ProgressCursor(place.ledger, place.position, place.mark, self.filling)

    def poll(self) -> list[ProgressChange]:
        """The sets that changed since; the position moves behind them."""
        schema = self.ledger.schema
        with self.ledger.reader() as connection:
            filling = _filling(connection, schema, "progress")
            if filling is None or filling == self._seen:
                return []
            now = f"{filling.copy}.{filling.refolds}"
            if self.filling not in ("", now):
                self.checkpoint = Checkpoint(self.ledger.identity.ledger)
            self.filling = now
            self.checkpoint.settle(connection, schema, _seen_upto(connection, schema, filling))
            rows = run(
                connection, schema, SQL.progress_changes,
                after=self.position, category=self.category, limit=self.batch,
            )  # fmt: skip
            changes = [ProgressChange(*_in_utc(row)) for row in rows]
            self.checkpoint.confirm(connection, schema, changes[-1].position if changes else None)
        if not changes:
            self._seen = filling
        return changes


def _in_utc(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*row[:-1], row[-1].astimezone(UTC))
