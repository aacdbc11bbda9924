"""
Feeds of what changes in views, to be followed like the log: who entered which state, and how far sets are.

    for changes in StateChanges(log, category="lsm.strip", statuses={"failed"}, after=cursor).batches(stop):
        …

A feed is never ahead of what readers of the view see: who is told of a change finds it there. Keep `cursor`
in the transaction that keeps the effects, as with a Follower.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Self

from ledger import BadInput, Cursor, Ledger

from .follower import LONGEST_PAUSE, Following
from .sql import query

PAGE: Final = 1000
"""Events of the log, or sets, that are looked at at once."""


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
    """How far the set of a parent is, and which event changed that last; total, percent: None if unknown."""

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
    """Where the copy of a view stands that is read, and which filling of which copy that is."""

    position: int
    inline: bool
    copy: int
    refolds: int


def filling_of(ledger: Ledger, view: str) -> Filling | None:
    """The filling that readers of a view see; None where nobody has made one yet."""
    with ledger.reader() as connection:
        rows = query(connection, ledger.schema, "filling", view=view)
    return Filling(*rows[0]) if rows else None


class StateChanges(Following[StateChange]):
    """Each change of a stream's state, exactly once, in the order of the log, and all of them.

    A state that was left at once is told too, and a move to the state where the stream was already: it began
    anew. category, statuses: only streams of that category, only changes to these states. after: a position
    (exclusive) or a Cursor, that of a Follower too. batch: events of the log that are looked at at once.

    Changes are read from the log, so a rebuild of the view neither repeats nor loses any; moves that are
    declared only after their events were passed are not told. Raises CursorMismatch, as a Follower does.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        category: str | None = None,
        statuses: Collection[str] | None = None,
        after: int | Cursor = 0,
        batch: int = PAGE,
        longest_pause: float = LONGEST_PAUSE,
    ) -> None:
        super().__init__(ledger, after, batch, longest_pause)
        if isinstance(statuses, str):
            raise BadInput(f"statuses must be a set of statuses, such as {{{statuses!r}}}")
        self.start = None if category is None else f"{category}/"
        self.statuses = None if statuses is None else sorted(map(str, statuses))

    def poll(self) -> list[StateChange]:
        """The next changes, as far as the view in_state shows them; the position moves behind them."""
        upto = self._upto()
        while self.position < upto:
            with self.ledger.reader() as connection:
                rows = query(
                    connection, self.ledger.schema, "state_changes", after=self.position, upto=upto,
                    limit=self.batch, start=self.start, statuses=self.statuses,
                )  # fmt: skip
            last = rows[0][0]
            if last is None:  # nothing but gaps
                break
            self.position, self._last = last, None
            if rows[0][1] is not None:
                return [StateChange(*_in_utc(row[1:])) for row in rows]
        return []

    def _upto(self) -> int:
        """How far readers of the view see: for one that appends keep, as far as the log is safe to read."""
        filling = filling_of(self.ledger, "in_state")
        if filling is None:
            return 0
        return self.ledger.bound() if filling.inline else filling.position


@dataclass(frozen=True, slots=True)
class ProgressCursor(Cursor):
    """How far a reader of progress has come, in which filling of the view: in another all is told again."""

    filling: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """The cursor that `str()` wrote. Raises BadInput."""
        place, _, filling = text.rpartition(":")
        found = Cursor.parse(place)
        return cls(found.ledger, found.position, found.mark, filling)

    def __str__(self) -> str:
        return f"{self.ledger}:{self.position}:{self.mark}:{self.filling}"


class ProgressChanges(Following[ProgressChange]):
    """The sets that changed, by the position of their last change: the latest value of each parent.

    Between two polls a set may have changed many times and is told once, as it is; its last value is never
    missed. After a rebuild of the view, or of a part of it, all sets are told again, since values may be
    others now that no event changed; so a reader must bear the same value twice. category: that of the units.
    after: a position or a cursor; a plain position knows of no filling, so what a rebuild changed before is
    not told. Raises CursorMismatch, as a Follower does.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        category: str | None = None,
        after: int | Cursor = 0,
        batch: int = PAGE,
        longest_pause: float = LONGEST_PAUSE,
    ) -> None:
        super().__init__(ledger, after, batch, longest_pause)
        self.category = category
        self.filling = after.filling if isinstance(after, ProgressCursor) else ""
        self._seen: Filling | None = None

    @property
    def cursor(self) -> ProgressCursor:
        """Where this follower stands: the last change that it has read, in which filling of which ledger."""
        place = super().cursor
        return ProgressCursor(place.ledger, place.position, place.mark, self.filling)

    def poll(self) -> list[ProgressChange]:
        """The sets that changed since; the position moves behind them."""
        filling = filling_of(self.ledger, "progress")
        if filling is None or filling == self._seen:
            return []
        now = f"{filling.copy}.{filling.refolds}"
        if self.filling not in ("", now):
            self.position, self._last = 0, None
        self.filling = now
        with self.ledger.reader() as connection:
            rows = query(
                connection, self.ledger.schema, "progress_changes",
                after=self.position, category=self.category, limit=self.batch,
            )  # fmt: skip
        if not rows:
            self._seen = filling
            return []
        changes = [ProgressChange(*_in_utc(row)) for row in rows]
        self.position, self._last = changes[-1].position, None
        return changes


def _in_utc(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*row[:-1], row[-1].astimezone(UTC))
