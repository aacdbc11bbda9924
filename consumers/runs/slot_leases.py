"""
Gives the slots of concurrency limits back whose holders are gone (spec S3-60; W3-04).

A lease that ran out gives its slots back by an append at the version of each limit: once, however many of
these services run. A holder whose row was lost with the table gets a row again, and so comes back here. Slots
that a run holds without a lease end with the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

from ledger import BadInput, Ledger
from ledger.runs.flow_run import OpenFlowRun
from ledger.runs.json_values import checked_uuid
from ledger.runs.leases import LeaseKind, RunLease, RunLeases
from ledger.runs.limit import NOBODY, Holding
from ledger.runs.limits import Limits, row_of
from ledger.runs.task_run import OpenTaskRun

from .listening import listening_since
from .rounds import Rounds

KEEP: Final = 24 * 3600.0
"""Seconds for which a lease that ran out may be taken again by who renews it (W3-07)."""
GRACE: Final = 60.0
"""Seconds in which a holder whose row was lost must renew it, and a service gives back what it took out."""
SWEEP: Final = 4
"""Every so many rounds, all holders are looked at."""
_RUNS: Final = {"flow_run": OpenFlowRun, "task_run": OpenTaskRun}
"""The streams of holders, by the type that a client tells."""

Held = Mapping[str, Mapping[str, Holding]]
"""What each lease holds, by the id of the limit."""


class SlotLeases(Rounds):
    """Gives back the slots of leases that ran out, and of runs that are over."""

    NAME = "slot_leases"

    def __init__(self, ledger: Ledger, *, every: float = 5.0) -> None:
        super().__init__(ledger, every=every)
        self._limits, self._leases, self._rounds = Limits(ledger), RunLeases(ledger), 0

    def run_once(self) -> int:
        """Give back what is over now; how many leases gave back slots."""
        since = listening_since(self._leases)  # before, no client could renew
        gone = self._leases.take_expired(LeaseKind.SLOTS, since=since, kept=LeaseKind.LOST_SLOTS, keep=KEEP)
        freed = self.each(gone, self._expire)
        if self._rounds % SWEEP == 0:
            self._leases.take_expired(LeaseKind.LOST_SLOTS)
            freed += self._sweep()
        self._rounds += 1
        return freed

    def _expire(self, lease: RunLease) -> bool:
        return bool(self._limits.expire(lease.key, lease.data["limits"]))

    def _sweep(self) -> int:
        """Look at all holders: put lost rows again, and free what runs hold that are over."""
        held: dict[str, dict[str, Holding]] = {}
        for limit in self._limits.all().states():
            for lease, holding in limit.holdings.items():
                if lease != NOBODY:
                    held.setdefault(lease, {})[limit.id] = holding
        going = self._being_taken()
        leased = {lease: row_of(of) for lease, of in held.items() if _is_leased(of) and lease not in going}
        if leased:
            self._leases.put_if_absent(LeaseKind.SLOTS, leased, GRACE)
        return self.each(self._over(held), lambda lease: self._limits.end(lease, [*held[lease]]))

    def _being_taken(self) -> set[str]:
        """Leases that ran out a moment ago: another service gives back their slots just now."""
        recent = self._leases.clock() + timedelta(seconds=KEEP - GRACE)
        return {lease.key for lease in self._leases.all(LeaseKind.LOST_SLOTS) if lease.until > recent}

    def _over(self, held: Held) -> Iterable[str]:
        """The leases whose runs are over, or were never here: a lease of another system's run runs out."""
        streams = {lease: stream for lease, of in held.items() if (stream := _stream_of(of)) is not None}
        read = {stream.name: stream for stream in self.ledger.load_each(streams.values())} if streams else {}
        for lease, stream in streams.items():
            run = read[stream.name]
            if not run.version and _is_leased(held[lease]):
                continue
            if not run.version or run.state.is_deleted or (run.state.state and run.state.state.is_terminal):
                yield lease


def _is_leased(held: Mapping[str, Holding]) -> bool:
    return any(one.leased for one in held.values())


def _stream_of(held: Mapping[str, Holding]) -> Any:
    """The stream of the run for which a lease holds its slots; None where it is for no run."""
    holder: Mapping[str, Any] = next((one.holder for one in held.values() if one.holder), {})
    kind = _RUNS.get(str(holder.get("type")))
    try:
        return None if kind is None else kind(checked_uuid(str(holder.get("id"))))
    except BadInput:
        return None
