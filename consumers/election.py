"""
An election: which of many processes does what only one shall do, by the ledger's leases.

It keeps the peace, and correctness does not depend on it: two at once record or publish nothing twice, and
after a gap the next one catches up. When the elected process stops renewing, another is elected.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Self
from uuid import uuid4

from ledger import LedgerError
from ledger.jobs.leases import Leases

PAUSE: Final = 0.05
"""Seconds between two checks whether this process was elected."""

_log = logging.getLogger(__name__)


class Candidate:
    """One process that stands for election. name: of the office; seconds: how long it holds it unrenewed.

    worker: the name of this process; by default host, process and a number.
    """

    def __init__(self, leases: Leases, name: str, seconds: float, worker: str | None = None) -> None:
        self.leases, self.name, self.seconds = leases, name, seconds
        self.worker = worker or f"{socket.gethostname()}/{os.getpid()}/{uuid4().hex[:8]}"
        self._until = 0.0
        self._term = threading.Event()

    @property
    def is_elected(self) -> bool:
        """Whether it is elected, as far as it can know."""
        return time.monotonic() < self._until

    def renew(self) -> None:
        """Win the election, or renew it, unless another process holds it. Raises ServerUnavailable."""
        began = time.monotonic()
        if self.leases.elect(self.name, self.worker, self.seconds):
            self._until = began + self.seconds
        else:
            self._end()

    def resign(self) -> None:
        """Give it up now."""
        self._end()
        try:
            self.leases.resign(self.name, self.worker)
        except LedgerError as error:  # it ends by itself
            _log.warning("%s could not resign from %s: %s", self.worker, self.name, error)

    def term(self, stop: threading.Event) -> threading.Event | None:
        """Wait until this process is elected: an event, set when that ends; None once `stop` is set."""
        while not stop.is_set():
            term = self._term
            if self.is_elected:
                return term
            stop.wait(PAUSE)
        return None

    @contextmanager
    def standing(self) -> Iterator[Self]:
        """Renew in a thread of its own while the block runs; then resign."""
        end = threading.Event()
        thread = threading.Thread(target=self._stand, args=[end], name=f"election {self.name}", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            end.set()
            thread.join()
            self.resign()

    def _stand(self, end: threading.Event) -> None:
        while not end.is_set():
            try:
                self.renew()
            except LedgerError as error:
                _log.warning("no election of %s: %s", self.name, error)
            end.wait(self.seconds / 4)

    def _end(self) -> None:
        self._until = 0.0
        self._term.set()
        self._term = threading.Event()
