"""
A reactor: follows the log and answers events with appends, each recorded exactly once.

    Reactor(log, "escalation", escalate, topics={"lsm.strip.failed"}).run()

An answer is recorded under a command id made of the reactor's name, the position of the event that it
answers, and a key. So a reactor that was killed, was started again, or runs twice at once repeats its answers
and records none twice, provided that an answer depends only on the log up to that event: not on a clock,
random numbers or present state.
"""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

import psycopg

from ledger import (
    ANY,
    BadName,
    Body,
    Cursor,
    CursorMismatch,
    Event,
    Expected,
    Ledger,
    Recorded,
    SchemaMismatch,
    ServerUnavailable,
    UnreadableEvent,
    acting,
)
from ledger.errors import (
    CommandReused,
    DamagedLedger,
    GuardFailed,
    NoPermission,
    ReactionFailed,
    ReadOnly,
    StorageFull,
    StreamConflict,
)
from ledger.log.readers import ParkedStreams, Positions
from ledger.roles import require_roles
from projections.engine.background import Background
from projections.engine.follower import Follower


@dataclass(frozen=True)
class Answer:
    """Events for one stream. key: distinguishes the answers to one event, if there are several.

    The answer to an event, and its `key`, must be the same every time. command: the id under which it is
    recorded, once for all events that are answered under it. harmless: it may be refused, because its
    expectation does not hold or the command id was used for something else: then it came too late and is
    left out.
    """

    stream: str
    events: Sequence[Event | Body]
    key: str = ""
    expected: Expected = ANY
    command: str | None = None
    harmless: bool = False


Reaction = Callable[[Recorded], Iterable[Answer]]
"""What a reactor answers to an event. It may be called again with an event that it has answered before.

A reaction with a memory may have a method `forget()`, which is called when the next events do not follow on
the previous ones."""


TRANSIENT: Final = (
    ConnectionError, TimeoutError, MemoryError, psycopg.OperationalError, psycopg.InterfaceError,
)  # fmt: skip
"""Errors of a reaction that the event did not cause: the next try may succeed."""

LAST: Final = 2**63

_log = logging.getLogger(__name__)


class ParkedByReactor:
    """The streams that one reactor parked, each with the first position that is not handled."""

    def __init__(self, ledger: Ledger, reader: str) -> None:
        self.reader, self.kept = reader, ParkedStreams(ledger)
        self.streams: dict[str, int] = {}
        self._looked_at = -math.inf

    def load(self) -> None:
        """Read the parked streams from the ledger; the next check is due at once."""
        self.streams = {one.stream: one.position for one in self.kept.all(self.reader)}
        self._looked_at = -math.inf

    def leaves_out(self, event: Recorded) -> bool:
        """Whether the event belongs to a parked stream and does not come before the one that failed."""
        return event.position >= self.streams.get(event.stream, math.inf)

    def park(self, event: Recorded, error: Exception) -> bool:
        """Park the stream of an event from this event on, and log it. True once that is stored."""
        said = _said(event, error)
        self.kept.park(self.reader, event.stream, event.position, said)
        self.streams[event.stream] = event.position
        _log.error(
            "reactor %s leaves out %s from position %s on: %s; `pledger reactors retry` has it tried again",
            self.reader, event.stream, event.position, said,
        )  # fmt: skip
        return True

    @contextmanager
    def again(self, seconds: float) -> Iterator[int | None]:
        """The position from which to read the log again; None if nothing is to be retried.

        That holds for streams whose retry was requested, and for those that another process of this reactor
        handles again. The ledger is queried at most once per interval. When the block ends, those that were
        not parked anew are no longer parked; if it raised, they stay parked.
        """
        if time.monotonic() < self._looked_at + seconds:
            yield None
            return
        found = {one.stream: one for one in self.kept.all(self.reader)}
        self._looked_at = time.monotonic()
        asked = [one for one in found.values() if one.again]
        again = {one.stream: one.position for one in asked}
        for stream in [*(self.streams.keys() - found.keys()), *(again.keys() & self.streams.keys())]:
            again[stream] = min(self.streams.pop(stream), again.get(stream, LAST))
        try:
            yield min(again.values(), default=None)
            for one in asked:
                if one.stream not in self.streams:
                    self.kept.release(self.reader, one.stream, one.position)
        except BaseException:  # not done: they stay parked
            self.streams = again | self.streams
            self._looked_at = -math.inf
            raise


