"""
Leases of runs: what is renewed while it is in use, in an unlogged table; renewals are no events.

A lease only nominates: what ends when it runs out is ended by an append, which the version of its stream
decides. The table may be lost; whoever depends on a lease puts it again (`put_if_absent`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from ..domain import canonical_json
from ..log.ledger import Ledger
from ..log.sql import Statements

SQL = Statements(__package__, "leases")


class LeaseKind(StrEnum):
    """What is leased, and its key.

    SLOTS: slots of concurrency limits, by the lease's id. LOST_SLOTS: those that ran out; they may be taken
    again. FLOW_RUN: a running flow run that sends heartbeats, by its id. WORKER: a worker, by the id of its
    record. WORK_QUEUE, DEPLOYMENT: what somebody polls, by the id of the record. LISTENING: that servers are
    there to which clients can send events. TASK_RUN: a background task run that a client was given, by its id
    and that of its state.
    """

    SLOTS = "slots"
    LOST_SLOTS = "lost_slots"
    FLOW_RUN = "flow_run"
    WORKER = "worker"
    WORK_QUEUE = "work_queue"
    DEPLOYMENT = "deployment"
    LISTENING = "listening"
    TASK_RUN = "task_run"


class RunLease(NamedTuple):
    """A lease. seconds: how long a renewal lasts; data: what its holder told; taken_at: since when."""

    key: str
    until: datetime
    seconds: float
    data: Mapping[str, Any]
    taken_at: datetime

    @property
    def renewed_at(self) -> datetime:
        """When it was renewed last."""
        return self.until - timedelta(seconds=self.seconds)


class RunLeases:
    """The leases of runs in a ledger. Needs the writer's role."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def renew(self, kind: LeaseKind, key: str, seconds: float, data: Mapping[str, Any] | None = None) -> None:
        """Take a lease, or renew it, for so many seconds from now. data: None leaves what is there."""
        text = None if data is None else canonical_json.body(dict(data))
        self.ledger.query(SQL.put, kind=kind.value, key=key, seconds=seconds, data=text)

    def renew_held(self, kind: LeaseKind, key: str, seconds: float) -> bool:
        """Renew a lease that is there, also one that ran out and that nobody took out; False if none is."""
        return bool(self.ledger.query(SQL.renew, kind=kind.value, key=key, seconds=seconds))

    def take(self, kind: LeaseKind, key: str, seconds: float, data: Mapping[str, Any]) -> bool:
        """Take a lease that nobody has, or that ran out; False if somebody has it."""
        text = canonical_json.body(dict(data))
        return bool(self.ledger.query(SQL.take, kind=kind.value, key=key, seconds=seconds, data=text))

    def mark(self, kind: LeaseKind, key: str, seconds: float) -> None:
        """Renew a mark for so many seconds; it is there since it was first put without a gap."""
        self.ledger.query(SQL.mark, kind=kind.value, key=key, seconds=seconds)

    def put_if_absent(
        self, kind: LeaseKind, leases: Mapping[str, Mapping[str, Any]], seconds: float
    ) -> list[str]:
        """Put leases, data by key, where there are none; returns the keys of those that were put."""
        data = [canonical_json.body(dict(one)) for one in leases.values()]
        rows = self.ledger.query(
            SQL.put_if_absent, kind=kind.value, keys=[*leases], data=data, seconds=seconds
        )
        return [key for (key,) in rows]

    def release(self, kind: LeaseKind, *keys: str) -> list[str]:
        """Delete leases that are over; returns the keys of those that were there."""
        return [key for (key,) in self.ledger.query(SQL.release, kind=kind.value, keys=list(keys))]

    def take_expired(
        self,
        kind: LeaseKind,
        limit: int = 100,
        *,
        since: datetime | None = None,
        kept: LeaseKind | None = None,
        keep: float = 0.0,
    ) -> list[RunLease]:
        """Take out leases that ran out, the oldest first; each goes to one caller.

        since: none could be renewed before, so each lasts as long from then on. kept: the kind under which
        each is kept for `keep` seconds, with its data.
        """
        other = None if kept is None else kept.value
        rows = self.ledger.query(
            SQL.take_expired, kind=kind.value, limit=limit, since=since, kept=other, keep=keep
        )
        return [_lease(row) for row in rows]

    def get(self, kind: LeaseKind, key: str) -> RunLease | None:
        """A lease, also one that ran out; None if there is none."""
        rows = self.ledger.query(SQL.one, kind=kind.value, key=key)
        return _lease(rows[0][:-1]) if rows else None

    def lasting(self, kind: LeaseKind, keys: Sequence[str]) -> set[str]:
        """Those of these keys whose leases did not run out."""
        return {key for (key,) in self.ledger.query(SQL.lasting, kind=kind.value, keys=list(keys))}

    def all(self, kind: LeaseKind) -> list[RunLease]:
        """All leases of a kind, ordered by when they run out."""
        return [_lease(row) for row in self.ledger.query(SQL.all, kind=kind.value)]

    def clock(self) -> datetime:
        """The database's time."""
        ((now,),) = self.ledger.query(SQL.clock)
        at: datetime = now
        return at.astimezone(UTC)


def _lease(row: tuple[Any, ...]) -> RunLease:
    key, until, seconds, data, taken_at = row
    return RunLease(key, until.astimezone(UTC), seconds, data, taken_at.astimezone(UTC))
