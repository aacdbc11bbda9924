"""Jobs and batches as they are given to tests: waiting, running, dispatched, ended; nothing is stored."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from ledger.jobs import OpenBatch, OpenJob
from ledger.jobs.work import OpenWork

NOW = datetime(2026, 3, 25, 12, tzinfo=UTC)
ID = "5bd3f2a0-6d8c-4c0e-9c1d-0f6f7a2f3b11"
Work = OpenWork[Any, Any]
When = Callable[[Any], Any]


def settled(work: Any, at: datetime = NOW) -> Any:
    """As after the append of its news."""
    work.settle(at)
    return work


def job(**fields: Any) -> OpenJob:
    """A job that waits."""
    opened = OpenJob(ID)
    opened.create("embed", **fields)
    return settled(opened)


def running(**fields: Any) -> OpenJob:
    """A job that a worker claimed: token 2."""
    return settled(job(**fields).start("worker-1"))


def dispatched(batches: int = 3, **fields: Any) -> OpenJob:
    """A job whose operation is over, and whose set goes on."""
    opened = running()
    opened.begin_dispatch()
    opened.dispatch(batches, **fields)
    return settled(opened)


def after(work: Work, *whens: When) -> Any:
    """The work after these decisions, each recorded by itself, a minute apart."""
    for nth, when in enumerate(whens, 1):
        when(work)
        settled(work, NOW + timedelta(minutes=nth))
    return work


def batch(**fields: Any) -> OpenBatch:
    """A batch that waits."""
    opened = OpenBatch(ID, "1")
    opened.queue(1, "embed.batch", "gpu", **fields)
    return settled(opened)


def computing(**fields: Any) -> OpenBatch:
    return settled(batch(**fields).start("worker-1"))


def writing(**fields: Any) -> OpenBatch:
    """A batch at its second step."""
    opened = computing(**fields)
    opened.computed("embed.write", "disk", {"uri": "s3://x"})
    return settled(settled(opened).start("worker-2"))


def ended(how: str) -> OpenJob:
    """A job at one of its ends."""
    return after(running(), ENDS[how])


ENDS: dict[str, When] = {
    "succeeded": lambda work: work.succeed({"n": 1}),
    "failed": lambda work: work.fail("OSError", "disk"),
    "cancelled": lambda work: work.cancel(),
}


def news(work: Work) -> list[str]:
    return [event.topic for event in work.news]


START: When = lambda work: work.start("worker-9")  # noqa: E731
