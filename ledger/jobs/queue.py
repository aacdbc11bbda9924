"""
Queues that can be paused and resumed, and operations with limits.

A queue is a name that jobs carry; it exists once a job names it. Running work goes on while its queue is
paused. A limit applies to all workers together; it is checked when work is claimed (W1-16).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from ..domain.event import Event
from ..domain.frozen import changed
from ..domain.moves import Moves
from ..domain.stream import Stream
from ..errors import BadInput, shown
from .work import LARGEST


class QueueStatus(StrEnum):
    """The statuses of a queue that was ever paused."""

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
    """No work is claimed from it any more."""

    reason: str | None = None


class QueueResumed(Event, topic="queue.resumed", to=QueueStatus.OPEN):
    """Work is claimed from it again."""


@dataclass(frozen=True, slots=True)
class Queue:
    """The state of a queue."""

    status: str | None = None
    reason: str | None = None


def evolve_queue(queue: Queue, event: Event, at: datetime) -> Queue:
    """Apply a fact. It applies no rules."""
    return changed(queue, status=str(event.to), reason=getattr(event, "reason", None))


class OpenQueue(Stream[Queue, Event]):
    """A queue open for change; its key is its name."""

    CATEGORY, MOVES, STATE = "queue", QUEUE_MOVES, Queue
    evolve = staticmethod(evolve_queue)

    def pause(self, reason: str | None = None) -> bool:
        """Pause it: no work is claimed from it. False if it is paused already."""
        if self.state.status == QueueStatus.PAUSED:
            return False
        self.record(QueuePaused(reason=reason))
        return True

    def resume(self) -> bool:
        """Resume it: work is claimed from it again. False if it is not paused."""
        if self.state.status != QueueStatus.PAUSED:
            return False
        self.record(QueueResumed())
        return True


class OperationLimited(Event, topic="operation.limited"):
    """At most `concurrency` at once, at most `rate` begun within `seconds`; None means no limit.

    The rate is a token bucket that holds `rate` and fills evenly: after a pause, `rate` may begin at
    once, so in any time T at most `rate + rate * T / seconds` begin.
    """

    concurrency: int | None = None
    rate: int | None = None
    seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of an operation."""

    status: str | None = None
    concurrency: int | None = None
    rate: int | None = None
    seconds: float = 1.0


def evolve_limits(limits: Limits, event: Event, at: datetime) -> Limits:
    """Apply a fact. It applies no rules."""
    if not isinstance(event, OperationLimited):
        return limits
    return changed(limits, concurrency=event.concurrency, rate=event.rate, seconds=event.seconds)


class OpenOperation(Stream[Limits, Event]):
    """An operation's limits open for change; its key is its name."""

    CATEGORY, MOVES, STATE = "operation", Moves({}), Limits
    evolve = staticmethod(evolve_limits)

    def limit(self, concurrency: int | None = None, rate: int | None = None, seconds: float = 1.0) -> bool:
        """Set both limits; None removes one. False where nothing changes. Raises BadInput."""
        for name, number in (("concurrency", concurrency), ("rate", rate)):
            if number is not None and (type(number) is not int or not 1 <= number <= LARGEST):
                raise BadInput(
                    f"{name} {shown(number)} must be an integer from 1 to {LARGEST}; to stop an "
                    "operation, pause its queue"
                )
        if type(seconds) not in (int, float) or not 0 < seconds <= LARGEST:
            raise BadInput(f"seconds {shown(seconds)} must be a number above 0 and at most {LARGEST}")
        now = self.state
        if (now.concurrency, now.rate, now.seconds) == (concurrency, rate, seconds):
            return False
        self.record(OperationLimited(concurrency=concurrency, rate=rate, seconds=seconds))
        return True
