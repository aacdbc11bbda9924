"""The heart of a worker: renews its leases from a thread that no operation can hold up (W1-20)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from ledger import Ledger, LedgerError
from ledger.store.leases import Held, Leases, Seen

BEAT: Final = 2.0
"""Seconds between two beats, at most: so late an operation that says nothing learns of its cancel."""

_log = logging.getLogger(__name__)


class Heart:
    """Renews leases; `lost` is told of each claim that turned out to be over.

    held: the claims; figures: what the worker says of itself at each beat. seconds: how long a lease holds.
    also: what else is done at each.
    """

    def __init__(
        self,
        ledger: Ledger,
        worker: str,
        held: Callable[[], Sequence[Held]],
        lost: Callable[[Seen], None],
        *,
        seconds: float,
        figures: Callable[[], dict[str, Any]],
        also: Callable[[], None] | None = None,
    ) -> None:
        self.leases, self.worker, self.held, self.lost = Leases(ledger), worker, held, lost
        self.seconds, self.figures, self.also = seconds, figures, also
        self.every = min(seconds / 3, BEAT)
        self._stop, self._now = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"heart of {worker}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and say farewell; the leases stay until they are given back, or over."""
        self._stop.set()
        self._now.set()
        self._thread.join()
        try:
            self.leases.farewell(self.worker)
        except LedgerError as error:
            _log.warning("%s could not say farewell: %s", self.worker, error)

    def beat_now(self) -> None:
        """Do not wait for the next beat: there is news."""
        self._now.set()

    def beat(self) -> None:
        """Renew once. Raises ServerUnavailable."""
        self.leases.greet(self.worker, **self.figures())
        if self.also is not None:
            self.also()
        for seen in self.leases.renew(self.worker, self.held(), self.seconds):
            if not seen.holds:
                self.lost(seen)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._now.clear()
            try:
                self.beat()
            except LedgerError as error:  # spec S1-30: not fatal; the lease goes on until it is over
                _log.warning("%s could not renew its leases: %s", self.worker, error)
            except Exception:
                _log.exception("%s could not renew its leases", self.worker)
            self._now.wait(self.every)
