"""The follower: the log, in order, without skipping, from a position on."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator
from typing import Final

from ledger import Cursor, Ledger, Recorded, ServerUnavailable

FIRST_PAUSE: Final = 0.001
"""Seconds before a follower that found nothing looks again."""
LONGEST_PAUSE: Final = 0.05
"""Pauses double up to this while nothing comes."""


class Follower:
    """Follows a ledger from a position (exclusive) or a Cursor; delivers each event once, in order.

    topics: only these are delivered; the others are read and passed over. batch: events at most at once.
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
    ) -> None:
        self.ledger, self.batch = ledger, batch
        self.topics = None if topics is None else frozenset(topics)
        self.position = ledger.check_cursor(after) if isinstance(after, Cursor) else after
        self._last: Recorded | None = None

    @property
    def cursor(self) -> Cursor:
        """Where this follower stands: the last event that it has read, and which ledger that was."""
        if self._last is None:
            self._last = self.ledger.event_at(self.position) if self.position else None
        identity = self.ledger.identity.ledger
        return Cursor(identity) if self._last is None else Cursor.after(identity, self._last)

    def poll(self) -> list[Recorded]:
        """What has come since, at once: up to `batch` events; the position moves behind them."""
        while events := self.ledger.tail.read(self.position, self.batch):
            self._last = events[-1]
            self.position = self._last.position
            wanted = (
                events if self.topics is None else [event for event in events if event.topic in self.topics]
            )
            if wanted:
                return wanted
        return []

    def batches(self, stop: threading.Event | None = None) -> Iterator[list[Recorded]]:
        """Batches for ever, or until `stop` is set; waits for events with pauses that adapt.

        A server that goes away is waited for, as long as the ledger's patience; then ServerUnavailable.
        """
        pause = FIRST_PAUSE
        while not (stop and stop.is_set()):
            seen = self.ledger.wakeup.seen()
            if events := self._patient_poll(stop):
                pause = FIRST_PAUSE
                yield events
                continue
            self.ledger.wakeup.wait(seen, pause, stop)
            pause = min(pause * 2, LONGEST_PAUSE)

    def _patient_poll(self, stop: threading.Event | None) -> list[Recorded]:
        deadline = time.monotonic() + self.ledger.connections.patience
        while True:
            try:
                return self.poll()
            except ServerUnavailable:
                if time.monotonic() > deadline:
                    raise
            if (stop or threading.Event()).wait(0.1):
                return []
            self._check_history()

    def _check_history(self) -> None:
        """After a lost connection the server may be another: go on only in the same history."""
        try:
            self.ledger.check_again()
            if self._last is not None:
                self.ledger.check_cursor(self.cursor)
        except ServerUnavailable:
            pass  # not back yet
