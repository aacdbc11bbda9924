"""The follower: reads the log in order from a position on, without skipping an event."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Final, Generic, TypeVar

from ledger import Cursor, Ledger, NoPermission, Recorded, ServerUnavailable
from ledger.domain.topics import with_former
from ledger.log.cursor import Checkpoint

T = TypeVar("T")
R = TypeVar("R")

FIRST_PAUSE: Final = 0.001
"""Seconds before a follower that found nothing reads again."""
LONGEST_PAUSE: Final = 0.05
"""Pauses double up to this while no events come."""


def retry_outages(
    ledger: Ledger,
    act: Callable[[], R],
    stop: threading.Event | None = None,
    *,
    check: Callable[[], None] = lambda: None,
    alive: Callable[[], float] | None = None,
    lost: Callable[[ServerUnavailable], None] = lambda error: None,
) -> R | None:
    """Call `act`, again while the server is unavailable, and return its result; None if `stop` was set.

    check: called before each further try, when the server is back: it may be another. alive: the monotonic
    time of the last progress within `act`; by default of its first call. lost: called with each outage.
    Raises ServerUnavailable after the ledger's `timeout` without progress, NoPermission at once,
    CursorMismatch if the server came back with another history.
    """
    began = time.monotonic()
    while True:
        try:
            return act()
        except NoPermission:
            raise
        except ServerUnavailable as error:
            if time.monotonic() > (alive() if alive else began) + ledger.pool.timeout:
                raise
            lost(error)
        if (stop or threading.Event()).wait(0.1):
            return None
        with suppress(ServerUnavailable):  # not back yet
            ledger.check_again()
            check()


class BaseFollower(ABC, Generic[T]):
    """The base of all followers: reads a ledger's history in order from a checkpoint, its cursor.

    after: a position (exclusive), or a Cursor, which is checked: raises CursorMismatch if it belongs to
    another ledger or to a history that was rolled back. Every `poll` raises it too, after a plain position as
    well. batch, longest_pause: as in Follower.
    """

    gather = 0.0
    """Minimum seconds between two reads of the log, unless far behind: fewer, larger batches cost less."""

    def __init__(self, ledger: Ledger, after: int | Cursor, batch: int, longest_pause: float) -> None:
        self.ledger, self.batch, self.longest_pause = ledger, batch, longest_pause
        if isinstance(after, Cursor):
            ledger.check_cursor(after)
        self.checkpoint = Checkpoint(ledger.identity.ledger, after)

    @property
    def position(self) -> int:
        """The last event that was read; a plain position becomes that of an event at the first read."""
        return self.checkpoint.position

    @property
    def cursor(self) -> Cursor:
        """The follower's place: the last event that it has read, and the ledger."""
        if (known := self.checkpoint.cursor) is not None:
            return known
        with self.ledger.reader() as connection:
            return self.checkpoint.last_event(connection, self.ledger.schema)

    @abstractmethod
    def poll(self) -> list[T]:
        """The next events, without waiting; the position moves behind them."""

    def batches(self, stop: threading.Event | None = None, *, empty: bool = False) -> Iterator[list[T]]:
        """Batches for ever, or until `stop` is set; waits for events with pauses that adapt.

        empty: also an empty batch before each pause, for a caller who has other things to do meanwhile.
        While the server is unavailable it waits, for the ledger's `timeout`; then raises ServerUnavailable.
        """
        pause, again = FIRST_PAUSE, 0.0
        while not (stop and stop.is_set()):
            if (left := again - time.monotonic()) > 0:
                (stop or threading.Event()).wait(left)
            seen, again = self.ledger.wakeup.seen(), time.monotonic() + self.gather
            if events := self.retry_outages(self.poll, stop):
                pause, again = FIRST_PAUSE, again if len(events) < self.batch else 0.0
                yield events
                continue
            if empty:
                yield []
            self.ledger.wakeup.wait(seen, pause, stop)
            pause = min(pause * 2, self.longest_pause)

    def retry_outages(self, act: Callable[[], R], stop: threading.Event | None = None) -> R | None:
        """As `retry_outages` of the module, and only while the history is the one that was read."""
        return retry_outages(self.ledger, act, stop, check=self._check_place)

    def _check_place(self) -> None:
        if (stands := self.checkpoint.cursor) is not None:
            self.ledger.check_cursor(stands)


class Follower(BaseFollower[Recorded]):
    """Follows a ledger from a position (exclusive) or a Cursor; delivers each event once, in order.

    topics: only these are delivered, also under their former names; the others are skipped. batch: maximum
    events at once. longest_pause: seconds; an event of another process is delivered after this time at the
    latest. gather: minimum seconds between two reads of the log, unless far behind.
    Raises CursorMismatch if the cursor belongs to another ledger or to a history that was rolled back.
    After a restart, continue from `cursor`: store it in the transaction that stores the effects.
    """

    def __init__(
        self,
        ledger: Ledger,
        after: int | Cursor = 0,
        *,
        topics: Collection[str] | None = None,
        batch: int = 500,
        longest_pause: float = LONGEST_PAUSE,
        gather: float = 0.0,
    ) -> None:
        super().__init__(ledger, after, batch, longest_pause)
        self.gather = gather
        self.topics = None if topics is None else with_former(topics)

    def poll(self) -> list[Recorded]:
        """The next events, without waiting, up to `batch`; the position moves behind them."""
        while events := self.ledger.tail.read(self.checkpoint, self.batch, self.topics):
            wanted = (
                events if self.topics is None else [event for event in events if event.topic in self.topics]
            )
            if wanted:
                return wanted
        return []
