"""A candidate: one of several relays, of which the ledger's leases elect one at a time."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from types import TracebackType
from typing import Final, Self
from uuid import uuid4

from ledger import LedgerError
from ledger.jobs.leases import Leases

SECONDS: Final = 3.0
"""Seconds that an election holds without a renewal; then another relay follows one that is frozen."""
_PAUSE: Final = 0.05

_log = logging.getLogger(__name__)


class Candidate:
    """Stands for election in a thread of its own, while its block runs.

    The election keeps the peace: two relays at once would end each other's transactions. The fence of Kafka's
    transactions decides who publishes, so a relay that does not know of its successor does no harm.
    """

    def __init__(self, leases: Leases, name: str, seconds: float = SECONDS) -> None:
        self.leases, self.name, self.seconds = leases, name, seconds
        self.worker = f"{socket.gethostname()}/{os.getpid()}/{uuid4().hex[:8]}"
        self._until = 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"election {name}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()
        try:
            self.leases.resign(self.name, self.worker)
        except LedgerError as unanswered:  # it will be over
            _log.warning("%s could not resign from %s: %s", self.worker, self.name, unanswered)

    @property
    def is_elected(self) -> bool:
        """Whether it is elected, as far as it can know."""
        return time.monotonic() < self._until

    def wait(self, stop: threading.Event) -> bool:
        """Wait until it is elected; False once `stop` is set."""
        while not stop.is_set():
            if self.is_elected:
                return True
            stop.wait(_PAUSE)
        return False

    def _run(self) -> None:
        while not self._end.is_set():
            began = time.monotonic()
            try:
                won = self.leases.elect(self.name, self.worker, self.seconds)
                self._until = began + self.seconds if won else 0.0
            except LedgerError as error:
                _log.warning("no election of %s: %s", self.name, error)
            self._end.wait(self.seconds / 4)
