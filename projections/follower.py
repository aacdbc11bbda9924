"""The follower: the log, in order, without skipping, from a position on."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from typing import Final, Generic, TypeVar

from ledger import Cursor, Ledger, NoPermission, Recorded, ServerUnavailable

T = TypeVar("T")
R = TypeVar("R")

FIRST_PAUSE: Final = 0.001
"""Seconds before a follower that found nothing looks again."""
LONGEST_PAUSE: Final = 0.05
"""Pauses double up to this while nothing comes."""


class Following(ABC, Generic[T]):
    """Who goes through a ledger's history in order: at a position of the log, which its cursor keeps.

    after: a position (exclusive), or a Cursor, which is checked: raises CursorMismatch where it is of another
    ledger or of a history that was rolled back. batch, longest_pause: as in Follower.
    """

    gather = 0.0
    """Seconds between two looks at the log, at least, unless far behind: fewer, larger batches cost less."""

    def __init__(self, ledger: Ledger, after: int | Cursor, batch: int, longest_pause: float) -> None:
        self.ledger, self.batch, self.longest_pause = ledger, batch, longest_pause
        self.position = ledger.check_cursor(after) if isinstance(after, Cursor) else after
        self._last: Recorded | None = None

    @property
    def cursor(self) -> Cursor:
        """Where this follower stands: the last event that it has read, and which ledger that was."""
        if self._last is None:
            self._last = self.ledger.event_at(self.position) if self.position else None
        identity = self.ledger.identity.ledger
        return Cursor(identity) if self._last is None else Cursor.after(identity, self._last)

    @abstractmethod
    def poll(self) -> list[T]:
        """What has come since, at once; the position moves behind it."""

    def batches(self, stop: threading.Event | None = None, *, empty: bool = False) -> Iterator[list[T]]:
        """Batches for ever, or until `stop` is set; waits for events with pauses that adapt.

        empty: also an empty batch before each pause, for a caller who has other things to do meanwhile.
        A server that goes away is waited for, as long as the ledger's patience; then ServerUnavailable.
        """
        pause, again = FIRST_PAUSE, 0.0
        while not (stop and stop.is_set()):
            if (left := again - time.monotonic()) > 0:
                (stop or threading.Event()).wait(left)
            seen, again = self.ledger.wakeup.seen(), time.monotonic() + self.gather
            if events := self.patiently(self.poll, stop):
                pause, again = FIRST_PAUSE, again if len(events) < self.batch else 0.0
                yield events
                continue
            if empty:
                yield []
            self.ledger.wakeup.wait(seen, pause, stop)
            pause = min(pause * 2, self.longest_pause)

    def patiently(self, act: Callable[[], R], stop: threading.Event | None = None) -> R | None:
        """What `act` returns, which is called again while the server is away; None where `stop` was set then.

        Raises ServerUnavailable after the ledger's patience, NoPermission at once, CursorMismatch where
        another history came back.
        """
        deadline = time.monotonic() + self.ledger.connections.patience
        while True:
            try:
                return act()
            except NoPermission:
                raise
            except ServerUnavailable:
                if time.monotonic() > deadline:
                    raise
            if (stop or threading.Event()).wait(0.1):
                return None
            self._check_history()

    def _check_history(self) -> None:
        """After a lost connection the server may be another: go on only in the same history."""
        try:
            self.ledger.check_again()
            if self._last is not None:
                self.ledger.check_cursor(self.cursor)
        except ServerUnavailable:
            pass  # not back yet


class Follower(Following[Recorded]):
    """Follows a ledger from a position (exclusive) or a Cursor; delivers each event once, in order.

    topics: only these are delivered; the others are read and passed over. batch: events at most at once.
    longest_pause: seconds; what another process appends is seen after this time at the latest. gather:
    seconds between two looks at the log, at least, unless far behind.
    Raises CursorMismatch where the cursor is of another ledger or of a history that was rolled back.
    Where to go on after a restart is `cursor`: keep it in the transaction that keeps the effects.
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
        self.topics = None if topics is None else frozenset(topics)

    def poll(self) -> list[Recorded]:
        """What has come since, at once: up to `batch` events; the position moves behind them."""
        while events := self.ledger.tail.read(self.position, self.batch, self.topics):
            self._last = events[-1]
            self.position = self._last.position
            wanted = (
                events if self.topics is None else [event for event in events if event.topic in self.topics]
            )
            if wanted:
                return wanted
        return []
