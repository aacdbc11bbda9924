"""
A reaper: rescues work whose worker vanished, and work that waits though nobody is busy.

    Reaper(log).run(stop)

It nominates by tables that may be lost (leases) or behind (the view `work`), and decides by appends: a claim
is ended under the guard of its own token, so of a reaper and a worker that come at once, one wins. There is
no message to send: what is queued in the log is offered, from that commit on (W1-13). Any number may run.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ledger import Ledger
from ledger.errors import ClaimLost, GuardFailed, MoveNotAllowed, SchemaMismatch, StreamConflict
from ledger.jobs import OpenBatch, OpenJob, OpenWork
from ledger.names import split_name
from ledger.store.leases import Expired, Leases
from projections.sql import query

EVERY: Final = 5.0
"""Seconds between two cycles."""
GRACE: Final = 30.0
"""Seconds that a worker has to renew a lease whose row was lost."""
STALLED: Final = 600.0
"""Seconds after which work that is due counts as orphaned (spec S1-63)."""
MOST_STALLS: Final = 5
"""How often it is offered again, before it is left to an operator."""
SILENT: Final = 600.0
"""Seconds after which a worker that says nothing is no longer listed."""
AT_ONCE: Final = 100
"""Pieces of work that are looked at together; as many appends are made in one transaction."""

_log = logging.getLogger(__name__)


class Figures(NamedTuple):
    """What one cycle did. requeued, failed: claims that were ended, whose workers had vanished.

    dropped: leases of claims that were over; granted: leases put because the row was lost; offered: orphaned
    work that was offered again; forgotten: workers that are no longer listed.
    """

    requeued: int = 0
    failed: int = 0
    dropped: int = 0
    granted: int = 0
    offered: int = 0
    forgotten: int = 0

    @property
    def reaped(self) -> int:
        """How many claims were ended (spec S1-60)."""
        return self.requeued + self.failed

    def plus(self, other: Figures) -> Figures:
        """The sum."""
        return Figures(*(a + b for a, b in zip(self, other, strict=True)))


class Reaper:
    """Looks every so many seconds for what was left behind. stall_seconds: how long due work may wait.

    grace_seconds: how long a worker has to renew a lease whose row was lost. most_stalls: how often the same
    work is offered again. silent_seconds: after how long a silent worker is no longer listed.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        every: float = EVERY,
        grace_seconds: float = GRACE,
        stall_seconds: float = STALLED,
        most_stalls: int = MOST_STALLS,
        silent_seconds: float = SILENT,
    ) -> None:
        self.ledger, self.leases, self.every = ledger, Leases(ledger), every
        self.grace_seconds, self.silent_seconds = grace_seconds, silent_seconds
        self.stall_seconds, self.most_stalls = stall_seconds, most_stalls
        self.figures = Figures()

    def run(self, stop: threading.Event | None = None) -> None:
        """Rescue until `stop` is set. A cycle that fails is logged, and the next one follows (spec S1-60)."""
        stopped = stop or threading.Event()
        while True:
            try:
                figures = self.run_once()
            except Exception:
                _log.exception("a cycle of the reaper failed; the next one is in %s s", self.every)
            else:
                self.figures = self.figures.plus(figures)
                if figures.reaped or figures.offered or figures.granted:
                    _log.info("reaped: %s", figures)
            if stopped.wait(self.every):
                return

    def run_once(self) -> Figures:
        """One cycle. Raises ServerUnavailable, and whatever else goes wrong."""
        figures = self._expired()
        figures = figures.plus(Figures(forgotten=self.leases.forget(self.silent_seconds)))
        granted = self._nominated("put_grace_leases", seconds=self.grace_seconds, limit=10 * AT_ONCE)
        return figures.plus(Figures(granted=len(granted), offered=self._offer_again()))

    # Workers that vanished

    def _expired(self) -> Figures:
        """End claims whose leases are over.

        A lease is taken out first, by whoever gets it. Where this process dies before the append, the claim
        has no lease, gets one of grace, and so comes here again.
        """
        figures = Figures()
        while taken := self.leases.take_expired(AT_ONCE):
            held = [lease for lease in taken if lease.head_token == lease.token]
            ended = self._end(held)
            figures = figures.plus(Figures(dropped=len(taken) - len(held))).plus(ended)
            if len(taken) < AT_ONCE:
                break
        return figures

    def _end(self, leases: Sequence[Expired]) -> Figures:
        ready = {}
        for lease in leases:
            work = self._opened(lease.stream)
            try:
                work.check_lease(lease.token)
                work.expire()
            except (ClaimLost, MoveNotAllowed):  # it came to its end meanwhile
                continue
            ready[work.name] = (work, lease.token)
        while ready:
            try:
                self.ledger.append_all([work.under_lease(token) for work, token in ready.values()])
                break
            except (GuardFailed, StreamConflict) as error:  # of this one the worker was first
                del ready[error.stream]
        failed = sum(work.over for work, _ in ready.values())
        return Figures(requeued=len(ready) - failed, failed=failed, dropped=len(leases) - len(ready))

    # Work that nobody takes

    def _offer_again(self) -> int:
        nominated = self._nominated(
            "stalled_work", seconds=self.stall_seconds, most=self.most_stalls, limit=AT_ONCE
        )
        return sum(self._offered(stream) for stream in nominated)

    def _offered(self, stream: str) -> bool:
        work = self._opened(stream)
        if work.state.status not in work.WAITING or work.state.stalls >= self.most_stalls:
            return False
        work.offer_again()
        try:
            self.ledger.commit(work)
        except StreamConflict:  # somebody took it
            return False
        return True

    def _nominated(self, name: str, **parameters: Any) -> list[str]:
        """Streams that the view of work shows; none while nobody has kept that view yet."""
        try:
            with self.ledger.reader() as connection:
                rows = query(connection, self.ledger.schema, name, **parameters)
        except SchemaMismatch:
            return []
        return [stream for (stream,) in rows]

    def _opened(self, stream: str) -> OpenWork[Any, Any]:
        category, key = split_name(stream)
        return self.ledger.load(OpenBatch if category == OpenBatch.CATEGORY else OpenJob, *key)
