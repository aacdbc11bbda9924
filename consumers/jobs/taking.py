"""Where work comes from: offers, and leases on what is taken. From the log here; others may come."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from ledger import Ledger
from ledger.jobs import OpenBatch, OpenJob, OpenWork
from ledger.names import split_name
from ledger.state import load
from projections.sql import query


class Taken(NamedTuple):
    """Work on which a lease was taken: opened as it is, not claimed yet. payload: JSON text.

    token: the one that its claim will have. parent_status: the status of the job that it belongs to. now: by
    the database's clock.
    """

    work: OpenWork[Any, Any]
    token: int
    payload: str
    parent_status: str | None
    now: datetime

    @property
    def due(self) -> bool:
        """Whether it may be claimed now: its view may be behind, its state is not."""
        state = self.work.state
        waits = state.status in self.work.WAITING and self.work.next_version == self.token
        return waits and (state.due_at is None or state.due_at <= self.now)


class Offers(Protocol):
    """A transport of work. An offer says that something may be claimed; the claim is an append."""

    def take(self, most: int, over: Sequence[tuple[str, int]] = ()) -> list[Taken]:
        """Take leases on up to `most` pieces, and give back those that are over. Raises ServerUnavailable."""
        ...


class LogOffers:
    """Offers from the log itself: what the view `work` shows as waiting.

    worker: who takes. queues: from these; None: from all. seconds: how long a lease holds at first.
    """

    def __init__(self, ledger: Ledger, worker: str, queues: Sequence[str] | None, seconds: float) -> None:
        self.ledger, self.worker, self.seconds = ledger, worker, seconds
        self.queues = None if queues is None else list(queues)

    def take(self, most: int, over: Sequence[tuple[str, int]] = ()) -> list[Taken]:
        parameters = {
            "worker": self.worker, "seconds": self.seconds, "queues": self.queues, "most": most,
            "released": [stream for stream, _ in over], "tokens": [token for _, token in over],
        }  # fmt: skip
        with self.ledger.reader() as connection:
            rows = query(connection, self.ledger.schema, "take_work", **parameters)
        return [self._taken(*row) for row in rows]

    def _taken(
        self,
        stream: str,
        token: int,
        payload_version: int,
        parent: str | None,
        parent_status: str | None,
        version: int,
        state_version: int,
        schema: int | None,
        state: str | None,
        payload: str | None,
        now: datetime,
    ) -> Taken:
        category, key = split_name(stream)
        kind: type[OpenWork[Any, Any]] = OpenBatch if category == OpenBatch.CATEGORY else OpenJob
        if state is None or state_version != version or schema != kind.state_schema():
            work = self.ledger.load(kind, *key)
        else:
            work = kind(*key)
            work.restore(load(kind.STATE, state), version)
        return Taken(work, token, payload or "{}", parent_status, now)
