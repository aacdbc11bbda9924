"""
Keeps the status of workers, work pools, queues and deployments by whether they are polled (spec S3-60).

Heartbeats and polls renew leases and record nothing; what is recorded is the change from ONLINE to OFFLINE,
and from READY to NOT_READY.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ledger import Ledger
from ledger.runs.deployments import Deployments
from ledger.runs.leases import LeaseKind, RunLease, RunLeases
from ledger.runs.records import Record
from ledger.runs.work_pools import WorkPools
from projections.runs import records

from .rounds import Rounds

GRACE: Final = 90.0
"""Seconds in which somebody must poll what is marked as polled, although its lease is missing."""
SWEEP: Final = 12
"""Every so many rounds, leases that were lost with their table are put again."""

_POLLED: Final[Mapping[LeaseKind, tuple[str, str]]] = {
    LeaseKind.WORKER: ("workers", "ONLINE"),
    LeaseKind.WORK_QUEUE: ("work_pool_queues", "READY"),
    LeaseKind.DEPLOYMENT: ("deployments", "READY"),
}
"""What is polled: the kind of records, and the status that it has then."""


class WorkerStatus(Rounds):
    """Marks workers as offline, and what nobody polls as not ready."""

    NAME = "worker_status"

    def __init__(self, ledger: Ledger, *, every: float = 5.0) -> None:
        super().__init__(ledger, every=every)
        self._leases, self._rounds = RunLeases(ledger), 0
        pools, deployments = WorkPools(ledger), Deployments(ledger)
        self._end: dict[LeaseKind, Callable[[RunLease], object]] = {
            LeaseKind.WORKER: lambda lease: pools.went_offline(lease.key, lease.renewed_at),
            LeaseKind.WORK_QUEUE: lambda lease: pools.queue_not_ready(lease.key, lease.renewed_at),
            LeaseKind.DEPLOYMENT: lambda lease: deployments.not_ready(lease.key, lease.renewed_at),
        }

    def run_once(self) -> int:
        """Mark those whose leases ran out."""
        if self._rounds % SWEEP == 0:
            self._sweep()
        self._rounds += 1
        done = 0
        for kind, end in self._end.items():
            gone = self._leases.take_expired(kind)
            self.each(gone, end)
            done += len(gone)
        return done

    def _sweep(self) -> None:
        """Put a lease on each record that is marked as polled and has none."""
        for kind, (name, status) in _POLLED.items():
            polled: list[Record] = []
            while page := records(self.ledger, name, offset=len(polled)):
                polled += page
            ready: dict[str, dict[str, Any]] = {
                record.id: {} for record in polled if record["status"] == status
            }
            self._leases.put_if_absent(kind, ready, GRACE)
