"""
The cascade: cancels the members of a job that was cancelled, failed, or is offered again (W1-04, W1-12).

    cascade(log).run()

It cancels members that are not over: all members of a cancelled job; those that a failed job had when it
failed; the batches of earlier rounds of a job that is offered again. The cancel of a child is an event that
this reactor reads too, so it reaches all descendants. Each cancel expects a member that is not over, so it
may be repeated, by any number of cascades.

When a job is reopened, it redrives the batches that had ended and did not complete (`redrive_batches`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ledger import Ledger, Recorded, acting, split_name
from ledger.errors import GuardFailed, StreamConflict
from ledger.jobs import OpenBatch, OpenJob
from ledger.jobs.work import work_at
from ledger.log.append import Append, Guard, append_of, body_of
from ledger.log.retry import retry_conflicts

from ..reactor import Answer, Reactor
from .members import Members

GATHER: Final = 0.1
"""Seconds between two reads under load: reading the log for each event would cost as much as the jobs."""
PAUSE: Final = 0.05
"""Seconds between two reads of a quiet log."""
NAME: Final = "cascade"
"""The reactor's name, under which its position is kept."""
MAX_STREAMS: Final = 1000
"""Maximum number of streams that are cancelled or redriven in one append."""
FAILED: Final = Guard(frozenset({"failed"}))
RUNNING: Final = Guard(frozenset({"running"}))
ALL: Final = 2**31 - 1

_AGAIN: Final = ("job.attempt_failed", "job.retry_later", "job.released", "job.lease_expired_requeue")
_FAILED: Final = ("job.failed", "job.lease_expired")
TOPICS: Final = frozenset({"job.cancelled", "job.reopened", *_FAILED, *_AGAIN})


def cascade(ledger: Ledger) -> Reactor:
    """The reactor that cancels the members of jobs that are over."""
    return Reactor(ledger, NAME, Cascade(ledger), topics=TOPICS, longest_pause=PAUSE, gather=GATHER)


class Targets(NamedTuple):
    """What is to be cancelled of a job: its batches up to a round, these children; and why.

    job_guard: an append that is refused if the job was redriven meanwhile.
    """

    rounds: int
    children: Sequence[str]
    reason: str
    job_guard: Append | None = None


class Cascade:
    """What the reactor does on an event: it appends in pieces, and returns no answers."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.members = ledger, Members(ledger)

    def __call__(self, event: Recorded) -> list[Answer]:
        """Cancel the members of the job of this event, or redrive them."""
        category, key = split_name(event.stream)
        if category != OpenJob.CATEGORY or len(key) != 1:
            return []
        why = {"correlation": event.meta.correlation, "causation": event.position}
        with acting(actor=f"reactor {NAME}", command=None, claimed_at=None, **why):
            if event.topic == "job.reopened":
                redrive_batches(self.ledger, self.members, key[0], event.position)
                return []
            while not self._cancelled(key[0], self._targets(key[0], event)):
                pass
        return []

    def _cancelled(self, job: str, targets: Targets) -> bool:
        """Whether all is cancelled; False if its job was redriven meanwhile and must be read again."""
        pieces = self._open(job, targets)
        return all(self._cancel(streams, targets.reason, targets.job_guard) for streams in pieces)

    def _targets(self, job: str, event: Recorded) -> Targets:
        """What to cancel. A failed job may have been redriven since, and have a new set, which stays."""
        if event.topic == "job.cancelled":  # final: also members that came since
            return Targets(ALL, self.ledger.load(OpenJob, job).state.children, "parent_cancelled")
        if event.topic in _AGAIN:
            return Targets(self.members.rounds_at(job, event.position), (), "parent_offered_again")
        state = self.members.job_at(job, event.position)
        targets = Targets(state.rounds, state.children, "parent_failed")
        for later in self.ledger.read(event.stream, after=event.version):
            if later.topic == "job.reopened":  # its set goes on
                return Targets(0, (), "parent_failed")
            if later.topic == "job.redriven":  # the job no longer has the former set
                return targets
        return targets._replace(job_guard=Append(event.stream, [], FAILED))

    def _open(self, job: str, targets: Targets) -> Iterator[list[str]]:
        """The streams of the members, in pieces: batches that are not over, and all children."""
        if targets.rounds:
            yield from self.members.open_batches(job, targets.rounds, MAX_STREAMS)
        for first in range(0, len(targets.children), MAX_STREAMS):
            yield [OpenJob.name_of(child) for child in targets.children[first : first + MAX_STREAMS]]

    def _cancel(self, streams: Sequence[str], reason: str, job_guard: Append | None) -> bool:
        """Cancel streams in one append; those that are refused there, one by one.

        False where the guard is refused.
        """
        left, guard = dict.fromkeys(streams), [] if job_guard is None else [job_guard]
        while left:
            try:
                self.ledger.append_all([*guard, *(_cancel_of(stream, reason) for stream in left)])
                return True
            except (GuardFailed, StreamConflict) as error:
                if job_guard is not None and error.stream == job_guard.stream:
                    return False
                del left[error.stream]
                if not self._cancel_one(error.stream, reason, guard):
                    return False
                over = set(self._over(left))
                left = {stream: None for stream in left if stream not in over}
        return True

    def _over(self, streams: Iterable[str]) -> list[str]:
        """Those of the streams that are over, read together, since many may have ended meanwhile."""
        opened = self.ledger.load_each(work_at(stream) for stream in streams)
        return [work.name for work in opened if work.over or work.version == 0]

    def _cancel_one(self, stream: str, reason: str, guard: Sequence[Append]) -> bool:
        """Cancel one stream at its version, if it is there and not over; False where the guard failed."""

        def decide() -> bool:
            (opened,) = self.ledger.load_each([work_at(stream)])
            if opened.version > 0 and opened.cancel(reason):
                self.ledger.append_all([*guard, append_of(opened)])
            return True

        try:
            return retry_conflicts(decide)
        except GuardFailed:
            return False


def _cancel_of(stream: str, reason: str) -> Append:
    """The append that cancels a stream that is not over, at any version; it clears the token of its head."""
    work = work_at(stream)
    cancelled: type[Any] = work.FACTS["Cancelled"]
    body = body_of(cancelled(reason=reason))
    active = Guard(frozenset(map(str, work.RUNNING | work.WAITING)))
    return Append(stream, [body], active, status="cancelled", set_token=0)


def redrive_batches(ledger: Ledger, members: Members, job: str, reopened: int) -> None:
    """Redrive the batches of a job that was reopened at a position.

    Each expects its version, and the job to be running: it may be repeated at any time, and what has ended
    again since is left.
    """
    state = members.job_at(job, reopened)
    for versions in members.to_redrive(job, state.rounds, reopened, MAX_STREAMS):
        if not _redriven(ledger, Append(OpenJob.name_of(job), [], RUNNING), versions):
            return


def _redriven(ledger: Ledger, running: Append, versions: Mapping[str, int]) -> bool:
    """Redrive batches in one append; False if the job is over. One that another writer changes is left."""
    left = dict(versions)
    while left:
        opened = ledger.load_each(OpenBatch(*split_name(stream)[1]) for stream in left)
        batches = [batch for batch in opened if batch.state.status in ("failed", "cancelled")]
        for batch in batches:
            batch.redrive_with_job(left[batch.name])
        if not batches:
            return True
        try:
            ledger.append_all([running, *map(append_of, batches)])
            return True
        except GuardFailed:
            return False
        except StreamConflict as error:
            left.pop(error.stream)
    return True