def _said(event: Recorded, error: Exception) -> str:
    """What went wrong: the event's error if it cannot be read, else the error of the reaction."""
    try:
        _ = event.event
    except UnreadableEvent as unreadable:
        return f"{unreadable.topic} {unreadable.why}"
    return f"{type(error).__name__}: {error}"


LONGEST_PAUSE: Final = 0.01
"""Seconds between two reads of an idle log: events of other processes too are answered within 50 ms."""
KEEPING: Final = 1.0
"""Seconds between two writes of the position, at least, while a reactor runs."""

_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,99}\Z")
_THEIRS = (ServerUnavailable, CursorMismatch, SchemaMismatch, DamagedLedger)
"""Errors of the server or the ledger, not of the reaction."""


class _Stopped(Exception):
    """The reactor was stopped before it had read all of the log again."""


class Reactor(Background):
    """Follows a ledger and records what `react` answers to each event, in order.

    topics: only these events are passed to `react`. after: where a reactor that never ran begins; by default
    the start of the log. One that ran continues from its position, which is stored in the ledger under its
    name, about once a second, and always after the answers. Answers carry the actor `reactor NAME`, the
    position of the event as causation, and its correlation. longest_pause, gather: as in Follower.

    `run` works until it is stopped, `catch_up` to the end of the log, `with reactor:` in a thread meanwhile.
    An event that cannot be read, on which `react` raises, or whose answer is refused, parks its stream: the
    event is stored with its error in the ledger, and no event of that stream is handled from there on; all
    others are. `parked` contains them; `ParkedStreams(log).retry` requests a retry: the reactor reads the log
    again from there, repeats its answers, and records only those that are missing. An error that no event
    caused (a broken connection that `react` needs) is raised as ReactionFailed, and the next run begins with
    that event. Raises CursorMismatch if the position belongs to a history that was rolled back.
    """

    def __init__(
        self,
        ledger: Ledger,
        name: str,
        react: Reaction,
        *,
        topics: Collection[str] | None = None,
        after: int | Cursor = 0,
        batch: int = 500,
        longest_pause: float = LONGEST_PAUSE,
        gather: float = 0.0,
    ) -> None:
        if not _NAME.match(name):
            wrong = "must be lower-case letters, digits, '_', '.', '-', a letter first, at most 100"
            raise BadName("name of a reactor", name, wrong)
        super().__init__()
        self.ledger, self.name, self.react, self.title = ledger, name, react, f"reactor {name}"
        self._follower = partial(
            Follower, ledger, topics=topics, batch=batch, longest_pause=longest_pause, gather=gather
        )
        self._after = after
        self._positions, self._parking = Positions(ledger), ParkedByReactor(ledger, name)
        self._last: Recorded | Cursor | None = None
        self._kept, self._kept_at = -1, 0.0
        self._busy = threading.Lock()

    @property
    def position(self) -> int:
        """The last event that is handled and whose answers are recorded; 0 before the first run."""
        return 0 if self._last is None else self._last.position

    @property
    def parked(self) -> Mapping[str, int]:
        """The parked streams, each with the first position that is not handled."""
        return dict(self._parking.streams)

    # Running

    def run(self, stop: threading.Event | None = None) -> None:
        """React for ever, or until `stop` is set."""
        with self._running() as follower:
            for events in follower.batches(stop, empty=True):
                self._again(stop)
                self._handle(follower, events, stop)
                self._keep(KEEPING)

    def catch_up(self) -> int:
        """React to all events that are safe to read; returns how many they were."""
        handled = 0
        with self._running() as follower:
            self._again(None)
            while events := follower.retry_outages(follower.poll):
                handled += self._handle(follower, events, None)
            self._handle(follower, [], None)
        return handled

    def wait_for(self, position: int, seconds: float = 30.0) -> bool:
        """Whether all events up to a position are handled within the time. Raises the failure, if any."""
        return self.wait_until(lambda: self.position >= position, seconds)

    @contextmanager
    def _running(self) -> Iterator[Follower]:
        """One run at a time, from the reactor's position; the new position is stored at the end."""
        if not self._busy.acquire(blocking=False):
            raise self.runs_already()
        try:
            yield self._started()
            self._keep(0)
        except (ReactionFailed, KeyboardInterrupt):
            self._keep(0)
            raise
        finally:
            self._busy.release()

    def _started(self) -> Follower:
        """A follower from the reactor's position. Raises NoPermission if the login lacks a role."""
        require_roles(self.ledger, "pledger react")
        if self._last is None:
            kept = self._positions.kept(self.name)
            follower = self._follower(self._after if kept is None else kept)
            self._last, self._kept = kept, -1 if kept is None else kept.position
        else:
            follower = self._follower(self._stands(self._last))
        follower.retry_outages(self._parking.load)
        return follower

    # Reacting

    def _handle(self, follower: Follower, events: Sequence[Recorded], stop: threading.Event | None) -> int:
        """Answer the events of a batch; returns how many were handled before `stop` was set."""
        for nth, event in enumerate(events):
            if (stop and stop.is_set()) or not self._answer(follower, event, stop):
                return nth
            self._done(event)
        if follower.position != self.position:
            self._done(follower.cursor)
        return len(events)

    def _answer(self, follower: Follower, event: Recorded, stop: threading.Event | None) -> bool:
        """Record the answers to one event; False if the reactor was stopped before that was done."""
        if self._parking.leaves_out(event):
            return True
        try:
            answers = follower.retry_outages(lambda: list(self.react(event)), stop)
            if answers is None:
                return False
            return all(
                follower.retry_outages(partial(self._record, event, answer), stop) is not None
                for answer in answers
            )
        except _THEIRS:
            raise
        except TRANSIENT as error:
            raise ReactionFailed(self.name, event.position, event.topic, error) from error
        except Exception as error:
            self._forget()  # it may remember half of it
            return follower.retry_outages(partial(self._parking.park, event, error), stop) is not None

    def _again(self, stop: threading.Event | None) -> None:
        """Read the log again if parked streams are to be retried."""
        try:
            with self._parking.again(KEEPING) as first:
                if first is not None and not self._go_over(first - 1, stop):
                    raise _Stopped  # nothing is handled yet: the next read begins with it
        except NoPermission:
            raise
        except (_Stopped, ServerUnavailable):  # which the follower waits for
            pass

    def _go_over(self, after: int, stop: threading.Event | None) -> bool:
        """Answer the events after a position again, up to the reactor's position; False if stopped."""
        self._forget()
        follower, upto = self._follower(after), self.position
        while follower.position < upto and (events := follower.retry_outages(follower.poll, stop)):
            for event in events:
                if (stop and stop.is_set()) or (
                    event.position <= upto and not self._answer(follower, event, stop)
                ):
                    return False
        self._forget()
        return not (stop and stop.is_set())

    def _forget(self) -> None:
        """Clear the memory of the reaction: the next events do not follow on the previous ones."""
        forget = getattr(self.react, "forget", None)
        if forget is not None:
            forget()

    def _record(self, event: Recorded, answer: Answer) -> bool:
        """Record an answer; also True if it was refused and is harmless."""
        command = answer.command or f"{self.name}:{event.position}:{answer.key}"
        why = {"correlation": event.meta.correlation, "causation": event.position}
        try:
            with acting(actor=f"reactor {self.name}", command=command, claimed_at=None, **why):
                self.ledger.append(answer.stream, *answer.events, expected=answer.expected)
        except (StreamConflict, GuardFailed, CommandReused):
            if not answer.harmless:
                raise
        return True

    def _done(self, last: Recorded | Cursor) -> None:
        with self.moved:
            self._last = last
            self.moved.notify_all()

    def _stands(self, last: Recorded | Cursor) -> Cursor:
        """The cursor after the last event; computed on demand, because it contains a digest."""
        return last if isinstance(last, Cursor) else Cursor.after(self.ledger.identity.ledger, last)

    def _keep(self, seconds: float) -> None:
        """Store the position if it moved and was not stored recently. All answers before it are recorded.

        A failure because the server is unavailable does no harm: the answers are repeated.
        """
        now = time.monotonic()
        if (last := self._last) is None or last.position == self._kept or now < self._kept_at + seconds:
            return
        self._kept_at = now
        try:
            self._positions.keep(self.name, self._stands(last))
        except (NoPermission, ReadOnly, StorageFull):
            raise
        except ServerUnavailable:
            return
        self._kept = last.position
