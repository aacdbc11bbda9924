"""A subscription to an application's notifications, which polls with an adaptive pause."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from eventsourcing.persistence import Notification, OperationalError, Subscription

from ..log.cursor import Checkpoint
from .library_errors import library_errors

if TYPE_CHECKING:
    from .recorders import LedgerApplicationRecorder

PAGE = 500
"""Notifications at once; 500 to 1,000 read fastest."""

SHORTEST, LONGEST = 0.001, 0.05
"""Seconds between looks at a log that stands still; an append never notifies, it would serialise writers."""


class LedgerSubscription(Subscription["LedgerApplicationRecorder"]):
    """Yields notifications in order, each once, and waits for more; no thread of its own.

    It waits for a server that is unavailable as long as a caller would wait for a connection. If the server
    returns with another history than the one that was read, it raises a PersistenceError caused by
    CursorMismatch.
    """

    def __init__(
        self, recorder: LedgerApplicationRecorder, gt: int | None = None, topics: Sequence[str] = ()
    ) -> None:
        super().__init__(recorder=recorder, gt=gt, topics=topics)
        self._checkpoint = Checkpoint(recorder.ledger.identity.ledger, gt or 0)
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
        deadline = time.monotonic() + self._recorder.ledger.pool.timeout
        lost = False
        before = self._checkpoint.position
        while not self._stop.is_set():
            try:
                if lost:
                    with library_errors():
                        self._recorder.ledger.check_again()
                page = self._recorder.follow(self._checkpoint, self._topics, PAGE)
            except OperationalError:
                if time.monotonic() > deadline:
                    raise
                lost = True
                self._stop.wait(LONGEST)
            else:
                self._page.extend(page)
                return self._checkpoint.position > before
        return False
