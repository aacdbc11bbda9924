"""The members of a job's set, its batches and child jobs, as recorded in the log."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

from ledger import Ledger, stream_name
from ledger.domain.barrier import Outcome
from ledger.jobs import Job, OpenBatch, OpenJob
from ledger.log.sql import Statements

SQL = Statements(__package__, "members")
_OUTCOMES: Final = {
    "completed": Outcome.DONE, "succeeded": Outcome.DONE, "failed": Outcome.FAILED,
    "lease_expired": Outcome.FAILED, "cancelled": Outcome.GONE,
}  # fmt: skip


def outcome_of_topic(topic: str) -> Outcome | None:
    """The outcome of a member whose fact has this topic; None where it begins anew."""
    return _OUTCOMES.get(topic.partition(".")[2])


def place_of(nr: str) -> tuple[int, int] | None:
    """Round and number of a batch, from the last part of its key: `7` is (1, 7), `2.7` is (2, 7)."""
    first, dot, second = nr.partition(".")
    try:
        return (int(first), int(second)) if dot else (1, int(first))
    except ValueError:  # a stream of another domain
        return None


class Members:
    """Reads the members of jobs' sets."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def job_at(self, job: str, upto: int) -> Job:
        """A job as of a position that was read before; an initial state where it was not there yet."""
        found = self.ledger.load_below((OpenJob.name_of(job), OpenJob), upto=upto)
        return found[0].state if found else OpenJob.initial(job)

    def ended(
        self, job: str, round: int, children: Collection[str], upto: int
    ) -> Iterator[tuple[str | tuple[int, int], Outcome]]:
        """The members of a round that were over as of a position, and how they ended."""
        if round:
            name, prefix = OpenJob.name_of(job), _prefix(job, round)
            for topic, numbers in self.ledger.query(SQL.ended_batches, prefix=prefix, job=name, upto=upto):
                for nr in filter(str.isdecimal, numbers):
                    yield (round, int(nr)), _OUTCOMES[topic.partition(".")[2]]
        if children:
            for topic, names in self.ledger.query(SQL.ended_jobs, streams=_streams(children), upto=upto):
                for name in names:
                    yield name.partition("/")[2], _OUTCOMES[topic.partition(".")[2]]

    def messages(self, job: str, round: int, children: Collection[str], upto: int) -> list[str]:
        """The error messages of those that failed, as of a position: three at most (spec S1-45)."""
        where: dict[str, Any] = {"prefix": _prefix(job, round), "streams": _streams(children), "upto": upto}
        return [message for (message,) in self.ledger.query(SQL.failures_of, **where)]

    def parent_of(self, job: str) -> str | None:
        """The id of the job that a job is a child of."""
        rows = self.ledger.query(SQL.parent_of, stream=OpenJob.name_of(job))
        return rows[0][0] if rows else None

    def rounds_at(self, job: str, upto: int) -> int:
        """How many rounds a job had begun as of a position."""
        return int(self.ledger.query(SQL.rounds_at, stream=OpenJob.name_of(job), upto=upto)[0][0])

    def open_batches(self, job: str, rounds: int, limit: int) -> Iterator[list[str]]:
        """The streams of a job's batches up to a round that are not over now, in pieces."""
        after = ""
        where: dict[str, Any] = {"prefix": _all(job), "rounds": rounds, "limit": limit}
        while rows := self.ledger.query(SQL.open_batches, after=after, **where):
            yield [stream for (stream,) in rows]
            after = rows[-1][0]

    def to_redrive(self, job: str, round: int, before: int, limit: int) -> Iterator[dict[str, int]]:
        """The batches of a round that ended before a position and did not complete, in pieces by name.

        Of each stream the version of the fact that holds its payload.
        """
        after = ""
        where: dict[str, Any] = {"prefix": _prefix(job, round), "before": before, "limit": limit}
        while rows := self.ledger.query(SQL.batches_to_redrive, after=after, **where):
            yield dict(rows)
            after = rows[-1][0]


def _all(job: str) -> str:
    return stream_name(OpenBatch.CATEGORY, job) + "/"


def _prefix(job: str, round: int) -> str:
    """What the names of a round's batches begin with; those of the first round hold no dot after it."""
    return _all(job) if round <= 1 else f"{_all(job)}{round}."


def _streams(children: Collection[str]) -> list[str]:
    return sorted(OpenJob.name_of(child) for child in children)
