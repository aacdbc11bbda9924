"""
Jobs of a ledger: submit, look, wait, cancel, rescue.

    jobs = Jobs(log)
    job = jobs.submit("count_kmers", {"file": "proteins.fasta"})
    jobs.wait(job)
    jobs.result(job)

A job is recorded, and with that it is offered: there is no second step that could fail (spec W1-08).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar
from uuid import UUID

from ..append import append_of
from ..errors import BadInput, GuardFailed, JobUnsuccessful, StreamConflict, StreamNotFound
from ..expected import EXISTS, Guard
from ..frozen import FrozenDict
from ..names import split_name
from ..recorded import Recorded
from ..store import reading
from ..store.ledger import Ledger
from ..stream import Stream
from .checking import queue_name
from .job import ACTIVE, TERMINAL, Job, JobCreated, JobSucceeded, OpenJob
from .queue import Limits, OpenOperation, OpenQueue, Queue
from .submitting import TRIES, Submitting, checked_id

PAUSE: Final = 0.05
"""Seconds between two looks at jobs that are waited for, at most."""
ALONE: Final = 3
"""How often a comment waits for a moment without other writers; then it is recorded whatever they do."""

S = TypeVar("S", bound=Stream[Any, Any])


class Jobs(Submitting):
    """The jobs of a ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    # Looking

    def get(self, id: str | UUID) -> Job:
        """A job as it is now, with its payload and meta. Raises StreamNotFound."""
        job = self._opened(id)
        (created,) = self.ledger.read(job.name, limit=1)
        fact = created.event
        assert isinstance(fact, JobCreated)
        return replace(job.state, payload=FrozenDict(fact.payload), meta=FrozenDict(fact.meta))

    def status(self, id: str | UUID) -> str:
        """The status of a job, from its head. Raises StreamNotFound."""
        name = OpenJob.name_of(checked_id(id))
        head = self.ledger.head(name)
        if head is None or head.status is None:
            return str(self._opened(id).state.status)
        return str(head.status)

    def events(self, id: str | UUID, *, after: int = 0, limit: int | None = None) -> list[Recorded]:
        """The facts of a job in order, after a version. Raises StreamNotFound."""
        return self.ledger.read(OpenJob.name_of(checked_id(id)), after=after, limit=limit)

    def result(self, id: str | UUID) -> Mapping[str, Any]:
        """What a job that succeeded came to. Raises JobUnsuccessful, StreamNotFound."""
        job = self._opened(id)
        if job.state.status != "succeeded":
            state = job.state
            raise JobUnsuccessful(state.id, str(state.status), state.error_code, state.error_message)
        for event in self.ledger.read(job.name, backwards=True):
            if isinstance(fact := event.event, JobSucceeded):
                return fact.result
        return FrozenDict()

    def wait(self, *ids: str | UUID, seconds: float | None = None) -> dict[str, str]:
        """Wait until jobs are over; their statuses then, or after so many seconds, by id.

        Jobs of other processes too: all of them are looked at together, every 50 ms at least.
        Raises StreamNotFound.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        left, statuses = [checked_id(id) for id in ids], dict[str, str]()
        pause = 0.001
        while True:
            seen = self.ledger.wakeup.seen()
            statuses |= self._statuses(left)
            left = [id for id in left if statuses[id] not in TERMINAL]
            if not left or (deadline is not None and time.monotonic() >= deadline):
                return statuses
            rest = pause if deadline is None else min(pause, max(0.0, deadline - time.monotonic()))
            self.ledger.wakeup.wait(seen, rest)
            pause = min(pause * 2, PAUSE)

    def _statuses(self, ids: list[str]) -> dict[str, str]:
        names = {OpenJob.name_of(id): id for id in ids}
        with self.ledger.reader() as connection:
            rows = reading.query(connection, self.ledger.schema, "statuses", streams=[*names])
        found = {names[stream]: str(status) for stream, status in rows if status is not None}
        return found | {id: self.status(id) for id in ids if id not in found}

    # Deciding

    def cancel(self, id: str | UUID, reason: str | None = None) -> Job:
        """Cancel a job; one that is over is left as it is (spec C1-2). What hangs on it, the cascade cancels.

        It conflicts with nothing that a worker records meanwhile.
        """
        for _ in range(TRIES):
            job = self._opened(id)
            if not job.cancel(reason):
                return job.state
            # The token is cleared whatever it is: somebody may have claimed the job a moment ago.
            append = append_of(job)._replace(expected=Guard(frozenset(map(str, ACTIVE))), set_token=0)
            try:
                job.settle(self.ledger.append_all([append]).recorded_at)
                return job.state
            except GuardFailed:  # over meanwhile, or its head does not say what it is
                if self._committed(job):
                    return job.state
        raise self._busy(id)

    def retry(self, id: str | UUID, reason: str | None = None) -> Job:
        """Offer a failed job anew; a unique one takes its key again. Raises MoveNotAllowed, DuplicateJob."""
        for _ in range(TRIES):
            job = self._opened(id)
            job.redrive(reason)
            key = job.state.dedup_key
            taken = [] if key is None else self._take(key, job.state.id)
            try:
                job.settle(self.ledger.append_all([append_of(job), *taken]).recorded_at)
                return job.state
            except StreamConflict:
                continue
        raise self._busy(id)

    def discard(self, id: str | UUID, reason: str | None = None) -> Job:
        """A failed job is no dead letter any more; it stays failed."""
        for _ in range(TRIES):
            job = self._opened(id)
            job.discard(reason)
            if self._committed(job):
                return job.state
        raise self._busy(id)

    def comment(self, id: str | UUID, text: str, author: str | None = None) -> Job:
        """Say something on a job (spec S1-03)."""
        return self._note(id, lambda job: job.comment(text, author))

    def describe(self, id: str | UUID, **fields: Any) -> Job:
        """Say what a job is about: description, findings, tags."""
        return self._note(id, lambda job: job.describe(**fields))

    def _note(self, id: str | UUID, note: Callable[[OpenJob], None]) -> Job:
        """Record what moves nothing, also beside a worker that reports all the time."""
        for _ in range(ALONE):
            job = self._opened(id)
            note(job)
            if self._committed(job):
                return job.state
        job = self._opened(id)
        note(job)
        self.ledger.append_all([append_of(job)._replace(expected=EXISTS, status=None)])
        return self._opened(id).state

    def _committed(self, stream: Stream[Any, Any]) -> bool:
        """Whether the news were recorded; False where another writer came first."""
        try:
            self.ledger.commit(stream)
        except StreamConflict:
            return False
        return True

    def _busy(self, id: str | UUID) -> StreamConflict:
        return StreamConflict(OpenJob.name_of(checked_id(id)), "a job that nobody else changes", 0)

    # Queues and operations

    def pause(self, queue: str, reason: str | None = None) -> bool:
        """Take nothing from a queue any more; False where it is paused already."""
        return self._ruled(OpenQueue, queue_name(queue), lambda opened: opened.pause(reason))

    def resume(self, queue: str) -> bool:
        """Take work from a queue again; False where it is not paused."""
        return self._ruled(OpenQueue, queue_name(queue), lambda opened: opened.resume())

    def queues(self) -> dict[str, Queue]:
        """The queues that were ever paused, by name, and whether they are."""
        return self._rules("queue/", OpenQueue)

    def limit(
        self, operation: str, *, concurrency: int | None = None, rate: int | None = None, seconds: float = 1.0
    ) -> bool:
        """Let at most so many of an operation run at once, and so many begin within seconds.

        Without either, it is not limited any more. False where nothing changes. Raises BadInput.
        """
        if not operation or not isinstance(operation, str):
            raise BadInput("a limit is of an operation: give its name")
        return self._ruled(OpenOperation, operation, lambda opened: opened.limit(concurrency, rate, seconds))

    def limits(self) -> dict[str, Limits]:
        """The operations that were ever limited, by name, and their limits now."""
        return self._rules("operation/", OpenOperation)

    def _ruled(self, kind: type[S], name: str, decide: Callable[[S], bool]) -> bool:
        for _ in range(TRIES):
            opened = self.ledger.load(kind, name)
            done = decide(opened)
            if self._committed(opened):
                return done
        raise StreamConflict(kind.name_of(name), "a stream that nobody else changes", 0)

    def _rules(self, prefix: str, kind: type[Stream[Any, Any]]) -> dict[str, Any]:
        found = self.ledger.states((prefix, kind))[kind]
        return {split_name(name)[1][0]: state for name, _, state in sorted(found, key=lambda one: one[0])}

    def _opened(self, id: str | UUID) -> OpenJob:
        job = self.ledger.load(OpenJob, checked_id(id))
        if job.version == 0:
            raise StreamNotFound(job.name)
        return job
