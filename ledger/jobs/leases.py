"""Leases of claims and the list of workers: unlogged tables that may be lost; the log decides."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from ..log.ledger import Ledger
from ..log.sql import Statements

SQL = Statements(__package__, "leases")

SILENT: Final = 10.0
"""Seconds without a renewal after which a worker counts as silent; it renews every two seconds."""


class HeldLease(NamedTuple):
    """A claim that a worker has, as far as the worker knows."""

    stream: str
    token: int
    operation: str


class LeaseStatus(NamedTuple):
    """The head of a claimed stream when its lease was renewed; head_token None: there is no claim."""

    stream: str
    token: int
    head_token: int | None
    status: str | None

    @property
    def holds(self) -> bool:
        """Whether the claim still holds."""
        return self.head_token == self.token


class ExpiredLease(NamedTuple):
    """A lease that ran out, with the token and status of its stream's head."""

    stream: str
    token: int
    worker: str
    until: datetime
    head_token: int | None
    status: str | None


class Lease(NamedTuple):
    """A lease. holds: whether its claim still holds."""

    stream: str
    token: int
    worker: str
    operation: str
    taken_at: datetime
    until: datetime
    holds: bool


class WorkerStatus(NamedTuple):
    """A row of the list of workers. silent: seconds since its last renewal."""

    worker: str
    host: str
    pid: int
    queues: list[str] | None
    operations: list[str]
    slots: int
    busy: int
    draining: bool
    done: int
    started_at: datetime
    seen_at: datetime
    silent: float

    @property
    def state(self) -> str:
        """`here`; `draining`: it claims no more work; `silent`: it may be gone."""
        if self.silent > SILENT:
            return "silent"
        return "draining" if self.draining else "here"


class Leases:
    """The leases of a ledger. Needs the writer's role and the reader's."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def renew(self, worker: str, held: Sequence[HeldLease], seconds: float) -> list[LeaseStatus]:
        """Renew a worker's leases for so many seconds from now; returns token and status of each head."""
        rows = self.ledger.query(
            SQL.renew_leases,
            worker=worker,
            seconds=seconds,
            streams=[one.stream for one in held],
            tokens=[one.token for one in held],
            operations=[one.operation for one in held],
        )
        return [LeaseStatus(*row) for row in rows]

    def release(self, held: Sequence[tuple[str, int]]) -> None:
        """Delete leases that are over: stream and token of each."""
        streams, tokens = [stream for stream, _ in held], [token for _, token in held]
        self.ledger.query(SQL.release_leases, streams=streams, tokens=tokens)

    def take_expired(self, limit: int = 1000) -> list[ExpiredLease]:
        """Leases that ran out, deleted, the oldest first; each goes to one caller.

        The claim holds until an append ends it.
        """
        return [ExpiredLease(*row) for row in self.ledger.query(SQL.take_expired_leases, limit=limit)]

    def all(self) -> list[Lease]:
        """All leases, ordered by when they run out."""
        return [Lease(*row) for row in self.ledger.query(SQL.leases)]

    # Workers

    def register(self, worker: str, **status: Any) -> None:
        """Add or update a worker: host, pid, queues, operations, slots, busy, draining, done."""
        self.ledger.query(SQL.register_worker, worker=worker, **status)

    def unregister(self, worker: str) -> None:
        """Remove a worker that is stopping."""
        self.ledger.query(SQL.unregister_worker, worker=worker)

    def remove_silent(self, seconds: float) -> int:
        """Remove workers that have been silent for so many seconds; returns how many."""
        return len(self.ledger.query(SQL.remove_silent_workers, seconds=seconds))

    def workers(self) -> list[WorkerStatus]:
        """The registered workers."""
        return [WorkerStatus(*row) for row in self.ledger.query(SQL.workers)]

    # Elections

    def elect(self, name: str, worker: str, seconds: float) -> bool:
        """Elect this worker for `name`, for so many seconds more; False if another one is elected."""
        return bool(self.ledger.query(SQL.elect, name=name, worker=worker, seconds=seconds))

    def resign(self, name: str, worker: str) -> None:
        """Give up this worker's election."""
        self.ledger.query(SQL.resign, name=name, worker=worker)
