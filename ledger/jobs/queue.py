"""
Queues and operations, as an operator rules them: a queue is paused and resumed, an operation has limits.

A queue is a name that jobs carry, and is there once a job names it. What is running goes on while its queue
is paused. A limit holds over all workers; it is looked at when work is taken (W1-16).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from ..errors import BadInput, shown
from ..event import Event
from ..frozen import changed
from ..moves import Moves
from ..stream import Stream
from .checking import LARGEST


class QueueStatus(StrEnum):
    """The statuses of a queue that somebody paused once."""

    PAUSED = "paused"
    OPEN = "open"


QUEUE_MOVES = Moves(
    {
        None: {QueueStatus.PAUSED, QueueStatus.OPEN},
        QueueStatus.OPEN: {QueueStatus.PAUSED},
        QueueStatus.PAUSED: {QueueStatus.OPEN},
    }
)


class QueuePaused(Event, topic="queue.paused", to=QueueStatus.PAUSED):
    """Nothing is taken from it any more."""

    reason: str | None = None


class QueueResumed(Event, topic="queue.resumed", to=QueueStatus.OPEN):
    """Work is taken from it again."""


@dataclass(frozen=True, slots=True)
class Queue:
    """What is true of a queue."""

    status: str | None = None
    reason: str | None = None


def evolve_queue(queue: Queue, event: Event, at: datetime) -> Queue:
    """Apply a fact. No rules here."""
    return changed(queue, status=str(event.to), reason=getattr(event, "reason", None))


class OpenQueue(Stream[Queue, Event]):
    """A queue open for change; its key is its name."""

    CATEGORY, MOVES, STATE = "queue", QUEUE_MOVES, Queue
    evolve = staticmethod(evolve_queue)

    def pause(self, reason: str | None = None) -> bool:
        """Take nothing from it any more; False where it is paused already."""
        if self.state.status == QueueStatus.PAUSED:
            return False
        self.record(QueuePaused(reason=reason))
        return True

    def resume(self) -> bool:
        """Take work from it again; False where it is not paused."""
        if self.state.status != QueueStatus.PAUSED:
            return False
        self.record(QueueResumed())
        return True


class OperationLimited(Event, topic="operation.limited"):
    """At most `concurrency` at once, at most `rate` begun within `seconds`; None does not limit.

    The rate is that of a bucket which holds `rate` and is filled evenly: after a rest, `rate` may begin at
    once, so in any time T at most `rate + rate * T / seconds` begin.
    """

    concurrency: int | None = None
    rate: int | None = None
    seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What limits an operation."""

    status: str | None = None
    concurrency: int | None = None
    rate: int | None = None
    seconds: float = 1.0


def evolve_limits(limits: Limits, event: Event, at: datetime) -> Limits:
    """Apply a fact. No rules here."""
    if not isinstance(event, OperationLimited):
        return limits
    return changed(limits, concurrency=event.concurrency, rate=event.rate, seconds=event.seconds)


class OpenOperation(Stream[Limits, Event]):
    """An operation's limits open for change; its key is its name."""

    CATEGORY, MOVES, STATE = "operation", Moves({}), Limits
    evolve = staticmethod(evolve_limits)

    def limit(self, concurrency: int | None = None, rate: int | None = None, seconds: float = 1.0) -> bool:
        """Set both limits; None takes one away. False where nothing changes. Raises BadInput."""
        for name, number in (("concurrency", concurrency), ("rate", rate)):
            if number is not None and (type(number) is not int or not 1 <= number <= LARGEST):
                raise BadInput(
                    f"{name} {shown(number)} must be an integer, 1 or more, {LARGEST} at most; to stop an "
                    "operation, pause its queue"
                )
        if type(seconds) not in (int, float) or not 0 < seconds <= LARGEST:
            raise BadInput(f"seconds {shown(seconds)} must be a number above 0, {LARGEST} at most")
        now = self.state
        if (now.concurrency, now.rate, now.seconds) == (concurrency, rate, seconds):
            return False
        self.record(OperationLimited(concurrency=concurrency, rate=rate, seconds=seconds))
        return True
