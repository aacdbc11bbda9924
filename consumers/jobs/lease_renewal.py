"""Renewal of a worker's leases, in a thread that no operation can hold up (W1-20)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from ledger import Ledger, LedgerError
from ledger.jobs.leases import HeldLease, Leases, LeaseStatus

MAX_PAUSE: Final = 2.0
"""Maximum seconds between two renewals; after this time a quiet operation learns of its cancel."""

_log = logging.getLogger(__name__)


class LeaseRenewal:
    """Renews leases in a thread, and calls `lost` for each claim that is over.

    held: returns the claims; figures: the row of the worker in the table `workers`. seconds: how long a lease
    holds. also: called at each renewal.
    """

    def __init__(
        self,
        ledger: Ledger,
        worker: str,
        held: Callable[[], Sequence[HeldLease]],
        lost: Callable[[LeaseStatus], None],
        *,
        seconds: float,
        figures: Callable[[], dict[str, Any]],
        also: Callable[[], None] | None = None,
    ) -> None:
        self.leases, self.worker, self.held, self.lost = Leases(ledger), worker, held, lost
        self.seconds, self.figures, self.also = seconds, figures, also
        self.every = min(seconds / 3, MAX_PAUSE)
        self._stop, self._now = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"lease renewal of {worker}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Stop, and remove the worker from the list; leases stay until they are released or run out."""
        self._stop.set()
        self._now.set()
        self._thread.join()
        try:
            self.leases.unregister(self.worker)
        except LedgerError as error:
            _log.warning("%s could not be removed from the list of workers: %s", self.worker, error)

    def renew_now(self) -> None:
        """Renew now, without waiting for the next time."""
        self._now.set()

    def renew(self) -> None:
        """Renew once. Raises ServerUnavailable."""
        self.leases.register(self.worker, **self.figures())
        if self.also is not None:
            self.also()
        for seen in self.leases.renew(self.worker, self.held(), self.seconds):
            if not seen.holds:
                self.lost(seen)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._now.clear()
            try:
                self.renew()
            except LedgerError as error:  # spec S1-30: not fatal: the lease holds until it runs out
                _log.warning("%s could not renew its leases: %s", self.worker, error)
            except Exception:
                _log.exception("%s could not renew its leases", self.worker)
            self._now.wait(self.every)
