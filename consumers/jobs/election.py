"""
An election: which of many workers runs the services, one at a time.

It saves the other workers from reading the log. Correctness does not depend on it: two at once record nothing
twice, and after a gap the next one catches up. When the elected worker stops renewing, another is elected.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from ledger import LedgerError
from ledger.jobs.leases import Leases

NAME: Final = "services"
MAX_SECONDS: Final = 10.0
"""Maximum seconds without a renewal; then another worker is elected."""
PAUSE: Final = 0.1
"""Seconds between two checks whether this worker was elected."""

_log = logging.getLogger(__name__)


class Election:
    """A worker's part in the election. seconds: how long it holds without a renewal."""

    def __init__(self, leases: Leases, worker: str, seconds: float) -> None:
        self.leases, self.worker, self.seconds = leases, worker, min(seconds, MAX_SECONDS)
        self._term: threading.Event | None = None

    def renew(self) -> None:
        """Win the election, or renew it, unless another worker holds it. Raises ServerUnavailable."""
        won = self.leases.elect(NAME, self.worker, self.seconds)
        if won and self._term is None:
            self._term = threading.Event()
        elif not won:
            self._end()

    def resign(self) -> None:
        """Give it up now."""
        self._end()
        try:
            self.leases.resign(NAME, self.worker)
        except LedgerError as error:  # it ends by itself
            _log.warning("%s could not resign: %s", self.worker, error)

    def term(self, stop: threading.Event) -> threading.Event | None:
        """Wait until this worker is elected: an event, set when that ends; None once `stop` is set."""
        while not stop.is_set():
            if (term := self._term) is not None:
                return term
            stop.wait(PAUSE)
        return None

    def _end(self) -> None:
        if self._term is not None:
            self._term.set()
            self._term = None
