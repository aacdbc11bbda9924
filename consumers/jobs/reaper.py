"""
A reaper: ends the claims of workers that vanished, and offers waiting work again that no free worker takes.

    Reaper(log).run(stop)

When a worker dies, its leases run out. The reaper takes out each expired lease and ends its claim by an
append under the guard of the claim's token: of reaper and worker, one wins. Within the budget of
`max_requeues` the work is offered again, else it fails. Leases may be lost and the view `work` may be behind:
both only nominate. No message is sent: work is on offer from the commit that queues it (W1-13). Any number
of reapers may run.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ledger import BadInput, Ledger, UnreadableEvent
from ledger.errors import ClaimLost, GuardFailed, MoveNotAllowed, SchemaMismatch, StreamConflict
from ledger.jobs.leases import ExpiredLease, Leases
from ledger.jobs.work import OpenWork, work_at
from ledger.log.sql import Statement, Statements
from ledger.roles import require_roles

SQL = Statements(__package__, "reaper")
EVERY: Final = 5.0
"""Seconds between two cycles."""
GRACE: Final = 30.0
"""Seconds in which a worker must renew a lease whose row was lost."""
STALLED: Final = 600.0
"""Seconds after which due work that nobody takes is offered again (spec S1-63)."""
MAX_STALLS: Final = 5
"""How often it is offered again before it is left to an operator."""
SILENT: Final = 600.0
"""Seconds without a renewal after which a worker is no longer listed."""
BATCH: Final = 100
"""Maximum number of claims that are ended in one append."""

_log = logging.getLogger(__name__)


class Counts(NamedTuple):
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

    def plus(self, other: Counts) -> Counts:
        """The sum."""
        return Counts(*(a + b for a, b in zip(self, other, strict=True)))


class Reaper:
    """Runs a cycle every so many seconds. stall_seconds: how long due work may wait.

    grace_seconds: how long a worker has to renew a lease whose row was lost. silent_seconds: when a silent
    worker is no longer listed.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        every: float = EVERY,
        grace_seconds: float = GRACE,
        stall_seconds: float = STALLED,
        silent_seconds: float = SILENT,
    ) -> None:
        self.ledger, self.leases, self.every = ledger, Leases(ledger), every
        self.grace_seconds, self.silent_seconds = grace_seconds, silent_seconds
        self.stall_seconds = stall_seconds
        self.counts = Counts()

    def run(self, stop: threading.Event | None = None) -> None:
        """Run cycles until `stop` is set. A cycle that fails is logged; the next one follows (spec S1-60).

        Raises NoPermission where the login lacks a role.
        """
        require_roles(self.ledger, "pledger reaper run")
        stopped = stop or threading.Event()
        while True:
            try:
                counts = self.run_once()
            except Exception:
                _log.exception("a cycle of the reaper failed; the next one begins in %s s", self.every)
            else:
                self.counts = self.counts.plus(counts)
                if counts.reaped or counts.offered or counts.granted:
                    _log.info("reaped: %s", counts)
            if stopped.wait(self.every):
                return

    def run_once(self) -> Counts:
        """One cycle. Raises NoPermission, ServerUnavailable, and whatever else goes wrong."""
        require_roles(self.ledger, "pledger reaper run")
        counts = self._expired()
        counts = counts.plus(Counts(forgotten=self.leases.remove_silent(self.silent_seconds)))
        granted = self._nominated(SQL.put_grace_leases, seconds=self.grace_seconds, limit=10 * BATCH)
        return counts.plus(Counts(granted=len(granted), offered=self._offer_again()))

    # Workers that vanished

    def _expired(self) -> Counts:
        """End claims whose leases are over.

        A lease is deleted first, so one reaper gets it. If this process dies before the append, the claim
        has no lease, gets a grace lease, and so comes here again.
        """
        counts = Counts()
        while taken := self.leases.take_expired(BATCH):
            held = [lease for lease in taken if lease.head_token == lease.token]
            ended = self._end(held)
            counts = counts.plus(Counts(dropped=len(taken) - len(held))).plus(ended)
            if len(taken) < BATCH:
                break
        return counts

    def _end(self, leases: Sequence[ExpiredLease]) -> Counts:
        ready = {}
        for lease in leases:
            work = self._opened(lease.stream)
            if work is None:
                continue
            try:
                work.check_lease(lease.token)
                work.expire()
            except (ClaimLost, MoveNotAllowed):  # it ended meanwhile
                continue
            ready[work.name] = (work, lease.token)
        while ready:
            try:
                self.ledger.append_all([work.under_lease(token) for work, token in ready.values()])
                break
            except (GuardFailed, StreamConflict) as error:  # the worker came first
                del ready[error.stream]
        failed = sum(work.over for work, _ in ready.values())
        return Counts(requeued=len(ready) - failed, failed=failed, dropped=len(leases) - len(ready))

    # Work that nobody takes

    def _offer_again(self) -> int:
        nominated = self._nominated(
            SQL.stalled_work, seconds=self.stall_seconds, max_stalls=MAX_STALLS, limit=BATCH
        )
        return sum(self._offered(stream) for stream in nominated)

    def _offered(self, stream: str) -> bool:
        work = self._opened(stream)
        if work is None or work.state.status not in work.WAITING or work.state.stalls >= MAX_STALLS:
            return False
        work.offer_again()
        try:
            self.ledger.commit(work)
        except StreamConflict:  # a worker took it
            return False
        return True

    def _nominated(self, statement: Statement, **parameters: Any) -> list[str]:
        """The streams that the view `work` nominates; none while that view does not exist yet."""
        try:
            return [stream for (stream,) in self.ledger.query(statement, **parameters)]
        except SchemaMismatch:
            return []

    def _opened(self, stream: str) -> OpenWork[Any, Any] | None:
        """The work of a stream; None if it cannot be read, which is logged: the others go on."""
        try:
            (work,) = self.ledger.load_each([work_at(stream)])
            return work
        except (UnreadableEvent, BadInput, TypeError) as error:
            _log.error("%s cannot be rescued: %s", stream, error)
            return None
