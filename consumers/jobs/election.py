"""
Who of many workers runs the services: one at a time, as long as it shows that it is there.

It spares the others the reading of the log, and is no matter of right: two at once record nothing twice, and
what nobody saw for a while is caught up. One that froze is followed by another once its time is over.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from ledger import LedgerError
from ledger.store.leases import Leases

NAME: Final = "services"
LONGEST: Final = 10.0
"""Seconds without a sign of life after which another is elected, at most."""
LOOK: Final = 0.1
"""Seconds between two looks whether this worker was elected."""

_log = logging.getLogger(__name__)


class Election:
    """A worker's part in the election. seconds: how long it counts without being renewed."""

    def __init__(self, leases: Leases, worker: str, seconds: float) -> None:
        self.leases, self.worker, self.seconds = leases, worker, min(seconds, LONGEST)
        self._term: threading.Event | None = None

    def stand(self) -> None:
        """Stand for election, or renew it. Raises ServerUnavailable."""
        won = self.leases.elect(NAME, self.worker, self.seconds)
        if won and self._term is None:
            self._term = threading.Event()
        elif not won:
            self._end()

    def resign(self) -> None:
        """Leave it to another, at once."""
        self._end()
        try:
            self.leases.resign(NAME, self.worker)
        except LedgerError as error:  # it will be over
            _log.warning("%s could not resign: %s", self.worker, error)

    def term(self, stop: threading.Event) -> threading.Event | None:
        """Wait until this worker is elected: what is set when that is over; None once `stop` is set."""
        while not stop.is_set():
            if (term := self._term) is not None:
                return term
            stop.wait(LOOK)
        return None

    def _end(self) -> None:
        if self._term is not None:
            self._term.set()
            self._term = None
