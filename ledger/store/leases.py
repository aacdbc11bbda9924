"""Leases: which worker says that it works on what, until when. They may be lost, and are no truth."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from . import reading
from .ledger import Ledger


class Held(NamedTuple):
    """A claim that a worker believes it has."""

    stream: str
    token: int
    operation: str


class Seen(NamedTuple):
    """What the head of a claimed stream said when its lease was renewed; token None: no claim holds."""

    stream: str
    token: int
    head_token: int | None
    status: str | None

    @property
    def holds(self) -> bool:
        """Whether the claim is not over."""
        return self.head_token == self.token


class Expired(NamedTuple):
    """A lease that was not renewed in time, and what its stream's head says."""

    stream: str
    token: int
    worker: str
    until: datetime
    head_token: int | None
    status: str | None


class Lease(NamedTuple):
    """A lease. holds: whether the claim that it belongs to is not over."""

    stream: str
    token: int
    worker: str
    operation: str
    taken_at: datetime
    until: datetime
    holds: bool


class Worker(NamedTuple):
    """A worker that says that it is there; silent: seconds since it last did."""

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


class Leases:
    """The leases of a ledger. Needs the writer's role and the reader's."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def renew(self, worker: str, held: Sequence[Held], seconds: float) -> list[Seen]:
        """Renew a worker's leases, for so many seconds from now; what each claim's stream is at."""
        streams, tokens, operations = (
            ([*column] for column in zip(*held, strict=True)) if held else ([], [], [])
        )
        parameters = {"streams": streams, "tokens": tokens, "operations": operations}
        rows = self._ask("renew_leases", worker=worker, seconds=seconds, **parameters)
        return [Seen(*row) for row in rows]

    def release(self, held: Sequence[tuple[str, int]]) -> None:
        """Take out leases that are over: stream and token of each."""
        self._ask("release_leases", streams=[s for s, _ in held], tokens=[t for _, t in held])

    def expired(self, limit: int = 1000) -> list[Expired]:
        """Leases that were not renewed in time, the oldest first."""
        return [Expired(*row) for row in self._ask("expired_leases", limit=limit)]

    def take_expired(self, limit: int = 1000) -> list[Expired]:
        """The same, taken out: each lease is given to one caller. Its claim holds until an append ends it."""
        return [Expired(*row) for row in self._ask("take_expired_leases", limit=limit)]

    def all(self) -> list[Lease]:
        """All leases, those that end first, first."""
        return [Lease(*row) for row in self._ask("leases")]

    def greet(self, worker: str, **figures: Any) -> None:
        """A worker says that it is there: host, pid, queues, operations, slots, busy, draining, done."""
        self._ask("greet", worker=worker, **figures)

    def farewell(self, worker: str) -> None:
        """A worker leaves."""
        self._ask("farewell", worker=worker)

    def forget(self, seconds: float) -> int:
        """Take out workers of which nothing was heard for so long; how many."""
        return len(self._ask("forget_workers", seconds=seconds))

    def elect(self, what: str, worker: str, seconds: float) -> bool:
        """Whether this worker is the one that runs `what`, for so many seconds more."""
        return bool(self._ask("elect", what=what, worker=worker, seconds=seconds))

    def resign(self, what: str, worker: str) -> None:
        """Leave it to another."""
        self._ask("resign", what=what, worker=worker)

    def workers(self) -> list[Worker]:
        """The workers that say that they are there."""
        return [Worker(*row) for row in self._ask("workers")]

    def _ask(self, name: str, **parameters: Any) -> list[tuple[Any, ...]]:
        with self.ledger.reader() as connection:
            return reading.query(connection, self.ledger.schema, name, **parameters)
