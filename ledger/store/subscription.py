"""A subscription to an application's notifications: it asks again after a pause that adapts."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from eventsourcing.persistence import Notification, OperationalError, Subscription

from .library import library_errors

if TYPE_CHECKING:
    from .recorders import LedgerApplicationRecorder

PAGE = 500
"""Notifications at once; 500 to 1,000 read fastest."""

SHORTEST, LONGEST = 0.001, 0.05
"""Seconds between looks at a log that stands still; an append never notifies, it would serialise writers."""


class LedgerSubscription(Subscription["LedgerApplicationRecorder"]):
    """Yields notifications in order, each once, and waits for more; no thread of its own.

    A server that goes away is waited for, as long as a caller would wait for a connection.
    """

    def __init__(
        self, recorder: LedgerApplicationRecorder, gt: int | None = None, topics: Sequence[str] = ()
    ) -> None:
        super().__init__(recorder=recorder, gt=gt, topics=topics)
        self._after = gt or 0
        self._page: deque[Notification] = deque()
        self._stop = threading.Event()

    def stop(self) -> None:
        """End the iteration, also one that waits in another thread."""
        super().stop()
        self._stop.set()

    def __next__(self) -> Notification:
        pause = SHORTEST
        while not self._stop.is_set():
            if self._page:
                return self._page.popleft()
            seen = self._recorder.ledger.wakeup.seen()
            if not self._read():
                self._recorder.ledger.wakeup.wait(seen, pause, self._stop)
                pause = min(pause * 1.5, LONGEST)
        raise StopIteration

    def _read(self) -> bool:
        """Fetch the next page; whether there is one, or another to ask for."""
        deadline = time.monotonic() + self._recorder.ledger.connections.patience
        lost = False
        before = self._after
        while not self._stop.is_set():
            try:
                if lost:
                    with library_errors():
                        self._recorder.ledger.check_again()
                page, self._after = self._recorder.follow(self._after, self._topics, PAGE)
            except OperationalError:
                if time.monotonic() > deadline:
                    raise
                lost = True
                self._stop.wait(LONGEST)
            else:
                self._page.extend(page)
                return self._after > before
        return False
