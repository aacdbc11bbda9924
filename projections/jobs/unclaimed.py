"""Work that no worker takes: none runs, none has its operation, or none takes from its queue."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ledger import Ledger
from ledger.jobs.leases import Leases, WorkerStatus
from ledger.log.sql import Statements

from ..feeds import filling_of

SQL = Statements(__package__, "metrics")
NO_WORKER = "no worker runs"
NOT_KNOWN = "no worker knows its operation"
OTHER_QUEUES = "no worker that knows its operation takes from its queue"


class Unclaimed(NamedTuple):
    """Jobs and batches of an operation in a queue that no worker takes: how many; why: one of the above."""

    queue: str
    operation: str
    waiting: int
    why: str


def unclaimed(ledger: Ledger) -> list[Unclaimed]:
    """Waiting work that no running worker takes, by queue and operation; from the view `work`.

    Empty if the view does not exist yet.
    """
    if filling_of(ledger, "work") is None:
        return []
    rows = ledger.query(SQL.work_waiting)
    workers = Leases(ledger).workers() if rows else []
    found = (
        (queue, operation, many, why_unclaimed(workers, queue, operation))
        for queue, operation, many, *_ in rows
    )
    return [Unclaimed(queue, operation, many, why) for queue, operation, many, why in found if why]


def why_unclaimed(workers: Iterable[WorkerStatus], queue: str, operation: str) -> str | None:
    """Why no worker takes work of an operation from a queue; None if one does once it has a slot."""
    here = [worker for worker in workers if worker.state == "here"]
    if not here:
        return NO_WORKER
    knowing = [worker for worker in here if operation in worker.operations]
    if not knowing:
        return NOT_KNOWN
    return (
        None if any(worker.queues is None or queue in worker.queues for worker in knowing) else OTHER_QUEUES
    )
