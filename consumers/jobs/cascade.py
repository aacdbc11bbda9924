"""
The cascade: cancels what hangs on a job that was cancelled, failed, or is offered again (spec W1-04, W1-12).

    cascade(log).run()

Of a cancelled job all batches and child jobs that are not over are cancelled; of a failed one those that it
had by then; of one that is offered again, the batches of the rounds that it had begun. A child that is
cancelled is cancelled by an event, which this reactor sees again: so it goes down to the last.
Each cancel expects a member that is not over, so it may be repeated, by any number of cascades.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from ledger import Ledger, Recorded, acting, split_name
from ledger.append import Append, append_of, body_of
from ledger.errors import GuardFailed, StreamConflict
from ledger.expected import Guard
from ledger.jobs import OpenBatch, OpenJob, OpenWork
from ledger.jobs.batch import BatchCancelled
from ledger.jobs.job import JobCancelled

from ..reactor import Answer, Reactor
from .members import Members

GATHER: Final = 0.02
"""Seconds within which events gather: to look at the log for each would cost a worker as much as its jobs."""
PAUSE: Final = 0.05
"""Seconds between two looks at a log that stands still."""
NAME: Final = "cascade"
"""The reactor's name, under which its position is kept."""
PIECE: Final = 1000
"""Streams that are cancelled in one append, at most."""
ALL: Final = 2**31 - 1
TRIES: Final = 50

_AGAIN: Final = ("job.attempt_failed", "job.retry_later", "job.released", "job.lease_expired_requeue")
_FAILED: Final = ("job.failed", "job.lease_expired")
TOPICS: Final = frozenset({"job.cancelled", *_FAILED, *_AGAIN})


def cascade(ledger: Ledger) -> Reactor:
    """The reactor that cancels what hangs on jobs that are over."""
    return Reactor(ledger, NAME, Cascade(ledger), topics=TOPICS, longest_pause=PAUSE, gather=GATHER)


class Fallen(NamedTuple):
    """What is to be cancelled of a job: its batches up to a round, these children; and why."""

    rounds: int
    children: Sequence[str]
    reason: str


class Cascade:
    """What the reactor does on an event. It answers nothing itself: it appends in pieces."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.members = ledger, Members(ledger)

    def __call__(self, event: Recorded) -> list[Answer]:
        """Cancel what hangs on the job of this event."""
        category, key = split_name(event.stream)
        if category != OpenJob.CATEGORY or len(key) != 1:
            return []
        fallen = self._fallen(key[0], event)
        why = {"correlation": event.meta.correlation, "causation": event.position}
        with acting(actor=f"reactor {NAME}", command=None, claimed_at=None, **why):
            for streams in self._open(key[0], fallen):
                self._cancel(streams, fallen.reason)
        return []

    def _fallen(self, job: str, event: Recorded) -> Fallen:
        """A failed job may have been redriven since, and have a set again: that is left alone."""
        if event.topic == "job.cancelled":  # for good: also what came since
            return Fallen(ALL, self.ledger.load(OpenJob, job).state.children, "parent_cancelled")
        if event.topic in _AGAIN:
            return Fallen(self.members.rounds_at(job, event.position), (), "parent_offered_again")
        state = self.members.job_at(job, event.position)
        return Fallen(state.rounds, state.children, "parent_failed")

    def _open(self, job: str, fallen: Fallen) -> Iterator[list[str]]:
        """The streams of the members, in pieces; of those that are children, also the ones that are over."""
        if fallen.rounds:
            yield from self.members.open_batches(job, fallen.rounds, PIECE)
        for first in range(0, len(fallen.children), PIECE):
            yield [OpenJob.name_of(child) for child in fallen.children[first : first + PIECE]]

    def _cancel(self, streams: Sequence[str], reason: str) -> None:
        """Cancel streams in one append; those that are over already, or do not fit, by themselves."""
        left = dict.fromkeys(streams)
        while left:
            try:
                self.ledger.append_all([_cancel_of(stream, reason) for stream in left])
                return
            except (GuardFailed, StreamConflict) as error:
                del left[error.stream]
                self._cancel_one(error.stream, reason)
                over = set(self._over(left))
                left = {stream: None for stream in left if stream not in over}

    def _over(self, streams: Iterable[str]) -> list[str]:
        """Those of the streams that are over; one look at all, since many may have ended meanwhile."""
        opened = self.ledger.load_each(_work(stream) for stream in streams)
        return [work.name for work in opened if work.over or work.version == 0]

    def _cancel_one(self, stream: str, reason: str) -> None:
        """Cancel one stream at its version; one that is not there, or over, is left."""
        for _ in range(TRIES):
            work = _work(stream)
            opened: OpenWork[Any, Any] = self.ledger.load(type(work), *work.key)
            if opened.version == 0 or not opened.cancel(reason):
                return
            try:
                self.ledger.append_all([append_of(opened)])
                return
            except StreamConflict:
                continue
        raise StreamConflict(stream, "work that nobody else changes", 0)


def _work(stream: str) -> OpenWork[Any, Any]:
    category, key = split_name(stream)
    return OpenBatch(*key) if category == OpenBatch.CATEGORY else OpenJob(*key)


def _cancel_of(stream: str, reason: str) -> Append:
    """The append that cancels a stream that is not over, whatever its version; its head forgets the claim."""
    kind = type(_work(stream))
    body = body_of((BatchCancelled if kind is OpenBatch else JobCancelled)(reason=reason))
    active = Guard(frozenset(map(str, kind.RUNNING | kind.WAITING)))
    return Append(stream, [body], active, status="cancelled", set_token=0)
