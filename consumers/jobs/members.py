"""The members of a job's set, its batches and child jobs: what the log says of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

from ledger import Ledger, stream_name
from ledger.jobs import Job, OpenBatch, OpenJob
from projections.sql import query

GOOD: Final = "good"
FAILED: Final = "failed"
GONE: Final = "gone"
"""How a member ended: well, failed, or cancelled."""

_ENDED: Final = {
    "completed": GOOD, "succeeded": GOOD, "failed": FAILED, "lease_expired": FAILED, "cancelled": GONE,
}  # fmt: skip


def ended_as(topic: str) -> str | None:
    """How a member ended whose fact has this topic; None where it begins anew."""
    return _ENDED.get(topic.partition(".")[2])


def place_of(nr: str) -> tuple[int, int] | None:
    """Round and number of a batch, from the last part of its key: `7` is (1, 7), `2.7` is (2, 7)."""
    first, dot, second = nr.partition(".")
    try:
        return (int(first), int(second)) if dot else (1, int(first))
    except ValueError:  # somebody's own stream
        return None


class Members:
    """Asks the ledger for the members of jobs."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def job_at(self, job: str, upto: int) -> Job:
        """A job as of a position that was read before; an initial state where it was not there yet."""
        found = self.ledger.load_below((OpenJob.name_of(job), OpenJob), upto=upto)
        return found[0].state if found else OpenJob.initial(job)

    def ended(
        self, job: str, round: int, children: Collection[str], upto: int
    ) -> Iterator[tuple[str | tuple[int, int], str]]:
        """The members of a round that were over as of a position, and how they ended."""
        for topic, numbers in (
            self._ask("ended_batches", prefix=_prefix(job, round), upto=upto) if round else ()
        ):
            for nr in numbers:
                if nr.isdecimal():
                    yield (round, int(nr)), _ENDED[topic.partition(".")[2]]
        for topic, streams in (
            self._ask("ended_jobs", streams=_streams(children), upto=upto) if children else ()
        ):
            for stream in streams:
                yield stream.partition("/")[2], _ENDED[topic.partition(".")[2]]

    def messages(self, job: str, round: int, children: Collection[str], upto: int) -> list[str]:
        """What the failed among them failed with, as of a position: three messages at most (spec S1-45)."""
        streams, prefix = _streams(children), _prefix(job, round)
        return [message for (message,) in self._ask("failures_of", prefix=prefix, streams=streams, upto=upto)]

    def parent_of(self, job: str) -> str | None:
        """The id of the job that a job is a child of."""
        rows = self._ask("parent_of", stream=OpenJob.name_of(job))
        return rows[0][0] if rows else None

    def rounds_at(self, job: str, upto: int) -> int:
        """How many rounds a job had begun as of a position."""
        return int(self._ask("rounds_at", stream=OpenJob.name_of(job), upto=upto)[0][0])

    def open_batches(self, job: str, rounds: int, limit: int) -> Iterator[list[str]]:
        """The streams of a job's batches up to a round that are not over now, in pieces."""
        after, prefix = "", _all(job)
        while rows := self._ask("open_batches", prefix=prefix, after=after, rounds=rounds, limit=limit):
            yield [stream for (stream,) in rows]
            after = rows[-1][0]

    def _ask(self, name: str, **parameters: Any) -> list[tuple[Any, ...]]:
        with self.ledger.reader() as connection:
            return query(connection, self.ledger.schema, name, **parameters)


def _all(job: str) -> str:
    return stream_name(OpenBatch.CATEGORY, job) + "/"


def _prefix(job: str, round: int) -> str:
    """What the names of a round's batches begin with; those of the first round hold no dot after it."""
    return _all(job) if round <= 1 else f"{_all(job)}{round}."


def _streams(children: Collection[str]) -> list[str]:
    return sorted(OpenJob.name_of(child) for child in children)
