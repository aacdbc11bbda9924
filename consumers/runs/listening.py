"""
The mark that clients can send events: kept by each process that receives them.

Silence of a client means nothing while no server is there to hear it. So a flow run counts as crashed only
when a server was there for as long as its lease lasts (spec W3-01).
"""

from __future__ import annotations

import logging
import threading
from datetime import datetime
from typing import Final, Self

from ledger import Ledger, LedgerError
from ledger.runs.leases import LeaseKind, RunLeases

EVERY: Final = 10.0
LASTS: Final = 30.0
"""Seconds between two renewals of the mark, and how long it lasts."""
KEY: Final = "events"

_log = logging.getLogger(__name__)


def listening_since(leases: RunLeases) -> datetime | None:
    """Since when servers have heard clients without a gap; None while there is none."""
    if not leases.lasting(LeaseKind.LISTENING, [KEY]):
        return None
    mark = leases.get(LeaseKind.LISTENING, KEY)
    return None if mark is None else mark.taken_at


class Listening:
    """Renews the mark while the block runs."""

    def __init__(self, ledger: Ledger) -> None:
        self._leases, self._stop = RunLeases(ledger), threading.Event()
        self._thread = threading.Thread(target=self._run, name="listening", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._leases.mark(LeaseKind.LISTENING, KEY, LASTS)
            except LedgerError as error:  # while the ledger is away, nothing can be heard
                _log.debug("the mark of listening was not renewed: %s", error)
            self._stop.wait(EVERY)
