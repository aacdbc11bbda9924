"""
The claim of a job or a batch, in two steps:

1. `LogOffers.take` puts leases on work that the view `work` nominates (claim.sql). A lease decides nothing:
   it keeps other workers away for a while.
2. `claim` decides by an append: the fact `job.started` or `batch.started`, expected at exactly the version
   that was read. Its version is the fencing token: of two workers that claim the same work, one is refused.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol

from ledger import BadInput, Ledger, UnreadableEvent
from ledger.domain.state import load
from ledger.jobs import OpenBatch, OpenJob
from ledger.jobs.leases import Leases
from ledger.jobs.work import OpenWork, work_at
from ledger.log.append import Append, Guard, append_of
from ledger.log.sql import Statements

from .messages import Task

SQL = Statements(__package__, "claim")
OVER: Final = frozenset({"cancelled", "failed"})
"""Statuses of a job whose batches and children are not run any more (spec S1-22, S1-43)."""
MOMENT: Final = 0.02
"""Seconds for which a worker may keep work that it has taken ahead."""
MOST_AHEAD: Final = 32
"""Maximum number of pieces of work that a worker takes ahead."""

_log = logging.getLogger(__name__)


class Offer(NamedTuple):
    """Work on which this worker has a lease: opened, not claimed yet. payload: JSON text.

    token: of the claim that is to follow. parent_status: the status of the job that it is a batch or child
    of. now: the time of the lease, by the database's clock.
    """

    work: OpenWork[Any, Any]
    token: int
    payload: str
    parent_status: str | None
    now: datetime

    @property
    def due(self) -> bool:
        """Whether it may be claimed now: the view may be behind, the state is not."""
        state = self.work.state
        waits = state.status in self.work.WAITING and self.work.next_version == self.token
        return waits and (state.due_at is None or state.due_at <= self.now)


class Claim(NamedTuple):
    """A claim of this worker: the stream as it was when it was claimed, and the fencing token."""

    work: OpenWork[Any, Any]
    token: int


class Offers(Protocol):
    """Where work comes from. An offer means that something may be claimed; the claim is an append."""

    def take(self, limit: int, over: Sequence[tuple[str, int]] = ()) -> list[Offer]:
        """Take leases on up to `limit` pieces of work, and release leases that are over: stream and token.

        Raises ServerUnavailable; then the caller names them again.
        """
        ...

    def release(self, over: Sequence[tuple[str, int]]) -> None:
        """Release these leases, and those on work that was taken and not returned yet."""
        ...


class LogOffers:
    """Offers from the log itself: what the view `work` nominates.

    worker: who takes. queues: only from these; None: from all. seconds: how long a lease holds at first.
    operations: only these, which the worker knows, read anew at each call; None: any.
    """

    def __init__(
        self,
        ledger: Ledger,
        worker: str,
        queues: Sequence[str] | None,
        seconds: float,
        *,
        operations: Collection[str] | None = None,
    ) -> None:
        self.ledger, self.worker, self.seconds, self.operations = ledger, worker, seconds, operations
        self.queues = None if queues is None else list(queues)

    def take(self, limit: int, over: Sequence[tuple[str, int]] = (), ahead: int = 0) -> list[Offer]:
        """ahead: take so many more, of operations without limits."""
        if limit < 1:
            self.release(over)
            return []
        rows = self._take_leases(limit, over, ahead)
        if over and not rows:  # what was released may be taken now
            rows = self._take_leases(limit, (), ahead)
        offers = []
        for row in rows:
            try:
                offers.append(self._offer(*row))
            except (UnreadableEvent, BadInput, TypeError) as error:  # its lease runs out
                _log.error("%s cannot be taken: %s", row[0], error)
        return offers

    def release(self, over: Sequence[tuple[str, int]]) -> None:
        if over:
            Leases(self.ledger).release(over)

    def _take_leases(self, limit: int, over: Sequence[tuple[str, int]], ahead: int) -> list[tuple[Any, ...]]:
        return self.ledger.query(
            SQL.take_leases,
            worker=self.worker,
            seconds=self.seconds,
            queues=self.queues,
            operations=None if self.operations is None else sorted(self.operations),
            limit=limit,
            ahead=ahead,
            released=[stream for stream, _ in over],
            tokens=[token for _, token in over],
        )

    def _offer(
        self,
        stream: str,
        token: int,
        payload: str | None,
        parent_status: str | None,
        version: int,
        state_version: int,
        schema: int | None,
        state: str | None,
        now: datetime,
    ) -> Offer:
        work = work_at(stream)
        try:
            if state is None or state_version != version or schema != work.state_schema():
                raise ValueError("the state in the head is behind, or of other code")
            work.restore(load(work.STATE, state), version)
        except ValueError:  # fold its events
            (work,) = self.ledger.load_each([work])
        return Offer(work, token, payload or "{}", parent_status, now)


class OffersAhead:
    """Offers for a worker whose work is short: as many pieces are taken ahead as ended within MOMENT before.

    One call that takes ten leases costs hardly more than one that takes one. What was taken ahead and is not
    wanted within MOMENT is released, so no work waits behind a long operation.
    """

    def __init__(self, offers: LogOffers) -> None:
        self._offers = offers
        self._ahead: list[Offer] = []
        self._over: list[tuple[str, int]] = []
        self._ends: deque[float] = deque(maxlen=MOST_AHEAD)
        self._taken_at = 0.0

    def take(self, limit: int, over: Sequence[tuple[str, int]] = ()) -> list[Offer]:
        now = time.monotonic()
        given: list[Offer] = []
        if now - self._taken_at <= MOMENT:
            if len(self._ahead) >= limit:  # mostly
                given, self._ahead = self._ahead[:limit], self._ahead[limit:]
                self._over += over
                self._ends += [now] * len(over)
                return given
            given = self._ahead
        unused = () if given else self._ahead
        done = [*self._over, *over, *((one.work.name, one.token) for one in unused)]
        ended = sum(now - end <= MOMENT for end in self._ends)
        taken = [*given, *self._offers.take(limit - len(given), done, min(ended, MOST_AHEAD))]
        self._ends += [now] * len(over)
        self._taken_at, self._over, self._ahead = now, [], taken[limit:]
        return taken[:limit]

    def release(self, over: Sequence[tuple[str, int]]) -> None:
        ahead = [(one.work.name, one.token) for one in self._ahead]
        self._offers.release([*self._over, *ahead, *over])
        self._ahead, self._over = [], []


def claim(offer: Offer, worker: str) -> tuple[list[Append], bool]:
    """The appends of a claim and True; of work whose job is over, the appends that cancel it and False."""
    work = offer.work
    if offer.parent_status not in OVER:
        work.start(worker)
        return [append_of(work)], True
    work.cancel(f"parent_{offer.parent_status}")
    parent = OpenJob.name_of(work.state.job if isinstance(work, OpenBatch) else work.state.parent)
    return [append_of(work), Append(parent, [], Guard(OVER))], False  # refused if it is reopened meanwhile


def task_of(offer: Offer) -> Task:
    """What a slot is given to run, once the work is claimed."""
    work: OpenWork[Any, Any] = offer.work
    state = work.state
    job, batch = (state.job, state.nr) if isinstance(work, OpenBatch) else (state.id, None)
    return Task(
        work.name, offer.token, work.version, state.operation, offer.payload, job, state.attempt, batch,
        state.timeout_seconds,
    )  # fmt: skip
